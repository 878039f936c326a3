"""Drive headless Chromium through chromedriver's WebDriver protocol; the standard library does it.

Chromium and chromedriver come from Debian's packages (apt-get install chromium chromium-driver).
"""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
]

KEYS = {"tab": "\ue004", "enter": "\ue007", "left": "\ue012", "right": "\ue014", "space": " "}

PATIENCE = 120.0


class Browser:
    """One window. Elements are named by CSS selectors."""

    def __init__(self, driver: str, profile: Path) -> None:
        self._driver = driver
        options = {
            "binary": shutil.which("chromium"),
            "args": [*FLAGS, "--window-size=1100,1000", f"--user-data-dir={profile}"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def open(self, address: str) -> None:
        self._post("/url", {"url": address})

    def close(self) -> None:
        self._call("DELETE", self._session)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns, e.g. "return document.title"."""
        return self._post("/execute/sync", {"script": script, "args": arguments})

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def count(self, selector: str) -> int:
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def role(self, selector: str) -> str:
        """The role that a screen reader is told."""
        return self._get(f"/element/{self._find(selector)}/computedrole")

    def label(self, selector: str) -> str:
        """The name that a screen reader is told."""
        return self._get(f"/element/{self._find(selector)}/computedlabel")

    def press(self, key: str) -> None:
        """Press and release a key wherever the focus is."""
        down, up = ({"type": kind, "value": KEYS[key]} for kind in ("keyDown", "keyUp"))
        self._post("/actions", {"actions": [{"type": "key", "id": "k", "actions": [down, up]}]})

    def wait(self, what: Callable[[], Any], wanted: Any) -> None:
        """Until something is as it should be."""
        until = time.monotonic() + PATIENCE
        while (found := what()) != wanted:
            assert time.monotonic() < until, f"still {found!r}, not {wanted!r}"
            time.sleep(0.05)

    def width(self, pixels: int) -> None:
        size = {"width": pixels, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        self._cdp("Emulation.setDeviceMetricsOverride", size if pixels else {})

    def colours(self, scheme: str) -> None:
        """Prefer "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._cdp("Emulation.setEmulatedMedia", {"features": [feature]})

    def complaints(self) -> list[str]:
        """What the browser's console has said since the last call: errors, blocked requests."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def _cdp(self, command: str, parameters: dict[str, Any]) -> None:
        self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _find(self, selector: str) -> str:
        found = self._post("/element", {"using": "css selector", "value": selector})
        return next(iter(found.values()))

    def _get(self, path: str) -> Any:
        return self._call("GET", self._session + path)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", self._session + path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._driver + path, data, method=method)
        with urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile; it is gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port)
        browser = Browser(f"http://127.0.0.1:{port}", profile)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.wait(timeout=120)


def _wait_for(port: int) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < until, "chromedriver does not answer"
            time.sleep(0.05)
