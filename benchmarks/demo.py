"""The demonstration over more seeds than it shows, stored with what made it.

python benchmarks/demo.py [SEEDS]     writes benchmarks/results/demo.json
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

import torch

from potluck.demo import run_demo

RESULTS = Path(__file__).parent / "results" / "demo.json"


def main():
    seeds = tuple(range(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
    outcome = run_demo(lambda: print(".", end="", flush=True), seeds)
    print()
    rows = {}
    for row in (*outcome.alone, outcome.together, outcome.supervised):
        rows[row.name] = {
            "labels": row.labels,
            "mean": row.mean,
            "sd": row.deviation,
            "accuracies": row.accuracies,
        }
        print(f"{row.name:18} {row.labels:28} {100 * row.mean:5.1f} ± {100 * row.deviation:.1f} %")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    facts = {
        "command": "python " + " ".join(["benchmarks/demo.py", *sys.argv[1:]]),
        "commit": commit,
        "seeds": seeds,
        "hardware": f"{platform.machine()}, {torch.get_num_threads()} threads, CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "accuracy": rows,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
