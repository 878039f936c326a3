"""B7: from 10 to 1000 sites with the same samples altogether: cost of a local step, and memory.

    python benchmarks/scaling.py OUT.json [--device cpu|cuda] [--quick] [--engines NAME ...]

All sites take part in every round, so that a round is the same number of local steps however many
sites share the samples. Each point is a process of its own. Memory is what the process holds at
its peak beyond what it held once its data was made (resident on the processor, allocated on a
GPU).
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch
from models import lenet5, mlp
from record import store, table

SITES = (10, 30, 100, 300, 1000)
BATCH = 10
ENGINES = {
    "cpu": {
        "sequential": ("sequential", {}),
        "stacked": ("stacked", {}),
        "stacked-compiled": ("stacked", {"compile": True}),
        "auto": ("auto", {}),
    },
    "cuda": {
        "sequential": ("sequential", {}),
        "graphed-10x1": ("graphed", {"streams": 10}),
        "graphed-4x25": ("graphed", {"streams": 4, "group": 25}),
        "auto": ("auto", {}),
    },
}
MODELS = {"mlp": mlp, "lenet5": lenet5}
SHAPE = (1, 28, 28)


def main() -> None:
    parser = argparse.ArgumentParser(description="B7")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=ENGINES, default="cpu")
    parser.add_argument("--samples", type=int, default=20_000, help="of all sites together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="2,000 samples, one round, 10 to 100")
    parser.add_argument("--engines", nargs="+", help="only these")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    samples, rounds = (2_000, 1) if arguments.quick else (arguments.samples, arguments.rounds)
    counts = [count for count in SITES if not arguments.quick or count <= 100]
    results: dict[str, dict] = {}
    for model in arguments.models:
        for engine in arguments.engines or ENGINES[arguments.device]:
            name = f"{model}, {engine}"
            results[name] = {}
            for count in counts:
                job = [model, engine, arguments.device, str(count), str(samples), str(rounds)]
                done = subprocess.run(
                    [sys.executable, __file__, "--point", *job], stdout=subprocess.PIPE, text=True
                )
                results[name][count] = (
                    {"error": f"ended with {done.returncode}"}
                    if done.returncode
                    else json.loads(done.stdout.strip().splitlines()[-1])
                )
                print(name, count, results[name][count], flush=True)
            store(arguments.out, results, seeds=[0], device=arguments.device, samples=samples)
    print(shown(results, counts))


def point(model: str, engine: str, device: str, count: int, samples: int, rounds: int) -> dict:
    """One process's measurement."""
    import potluck as pl
    from potluck.engines import ENGINES as KINDS
    from potluck.engines import start
    from potluck.engines.rounds import one_round
    from potluck.models import as_classifier
    from potluck.models.network import Network

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (samples, *SHAPE), dtype=torch.uint8, generator=generator)
    classes = torch.randint(0, 10, (samples,), generator=generator)
    view, own = pl.exact(pl.LabelSpace.numbered(10)), samples // count
    sites = [
        pl.Site.of(f"site {n}", inputs[n * own : (n + 1) * own], view, classes[n * own :][:own])
        for n in range(count)
    ]
    federation = pl.Federation.of(sites).to(torch.device(device))
    recipe = pl.Recipe(rounds=1000, local=pl.LocalTraining(lr=0.01, batch_size=BATCH))
    recipe.check(federation)
    torch.manual_seed(0)
    network = Network(as_classifier(MODELS[model](SHAPE)))
    name, options = ENGINES[device][engine]
    runner = KINDS[name](**options)
    state = start(network, recipe, federation, torch.device(device))
    before = _memory(device)
    taken = []
    for _ in range(2 + rounds):  # two to warm up
        began = time.perf_counter()
        state, _ = one_round(network, recipe, federation, runner, state)
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    steps = count * -(-own // BATCH)
    return {
        "us/step": 1e6 * median(taken[2:]) / steps,
        "s/round": median(taken[2:]),
        "first round s": taken[0],
        "steps": steps,
        "memory MB": (_memory(device) - before) / 1e6,
        "memory before MB": before / 1e6,
        "remarks": list(getattr(runner, "remarks", [])),
    }


def _memory(device: str) -> int:
    """Bytes at the peak so far."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shown(results: dict[str, dict], counts: list[int]) -> str:
    head = [f"{count} sites" for count in counts]
    lines = [["µs per step (and MB)", *head, "last ÷ first"]]
    for name, row in results.items():
        cells = [
            f"{row[count]['us/step']:.0f} ({row[count]['memory MB']:.0f})"
            if "error" not in row[count]
            else "error"
            for count in counts
        ]
        ends = row[counts[0]], row[counts[-1]]
        whole = not any("error" in end for end in ends)
        ratio = f"{ends[1]['us/step'] / ends[0]['us/step']:.2f}" if whole else ""
        lines.append([name, *cells, ratio])
    return table(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--point"]:
        first, second, third, *numbers = sys.argv[2:]
        print(json.dumps(point(first, second, third, *map(int, numbers))))
    else:
        main()
