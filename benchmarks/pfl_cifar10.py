"""B5: pfl-research's own CIFAR-10 benchmark, end to end, on Potluck and on pfl, on one card.

    python benchmarks/pfl_cifar10.py OUT.json [--rounds 1500] [--pfl-rounds 1500]
        [--pfl-path FOLDER] [--engines auto ...] [--device cuda]

1000 users of 50 images of 3×32×32, 50 of them a round, one epoch of batches of 10 at learning
rate 0.1, the simple CNN with dropout, the 10,000 test images every 10 rounds. Images are patterns
under noise in CIFAR-10's shape, already normalised and on the device for both. pfl may run fewer
rounds; it is then compared per round. Each tool is a process of its own; its time is counted from
the start of the process, imports and compiling included.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from problem import Data, Problem
from record import store, table

PROBLEM = Problem("pfl_cnn", (3, 32, 32), 1000, 50, cohort=50, batch=10, lr=0.1)
EVALUATE_EVERY = 10
ENGINES = {
    "auto": ("auto", {}),
    "sequential": ("sequential", {}),
    "stacked": ("stacked", {"group": 50}),
    "stacked-compiled": ("stacked", {"group": 50, "compile": True}),
    "graphed-1x50": ("graphed", {"streams": 1, "group": 50}),
    "graphed-5x10": ("graphed", {"streams": 5, "group": 10}),
    "graphed-10x5": ("graphed", {"streams": 10, "group": 5}),
    "graphed-1x50-tf32": ("graphed", {"streams": 1, "group": 50, "precision": "tf32"}),
    "graphed-1x50-bfloat16": ("graphed", {"streams": 1, "group": 50, "precision": "bfloat16"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="B5")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--pfl-rounds", type=int, help="0 leaves pfl out; as many by default")
    parser.add_argument("--pfl-path", type=Path, help="a folder to import pfl from")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["auto"])
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    PROBLEM.data()
    pfl_rounds = arguments.rounds if arguments.pfl_rounds is None else arguments.pfl_rounds
    runs = {"pfl": pfl_rounds, **dict.fromkeys(arguments.engines, arguments.rounds)}
    results: dict[str, dict] = {}
    for tool, rounds in runs.items():
        if rounds:
            results[tool] = run(tool, rounds, arguments.device, arguments.pfl_path)
            print(tool, {key: value for key, value in results[tool].items() if key != "rounds"})
            for row in results.values():
                row["whole run s"] = projected(row, arguments.rounds)
            store(arguments.out, results, seeds=[PROBLEM.seed])
    print(shown(results, arguments.rounds))


def run(tool: str, rounds: int, device: str, pfl_path: Path | None) -> dict:
    """One tool's whole run, in a process of its own."""
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    if pfl_path and tool == "pfl":
        folders.insert(0, str(pfl_path.resolve()))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "PFL_PYTORCH_DEVICE": device,
    }
    words = [sys.executable, __file__, "--worker", tool, str(rounds), device, str(time.time())]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return {"error": f"ended with {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def work(tool: str, rounds: int, device: str, began: float) -> None:
    """The process of one tool; prints its result as JSON."""
    problem = replace(PROBLEM, rounds=rounds, warm_up=0)
    data = Data(**{name: value.to(device) for name, value in vars(problem.data()).items()})
    ends: list[float] = []

    def tick() -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        ends.append(time.time())

    train = _pfl if tool == "pfl" else _potluck
    accuracy, remarks = train(tool, problem, data, tick, device)
    seconds = [end - start for start, end in zip([began, *ends], ends, strict=False)]
    later = seconds[min(EVALUATE_EVERY, rounds - 1) :]
    print(
        json.dumps(
            {
                "rounds run": rounds,
                "measured s": ends[-1] - began,
                "first round ends after s": seconds[0],
                "s/round": sum(later) / len(later),
                "median s/round": median(later),
                "accuracy": accuracy,
                "remarks": remarks,
            }
        )
    )


def _pfl(tool, problem, data, tick, device):
    from peers.pfl_research import simulate

    model = problem.network().to(device)
    simulate(model, data, problem, tick, EVALUATE_EVERY)
    return data.accuracy(model), []


def _potluck(tool, problem, data, tick, device):
    import potluck as pl
    from potluck.engines import ENGINES as KINDS
    from potluck.engines import run as run_rounds
    from potluck.engines import start
    from potluck.models import as_classifier
    from potluck.models.network import Network

    view = pl.exact(pl.LabelSpace.numbered(10))
    sites = [
        pl.Site.of(f"user {number}", inputs, view, classes)
        for number, (inputs, classes) in enumerate(zip(data.inputs, data.classes, strict=True))
    ]
    federation = pl.Federation.of(sites, test=(data.test_inputs, data.test_classes))
    recipe = pl.Recipe(
        rounds=problem.rounds,
        seed=problem.seed,
        cohort=problem.cohort,
        local=pl.LocalTraining(lr=problem.lr, batch_size=problem.batch),
    )
    recipe.check(federation)
    name, options = ENGINES[tool]
    engine = KINDS[name](**options)
    network = Network(as_classifier(problem.network()))
    place = torch.device(device)
    federation = federation.to(place)
    state = start(network, recipe, federation, place)
    state = run_rounds(
        network, recipe, federation, engine, state, lambda *_: tick(), EVALUATE_EVERY
    )
    model = network.module(state.theta, state.buffers).to(place)
    return data.accuracy(model), list(getattr(engine, "remarks", []))


def projected(row: dict, rounds: int) -> float | None:
    """Seconds of a run of so many rounds: measured, and beyond that at the usual pace."""
    if "error" in row:
        return None
    return row["measured s"] + (rounds - row["rounds run"]) * row["s/round"]


def shown(results: dict[str, dict], rounds: int) -> str:
    lines = [["tool", "ms/round", f"{rounds} rounds", "run", "first round ends", "accuracy", "×"]]
    base = results.get("pfl", {}).get("whole run s")
    for tool, row in results.items():
        if "error" in row:
            lines.append([tool, row["error"], "", "", "", "", ""])
            continue
        lines.append(
            [
                tool,
                f"{1000 * row['s/round']:.1f}",
                f"{row['whole run s']:.1f} s",
                str(row["rounds run"]),
                f"{row['first round ends after s']:.1f} s",
                f"{row['accuracy']:.3f}",
                f"{base / row['whole run s']:.2f}" if base else "",
            ]
        )
    return table(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
    else:
        main()
