"""Run what a page of the documentation shows, as its reader would.

Fenced blocks mean:

    {code-block} LANGUAGE with a :caption:   a file of that name, written into the reader's folder
    bash                                     commands, run one after another; each must succeed
    python                                   code, run in one namespace for the whole page
    text right after bash or python          what that printed; … stands for anything
    toml, json                               a part of a file: it must parse

`potluck` commands run in this process: starting a new one for each would take most of the time.
"""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from potluck.cli import main

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"

FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is (or None), its text, and where it is."""

    language: str
    file: str | None
    text: str
    line: int
    follows: bool
    """Whether only prose of one line or less lies between it and the block before."""


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    source, end = page.read_text(encoding="utf-8"), 0
    for found in FENCE.finditer(source):
        info, body = found["info"].strip(), found["body"]
        line = source.count("\n", 0, found.start()) + 1
        follows = not source[end : found.start()].strip()
        end = found.end()
        file = None
        if info.startswith("{code-block}"):
            info = info.removeprefix("{code-block}").strip()
            options = re.match(r"((?::\w+:.*\n)+)\n?", body)
            if options:
                caption = re.search(r":caption: (.*)", options[1])
                file = caption[1].strip() if caption else None
                body = body[options.end() :]
        yield Block(info, file, body, line, follows)


def commands(text: str) -> Iterator[str]:
    """The commands of a bash block, without comments; a backslash joins lines."""
    for line in text.replace("\\\n", " ").splitlines():
        if shlex.split(line, comments=True):
            yield line


@dataclass
class Reader:
    """Somebody who follows a page in a folder of their own."""

    folder: Path
    page: Path

    def __post_init__(self) -> None:
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        self._printed = ""

    def follow(self) -> None:
        """Do what each block says."""
        acts: dict[str, Callable[[Block], None]] = {"bash": self._bash, "python": self._python}
        for block in blocks(self.page):
            where = f"{self.page.relative_to(REPOSITORY)}, line {block.line}"
            try:
                if block.file is not None:
                    target = self.folder / block.file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_text(block.text, encoding="utf-8")
                elif block.language in acts:
                    self._printed = ""
                    acts[block.language](block)
                elif block.language == "text" and block.follows:
                    compare(block.text, self._printed)
                elif block.language == "toml":
                    tomllib.loads(block.text)
                elif block.language == "json":
                    json.loads(block.text)
            except (Exception, SystemExit) as error:
                raise AssertionError(f"{where}: {error}\n{self._printed}") from error

    def _bash(self, block: Block) -> None:
        for command in commands(block.text):
            words = shlex.split(command, comments=True)
            self._printed += self._potluck(words) if words[0] == "potluck" else self._shell(command)

    def _potluck(self, words: list[str]) -> str:
        printed = StringIO()
        with patch.object(sys, "argv", words), redirect_stdout(printed), redirect_stderr(printed):
            try:
                main()
            except SystemExit as leaving:
                if leaving.code:
                    raise AssertionError(f"{' '.join(words)}\n{printed.getvalue()}") from None
        return printed.getvalue()

    def _shell(self, command: str) -> str:
        bin_folder = Path(sys.executable).parent
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'PATH="{bin_folder}:$PATH"; {command}'],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _python(self, block: Block) -> None:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(block.text, str(self.page), "exec"), self._namespace)
        self._printed = printed.getvalue()


def compare(shown: str, printed: str) -> None:
    """Every line that is shown was printed, in that order; … stands for anything."""
    rest = [" ".join(line.split()) for line in printed.splitlines()]
    for line in filter(None, (" ".join(line.split()) for line in shown.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, re.split(" ?… ?", line))))
        matches = [i for i, candidate in enumerate(rest) if pattern.fullmatch(candidate)]
        if line == "…":
            continue
        assert matches, f"shown but not printed: {line!r}; printed:\n{printed}"
        rest = rest[matches[0] + 1 :]
