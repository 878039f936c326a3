"""Measuring on a machine that others use too: take turns, and see how much they use."""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turn:
    """An exclusive lock on a file that others respect, given up now and then.

    Args:
      path:    the file; None where nobody else is there.
      seconds: after so many, others get a chance at the next `take`.
    """

    def __init__(self, path: Path | None, seconds: float = 180.0) -> None:
        self.seconds, self.since = seconds, -float("inf")
        self.file = None if path is None else path.open("w")

    def take(self) -> None:
        """Wait until it is our turn, unless it still is."""
        if self.file is None or time.monotonic() - self.since < self.seconds:
            return
        fcntl.flock(self.file, fcntl.LOCK_UN)
        time.sleep(1.0)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.since = time.monotonic()


class Neighbours:
    """Processes on this machine other than those with `MARK` in their environment.

    Looks once a second, so that it misses what lives for less than that.
    """

    MARK = "POTLUCK_BENCHMARK_RUN"

    def __init__(self) -> None:
        self.cores = 0.0
        self._own = {os.getpid()}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts; `cores` then says how many cores they used on average."""
        stop = threading.Event()
        before, began = self._ticks(), time.monotonic()
        seen = dict(before)

        def look() -> None:
            while not stop.wait(1.0):
                seen.update(self._ticks())

        thread = threading.Thread(target=look)
        thread.start()
        yield
        stop.set()
        thread.join()
        seen.update(self._ticks())
        used = sum(ticks - before.get(key, 0) for key, ticks in seen.items())
        self.cores = used / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)

    def _ticks(self) -> dict[tuple[int, str], int]:
        """Processor time so far of each process that is not ours, by number and start."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) in self._own:
                continue
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if self.MARK.encode() in (folder / "environ").read_bytes():
                    self._own.add(int(folder.name))
                    continue
            except OSError:  # it has ended
                continue
            found[int(folder.name), fields[19]] = int(fields[11]) + int(fields[12])
        return found
