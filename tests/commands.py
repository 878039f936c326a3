"""Commands of potluck, each in a process of its own.

`process` starts an interpreter, as a user's shell would: `python -m potluck …`. Most of the
time then goes into loading torch, so `copied` starts a copy of a server that has loaded it, and
nothing of ours: the same in all that a test can see.
"""

import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import mkdtemp

SERVER = get_context("forkserver")
SERVER.set_forkserver_preload(
    ["torch", "pyarrow.csv", "pyarrow.parquet", "pydantic", "typer", "rich.console", "PIL.Image"]
)


def process(*command: object, cwd: Path) -> CompletedProcess[str]:
    """Run a command in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-m", "potluck", *map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass
class Copy:
    """A command that was started in a copy of the server."""

    process: BaseProcess
    said: Path

    def ended(self) -> CompletedProcess[str]:
        """Wait for its end."""
        self.process.join()
        assert self.process.exitcode is not None
        out, err = ((self.said / name).read_text() for name in ("out", "err"))
        shutil.rmtree(self.said)
        return CompletedProcess([], self.process.exitcode, out, err)


def start(*command: object, cwd: Path) -> Copy:
    """Start a command in a copy of the server."""
    said = Path(mkdtemp())
    task = SERVER.Process(
        target=_main, args=([str(part) for part in command], cwd, said, dict(os.environ))
    )
    task.start()
    return Copy(task, said)


def copied(*command: object, cwd: Path) -> CompletedProcess[str]:
    """Run a command in a copy of the server."""
    return start(*command, cwd=cwd).ended()


def _main(command: list[str], cwd: Path, said: Path, environment: dict[str, str]) -> None:
    """What the copy does."""
    for number, name in ((1, "out"), (2, "err")):
        with (said / name).open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["potluck", *command]
    runpy.run_module("potluck", run_name="__main__")
