"""Processes that we start: they end when we do, however that comes about.

Flower's SuperLink and SuperNode outlive a parent that is killed. So they are started through a
guard: this file as a program, which holds the reading end of a pipe. When the writing end is gone,
because we closed it or are no more, the guard ends its command. The file imports nothing of ours,
so that the guard is small and starts at once.
"""

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GRACE = 10.0
"""Seconds that a command has to end before it is killed."""


@dataclass(frozen=True, eq=False)
class Guarded:
    """A command that ends when this process does.

    Args:
      guard: the process that watches over it.
      log:   the file that has what it says.
    """

    guard: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(
        cls, command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]
    ) -> "Guarded":
        """Start a command.

        Args:
          command:     the program and its arguments.
          folder:      where it runs.
          log:         the file that gets what it says.
          environment: its environment.
        """
        with log.open("ab") as output:
            guard = subprocess.Popen(
                [sys.executable, "-P", __file__, *command],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us: we end it in order
            )
        return cls(guard, log)

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.guard.poll() is None

    def stop(self) -> None:
        """End it, and wait for that."""
        assert self.guard.stdin is not None
        self.guard.stdin.close()
        self.guard.wait()

    def said(self, lines: int = 15) -> str:
        """The last lines that it said."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def environment(home: Path) -> dict[str, str]:
    """The environment for Flower's programs: its own folder, nothing sent anywhere.

    Args:
      home: a folder of ours for what Flower keeps.
    """
    scripts = sysconfig.get_path("scripts")
    return {
        **os.environ,
        # Flower starts its other programs by name.
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
        "PYTHONUNBUFFERED": "1",
    }


def program(name: str) -> str:
    """The path of one of Flower's programs, beside our own Python."""
    return str(Path(sysconfig.get_path("scripts")) / name)


@cache
def end_with_parent() -> None:
    """End this process at once when the one that started it is gone.

    Flower's programs try to say goodbye to a server that is no more, and may hang.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # as if killed: whatever we write appears whole or not at all

    threading.Thread(target=watch, daemon=True).start()


def free_port() -> int:
    """A port on this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def guard(command: Sequence[str]) -> int:
    """Run a command until it ends, or until standard input is closed."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        _end(process)

    threading.Thread(target=watch, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _end(process))
    code = process.wait()
    if os.getpgrp() == os.getpid():
        time.sleep(1)  # for what the command started, and told to end
        # Whatever is left of it, which may wait forever for a server that is gone; and us.
        os.killpg(os.getpgrp(), signal.SIGKILL)
    return code


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # Flower tells its children by this one
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
