"""B1 and B2: Potluck against other tools on the processor, in one run.

    python benchmarks/cpu_peers.py B1|B2|B2-models [--quick] [--repeats 3] [--tools NAME ...]

Every run of a tool is a process of its own; repeats go round the tools, so that a slow minute of
the machine meets all of them. Prints seconds per round (median over rounds, then over repeats),
steps per second, what start and stop cost, how long the planned study would take with them, and
how many times as long as with Potluck's `auto` engine.
Needs the environment of benchmarks/README.md.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from peers import HAND_WRITTEN, TOOLS
from problem import Problem
from quiet import Neighbours, Turn
from record import RESULTS, spread, store, table

HERE = Path(__file__).parent
MNIST, CIFAR = (1, 28, 28), (3, 32, 32)

BENCHMARKS: dict[str, list[Problem]] = {
    # pfl-research's own CIFAR-10 benchmark: 1000 users of 50 images, batches of 10.
    "B1": [
        Problem("pfl_cnn", CIFAR, 1000, 50, cohort=50, batch=10, planned=1500, rounds=4),
        Problem("mlp", CIFAR, 1000, 50, cohort=50, batch=10, planned=1500, rounds=8),
    ],
    "B2": [
        Problem("mlp", MNIST, 10, 1000, cohort=10, batch=32, planned=200, rounds=10),
        Problem("lenet5", MNIST, 10, 1000, cohort=10, batch=32, planned=200, rounds=6),
    ],
    "B2-models": [
        Problem("mlp", MNIST, 100, 100, cohort=10, batch=20, planned=1000, rounds=20),
        Problem("cnn_s", MNIST, 100, 100, cohort=10, batch=20, planned=1000, rounds=10),
        Problem("cnn_l", MNIST, 100, 100, cohort=10, batch=20, planned=1000, rounds=6),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description="B1 and B2")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--quick", action="store_true", help="two rounds, one repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--models", nargs="+", help="only these of the benchmark's models")
    parser.add_argument("--lock", type=Path, help="a file to lock while measuring")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results, turn = {}, Turn(arguments.lock)
    for problem in BENCHMARKS[arguments.benchmark]:
        if arguments.models and problem.model not in arguments.models:
            continue
        if arguments.quick:
            problem = replace(problem, rounds=2)
        problem.data()  # made before the first tool needs it
        repeats = 1 if arguments.quick else arguments.repeats
        runs: dict[str, list[dict]] = {tool: [] for tool in arguments.tools}
        for _ in range(repeats):
            for tool in arguments.tools:
                turn.take()
                runs[tool].append(run(tool, problem))
        rows = {tool: summary(problem, done) for tool, done in runs.items()}
        results[problem.model] = {"problem": asdict(problem), "tools": rows}
        print(f"\n{arguments.benchmark} {problem.model}: {problem.steps} steps a round")
        print(shown(rows), flush=True)
        name = f"{arguments.benchmark.lower().replace('-', '_')}_cpu.json"
        store(arguments.out or RESULTS / name, results, seeds=[problem.seed])


def run(tool: str, problem: Problem) -> dict:
    """One run of a tool; or how it failed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        "PYTHONWARNINGS": "ignore",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        Neighbours.MARK: "yes",
    }
    environment.pop("OMP_NUM_THREADS", None)  # each tool sets its own threads
    began = time.time()
    command = [sys.executable, "-m", "peers", tool, json.dumps(asdict(problem)), str(began)]
    neighbours = Neighbours()
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=HERE,
        ) as process,
        neighbours.watched(),
    ):
        out, errors = process.communicate()
    lines = out.strip().splitlines()
    if process.returncode or not lines:
        print(f"{tool} failed:\n{errors[-3000:]}", file=sys.stderr)
        return {"error": errors.strip()[-500:]}
    done = json.loads(lines[-1])
    whole = time.time() - began
    usual = median(done["rounds"])
    done |= {"s/round": usual, "besides rounds": whole - usual * problem.all_rounds}
    done["neighbours"] = neighbours.cores
    print(
        f"  {tool:26} {usual:8.4f} s/round  {done['besides rounds']:6.1f} s besides  "
        f"accuracy {done['accuracy']:.3f}  neighbours {neighbours.cores:.2f} cores",
        flush=True,
    )
    return done


def summary(problem: Problem, runs: list[dict]) -> dict:
    """What the repeats of a tool say together."""
    good = [run for run in runs if "error" not in run]
    if not good:
        return {"error": runs[-1]["error"]}
    taken = spread([run["s/round"] for run in good])
    besides = median(run["besides rounds"] for run in good)
    return {
        "s/round": taken,
        "steps/s": problem.steps / taken["median"],
        "besides rounds s": besides,
        "planned study s": besides + problem.planned * taken["median"],
        "until counted s": median(run["until counted"] for run in good),
        "accuracy": median(run["accuracy"] for run in good),
        "neighbours": max(run["neighbours"] for run in good),
        "runs": good,
    }


def shown(rows: dict[str, dict]) -> str:
    """The table, with times as multiples of those of Potluck's `auto`."""
    good = {tool: row for tool, row in rows.items() if "error" not in row}
    ours = good.get("Potluck auto")
    lines = [["tool", "s/round", "[min–max]", "steps/s", "× auto", "besides", "planned study", "×"]]
    for tool, row in good.items():
        taken = row["s/round"]
        if ours:
            row["ratio"] = taken["median"] / ours["s/round"]["median"]
            row["ratio of planned study"] = row["planned study s"] / ours["planned study s"]
        lines.append(
            [
                f"{tool} *" if tool in HAND_WRITTEN else tool,
                f"{taken['median']:.4f}",
                f"[{taken['min']:.4f}–{taken['max']:.4f}]",
                f"{row['steps/s']:,.0f}",
                f"{row['ratio']:.2f}" if ours else "",
                f"{row['besides rounds s']:.1f} s",
                f"{row['planned study s']:.0f} s",
                f"{row['ratio of planned study']:.2f}" if ours else "",
            ]
        )
    failed = [f"{tool}: {row['error'][:200]}" for tool, row in rows.items() if "error" in row]
    remarks = {remark for row in good.values() for run in row["runs"] for remark in run["remarks"]}
    return "\n".join([table(lines), "* written by hand", *sorted(remarks), *failed])


if __name__ == "__main__":
    main()
