"""How long `potluck report` takes, and how large it is, for 200 rounds, 80 sites and 100 classes.

    .venv/bin/python benchmarks/report.py

The time is that of the whole command in a process of its own; the budget is 5 s and 5 MB.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "report"))

from synthetic_runs import synthetic_run


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        run = synthetic_run(Path(place) / "run", rounds=200, sites=80, classes=100)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "potluck.cli", "report", str(run.path)], check=True)
        seconds = time.perf_counter() - began
        size = (run.path / "report.html").stat().st_size
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime
    print(f"{seconds:.1f} s ({busy:.1f} s of one core), {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
