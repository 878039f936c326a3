"""What happens in another process, line by line: written there, followed here."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENTS = "events.jsonl"
"""The name of such a file in a site's folder, and among what a run has besides."""


@dataclass
class Events:
    """A file of JSON lines.

    Args:
      path: where it is.
      seen: how many bytes of it were read.
    """

    path: Path
    seen: int = 0

    def note(self, **event: Any) -> None:
        """Add a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **event}) + "\n")

    def skip(self) -> None:
        """Pass over what is there already."""
        self.seen = self.path.stat().st_size if self.path.exists() else 0

    def new(self) -> Iterator[dict[str, Any]]:
        """The lines that were added since the last look; one that is half-written waits."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.seen)
            *lines, _ = file.read().split(b"\n")
        for line in lines:
            self.seen += len(line) + 1
            yield json.loads(line)
