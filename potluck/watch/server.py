"""A small web server that shows one run folder and can do nothing else.

It answers GET and HEAD on a handful of fixed addresses; no part of a request ever becomes a path.
"""

import ipaddress
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs

from potluck.errors import PotluckError
from potluck.watch.snapshot import Watched, as_json

PORT = 8017

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The page's files, by address."""

STATE = "/state"
"""Where the page asks for the run; ?after=N leaves out the rounds that it already has."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@contextmanager
def serving(folder: Path, host: str = "127.0.0.1", port: int = PORT) -> Iterator["WatchServer"]:
    """A server for a run's live page, listening; call `serve_forever` on it.

    Args:
      folder: the run folder.
      host:   the address to listen on.
      port:   the port; 0 for any that is free.
    """
    try:
        server = WatchServer(folder, host, port)
    except OSError as error:
        raise PotluckError(
            f"cannot listen on {host}, port {port} ({error.strerror or error}). Choose another "
            "with --port, or --port 0 for any that is free."
        ) from None
    with server:
        yield server


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class WatchServer(ThreadingHTTPServer):
    """Serves the page and the state of one run.

    Args:
      folder: the run folder.
      host:   the address to listen on.
      port:   the port; 0 for any that is free.
    """

    daemon_threads = True

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self.watched = Watched(folder)
        self.local = is_loopback(host)
        page = files("potluck.watch").joinpath("page")
        self.page = {
            address: (page.joinpath(name).read_bytes(), kind)
            for address, (name, kind) in PAGE.items()
        }
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    @property
    def address(self) -> str:
        """What to type into a browser."""
        host, port = (str(part) for part in self.server_address[:2])
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away while it is answered is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD; http.server itself refuses all other methods."""

    server: WatchServer
    server_version = "potluck"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        self.wfile.write(self._send_head())

    def do_HEAD(self) -> None:
        self._send_head()

    def log_message(self, *_: object) -> None:
        """Say nothing: the terminal belongs to the run."""

    def _send_head(self) -> bytes:
        """Answer with all but the body, and return that."""
        status, body, kind = self._found()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        return body

    def _found(self) -> tuple[HTTPStatus, bytes, str]:
        text = "text/plain; charset=utf-8"
        if not self._meant_for_us():
            return HTTPStatus.FORBIDDEN, b"This page is for this machine only.\n", text
        address, _, query = self.path.partition("?")
        if address in self.server.page:
            return HTTPStatus.OK, *self.server.page[address]
        if address == STATE:
            after = parse_qs(query).get("after", ["0"])[0]
            if not (after.isascii() and after.isdigit() and len(after) < 10):
                return HTTPStatus.BAD_REQUEST, b"after must be a number of rounds.\n", text
            return HTTPStatus.OK, as_json(self.server.watched.snapshot(int(after))), _JSON
        return HTTPStatus.NOT_FOUND, b"There is nothing here; the page is at /.\n", text

    def _meant_for_us(self) -> bool:
        """Refuse other names for this machine: a web site could make its own name mean it."""
        if not self.server.local:
            return True
        named = re.fullmatch(r"(\[.*\]|[^:]*)(:\d+)?", self.headers.get("Host", ""))
        return named is not None and is_loopback(named[1])


_JSON = "application/json"
