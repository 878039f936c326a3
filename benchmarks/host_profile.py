"""Where a round's time goes outside the local steps: pfl's CIFAR-10 shape on the processor.

    python benchmarks/host_profile.py [--model mlp] [--engine stacked] [--compile] [--rounds 5]

1000 users of 50 samples, 50 of them a round, batches of 10. Prints milliseconds per round of the
parts of a round (with all that they call), and the functions that take most time themselves.
"""

import argparse
import cProfile
import pstats
import time

import torch
from models import MODELS
from record import table

import potluck as pl
from potluck.engines import ENGINES, start
from potluck.engines.rounds import one_round
from potluck.models import as_classifier
from potluck.models.network import Network

PARTS = (
    "one_round",
    "open_round",
    "make_ready",
    "stream",
    "of",
    "plan",
    "batches",
    "alike",
    "signature",
    "train",
    "_laid_out",
    "_advance",
    "_odd_step",
    "shares",
    "finish",
    "close_round",
    "check_update",
    "add",
    "part",
    "contributions",
    "arrival",
    "size_in_bytes",
)
"""Functions of Potluck, by name."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Where a round's time goes")
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--engine", choices=ENGINES, default="stacked")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shape, generator = (3, 32, 32), torch.Generator().manual_seed(0)
    view = pl.exact(pl.LabelSpace.numbered(10))
    sites = [
        pl.Site.of(
            f"user {number}",
            torch.rand(50, *shape, generator=generator),
            view,
            torch.randint(0, 10, (50,), generator=generator),
        )
        for number in range(arguments.users)
    ]
    federation = pl.Federation.of(sites)
    recipe = pl.Recipe(rounds=1000, cohort=50, local=pl.LocalTraining(lr=0.05, batch_size=10))
    network = Network(as_classifier(MODELS[arguments.model](shape)))
    options = {"compile": True} if arguments.compile else {}
    engine = ENGINES[arguments.engine](**options)
    state = start(network, recipe, federation, torch.device("cpu"))
    for _ in range(2):
        state, _ = one_round(network, recipe, federation, engine, state)
    began = time.perf_counter()
    for _ in range(arguments.rounds):
        state, _ = one_round(network, recipe, federation, engine, state)
    plain = (time.perf_counter() - began) / arguments.rounds
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(arguments.rounds):
        state, _ = one_round(network, recipe, federation, engine, state)
    profile.disable()
    print(f"{1000 * plain:.1f} ms per round without the profiler; with it:")
    show(pstats.Stats(profile), arguments.rounds)


def show(stats: pstats.Stats, rounds: int) -> None:
    own, whole = [], []
    for (path, line, name), (_, calls, itself, total, _) in stats.stats.items():
        where = f"{path.rpartition('/')[2]}:{line} {name}"
        own.append((itself, calls, where))
        if "potluck/" in path and name in PARTS:
            whole.append((total, calls, where))
    for title, rows in (("with all it calls", whole), ("itself", own)):
        lines = [["function", f"ms per round, {title}", "calls per round"]]
        for seconds, calls, where in sorted(rows, reverse=True)[:25]:
            lines.append([where, f"{1000 * seconds / rounds:.2f}", f"{calls / rounds:.0f}"])
        print("\n" + table(lines))


if __name__ == "__main__":
    main()
