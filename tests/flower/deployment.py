"""Real processes on this machine: starting, killing and overhearing them."""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from potluck.flower.processes import free_port

BIN = Path(sys.executable).parent
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    "COLUMNS": "200",
}
PATIENCE = 600.0
"""Seconds after which a test gives up: machines may be slow, and this says nothing about ours."""


@dataclass
class Started:
    """A process of ours, with the file that has what it says."""

    process: subprocess.Popen
    log: Path

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)


@dataclass
class Stage:
    """Starts processes, and ends them all when the test does."""

    folder: Path
    started: list[Started] = field(default_factory=list)

    def start(self, name: str, *command: object, **environment: str) -> Started:
        log = self.folder / f"{name}.out"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.folder,
                env={**ENVIRONMENT, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        one = Started(process, log)
        self.started.append(one)
        return one

    def end(self) -> None:
        for one in self.started:
            if one.process.poll() is None:
                os.killpg(one.process.pid, signal.SIGINT)
        for one in self.started:
            try:
                one.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(one.process.pid, signal.SIGKILL)

    def left(self, seconds: float = 90.0) -> list[str]:
        """The command lines of what is still there after a while; it is killed then.

        Ray's agents look for their parent every few seconds, on a busy machine every dozen.
        """
        end = time.monotonic() + seconds
        while (found := belonging(str(self.folder))) and time.monotonic() < end:
            time.sleep(0.2)
        lines = [command_line(pid) for pid in found]
        for pid in found:
            kill(pid)
        return lines


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """A stage that is cleared afterwards, come what may; nothing may be left on it."""
    one = Stage(folder)
    try:
        yield one
    finally:
        one.end()
        left = one.left()
    assert left == [], left


def belonging(home: str, command: str = "") -> list[int]:
    """Processes whose FLWR_HOME lies in a folder: Flower's, and what they started."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes()
        except OSError:
            continue
        number = int(entry.name)
        if f"FLWR_HOME={home}".encode() in variables and command in command_line(number):
            found.append(number)
    return found


def command_line(pid: int) -> str:
    """What a process was started with; nothing if it is gone."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def kill(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return


def kill_all(one: Started, home: Path) -> None:
    """kill -9 of a party: of what we started and of everything that it started."""
    os.killpg(one.process.pid, signal.SIGKILL)
    one.process.wait()
    for pid in belonging(str(home)):
        kill(pid)


def until(true: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.05)


class Eavesdropper:
    """Stands between sites and the server, knows the server's key, and hears everything.

    What it heard is kept by connection: (from the site, from the server).
    """

    def __init__(self, server_port: int, certificate: Path, key: Path, authority: Path) -> None:
        self.port = free_port()
        self.heard: list[tuple[bytearray, bytearray]] = []
        self._server_port = server_port
        self._inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._inside.load_cert_chain(certificate, key)
        self._outside = ssl.create_default_context(cafile=str(authority))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, port: int) -> None:
        self.port = port
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serve = asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._inside)
        self._loop.run_until_complete(serve)
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(
                "127.0.0.1", self._server_port, ssl=self._outside, server_hostname="localhost"
            )
        except OSError:
            writer.close()
            return
        sent, received = bytearray(), bytearray()
        self.heard.append((sent, received))
        await asyncio.gather(_pass(reader, there[1], sent), _pass(there[0], writer, received))

    def of(self, key: bytes) -> tuple[bytes, bytes]:
        """(what a site sent, what it received): of the connections that carry its public key."""
        mine = [pair for pair in self.heard if key in pair[0]]
        return b"".join(bytes(p[0]) for p in mine), b"".join(bytes(p[1]) for p in mine)


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray
) -> None:
    try:
        while data := await reader.read(65536):
            heard.extend(data)
            writer.write(data)
            await writer.drain()
    except (OSError, ssl.SSLError):
        pass
    finally:
        writer.close()
