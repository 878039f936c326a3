"""How long `potluck report` takes, and how large it is, for 200 rounds, 80 sites and 100 classes.

    python benchmarks/report.py     writes benchmarks/results/report.json

The time is that of the whole command in a process of its own; the budget is 5 s and 5 MB.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from quiet import Neighbours
from record import RESULTS, spread, store

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "report"))

from synthetic_runs import synthetic_run

SIZE = {"rounds": 200, "sites": 80, "classes": 100}
TIMES = 7


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        run = synthetic_run(Path(place) / "run", **SIZE)
        report(run.path)  # the first one finds files that are not yet in memory
        neighbours = Neighbours()
        with neighbours.watched():
            measured = [report(run.path) for _ in range(TIMES)]
        size = (run.path / "report.html").stat().st_size
    wall, busy = (spread(column) for column in zip(*measured, strict=True))
    print(f"{wall['median']:.1f} s ({busy['median']:.1f} s of one core), {size / 1e6:.2f} MB")
    results = {"seconds": wall, "CPU seconds": busy, "MB": size / 1e6}
    others = round(neighbours.cores, 2)
    store(RESULTS / "report.json", results, cores_used_by_others=others, times=TIMES, **SIZE)


def report(run: Path) -> tuple[float, float]:
    """Seconds, and those of the processor, of one report."""
    began, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", "potluck", "report", str(run)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", Neighbours.MARK: "1"}
    subprocess.run(command, env=variables, check=True)
    wall, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system
    return wall, used - before.children_user - before.children_system


if __name__ == "__main__":
    main()
