"""How long a newcomer waits, by the README alone: the demo, two tables of their own, a report.

    python benchmarks/newcomer.py     writes benchmarks/results/newcomer.json

In a copy of this tree in a folder of its own: `make demo` with nothing set up, then the block of
"With your own tables", with tables that have two measurements and four classes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import RESULTS, store

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from test_readme_own_tables import write_table

REPOSITORY = Path(__file__).parent.parent
OWN = {"north": ("diagnosis", 60), "south": ("department", 120), "test": ("diagnosis", 80)}


def main():
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "potluck"
        copy(tree)
        seconds = {"set up (make .venv/ready)": timed(["make", ".venv/ready"], tree)}
        seconds["make demo"] = timed(["make", "demo"], tree)
        (tree / "mine").mkdir()
        for seed, (name, (label, rows)) in enumerate(OWN.items()):
            write_table(tree / "mine" / f"{name}.csv", label, rows, seed)
        seconds |= own_tables(tree)
        size = (tree / "mine" / "run" / "report.html").stat().st_size
    for command, duration in seconds.items():
        print(f"{duration:7.1f} s  {command}")
    store(RESULTS / "newcomer.json", {"seconds": seconds, "report in MB": size / 1e6})


def copy(tree):
    """What git knows of this tree, changes included."""
    files = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(files, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (REPOSITORY / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, tree / name)


def own_tables(tree):
    """The README's block as it is, and how long each of its commands takes."""
    readme = (tree / "README.md").read_text()
    (block,) = re.findall(r"```bash\n(mkdir.*?)```", readme, re.DOTALL)
    commands = re.findall(r"^\.\./\.venv/bin/(potluck [^#\n]*?)\s*(?:#.*)?$", block, re.MULTILINE)
    script = re.sub(r"^(\.\./\.venv)", r"time \1", block, flags=re.MULTILINE)
    ran = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tree,
        env={**os.environ, "TIMEFORMAT": "took %R"},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    took = map(float, re.findall(r"^took ([\d.]+)$", ran.stderr, re.MULTILINE))
    return dict(zip(commands, took, strict=True))


def timed(command, folder):
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
