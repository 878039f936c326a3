"""B6: a round of each paper's method, on each engine, against the eager loop of the same method.

    python benchmarks/method_rounds.py OUT.json [--device cpu|cuda] [--quick] [--models NAME ...]
        [--methods NAME ...]

`sequential` is that loop: one site after another, operation by operation. Rounds are whole ones,
with plans, the server's own training and central tuning. Confidence thresholds are 0, so that
every site trains on all of its samples and every engine has the same work.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
from models import MODELS
from record import spread, store, table

import potluck as pl
from potluck.data.makers import bags as bag_makers
from potluck.data.makers import candidates as candidate_makers
from potluck.data.makers import coarse as coarse_makers
from potluck.data.makers import noise
from potluck.engines import ENGINES, Engine, start
from potluck.engines.rounds import one_round
from potluck.methods import FedMT, FedPLLLAAR, FedUL, LabelProjection, Likelihood, Method, Tuning
from potluck.models import as_classifier, build
from potluck.models.network import Network
from potluck.streams import stream

SEED = 0
SPACE = pl.LabelSpace.numbered(10)


@dataclass(frozen=True)
class Size:
    """Of the federation.

    Args:
      shape:   (C, H, W) of an image.
      sites:   how many.
      samples: each has.
      server:  samples of the server, where a method needs some.
      batch:   samples per step.
    """

    shape: tuple[int, int, int]
    sites: int
    samples: int
    server: int
    batch: int


SIZES = {
    ("cpu", "mlp"): Size((1, 28, 28), 10, 400, 100, 20),
    ("cpu", "cnn_s"): Size((1, 28, 28), 10, 200, 100, 20),
    ("cuda", "cnn_s"): Size((3, 32, 32), 10, 2560, 256, 128),
    ("cuda", "resnet18"): Size((3, 32, 32), 10, 2560, 256, 128),
}

ON: dict[str, dict[str, Callable[[], Engine]]] = {
    "cpu": {
        "sequential": lambda: ENGINES["sequential"](),
        "stacked": lambda: ENGINES["stacked"](),
        "stacked, compiled": lambda: ENGINES["stacked"](compile=True),
    },
    "cuda": {
        "sequential": lambda: ENGINES["sequential"](),
        "graphed": lambda: ENGINES["graphed"](),
        "graphed, tf32": lambda: ENGINES["graphed"](precision="tf32"),
        "graphed, bfloat16": lambda: ENGINES["graphed"](precision="bfloat16"),
    },
}
if "auto" in ENGINES:
    ON["cpu"]["auto"] = ON["cuda"]["auto"] = lambda: ENGINES["auto"]()


def coarse_labels(size: Size) -> pl.Federation:
    """Pairs of classes at the sites, exact labels at the server."""
    pairs = {f"{k} or {k + 1}": [str(k), str(k + 1)] for k in range(0, 10, 2)}
    view, generator = pl.coarse(SPACE, pairs), stream(SEED, "coarse")
    sites = [
        pl.Site.of(name, x, view, coarse_makers.coarsen(y, view.codebook, generator), y)
        for name, x, y in people(size)
    ]
    return pl.Federation.of(sites, server=server(size, pl.exact(SPACE)))


def bags(size: Size) -> pl.Federation:
    """Twelve sets of known proportions at each site."""
    generator, sites = stream(SEED, "bags"), []
    for name, x, y in people(size):
        made = bag_makers.make_bags(y, bag_makers.draw_priors(12, 10, generator), generator)
        view = pl.bags(SPACE, made.priors, sizes=made.sizes, minimum_rank=1, maximum_condition=1e9)
        sites.append(pl.Site.of(name, x[made.index], view, made.bag, y[made.index]))
    return pl.Federation.of(sites)


def candidates(size: Size) -> pl.Federation:
    """The class among others, each with probability 0.3."""
    generator, sites = stream(SEED, "candidates"), []
    for name, x, y in people(size):
        mask = candidate_makers.uniform(y, 10, 0.3, generator)
        sites.append(pl.Site.of(name, x, pl.candidates(SPACE, mask), mask, y))
    return pl.Federation.of(sites)


def private_subsets(size: Size) -> pl.Federation:
    """Five of the classes at each site, in secret; unlabelled samples at the server."""
    sites = []
    for number, (name, x, y) in enumerate(people(size)):
        own = [(number + k) % 10 for k in range(5)]
        view = pl.private_subset(SPACE, [SPACE.names[k] for k in own])
        labels = [SPACE.names[own[k]] for k in (y % 5).tolist()]
        sites.append(pl.Site.of(name, x, view, labels))
    return pl.Federation.of(sites, server=server(size, pl.unlabeled(SPACE)))


def noisy_labels(size: Size) -> pl.Federation:
    """Classes of which 40 % are wrong, at known rates."""
    transition, generator = noise.symmetric(10, 0.4), stream(SEED, "noise")
    view = pl.noisy(SPACE, transition)
    sites = [
        pl.Site.of(name, x, view, noise.flip(y, transition, generator), y)
        for name, x, y in people(size)
    ]
    return pl.Federation.of(sites)


METHODS: dict[str, tuple[Method, Callable[[Size], pl.Federation]]] = {
    "FedMT T": (FedMT(tau=0.0, correspondence="known"), coarse_labels),
    "FedMT E": (FedMT(tau=0.0, correspondence="estimated"), coarse_labels),
    "FedUL": (FedUL(), bags),
    "FedPLL-LAAR": (FedPLLLAAR(), candidates),
    "private subsets, tuning": (Tuning(), private_subsets),
    "FedMT 2023 P": (Likelihood(), noisy_labels),
    "FedMT 2023 L": (LabelProjection(), noisy_labels),
}


def people(size: Size) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """Each site's name, images and classes."""
    generator = stream(SEED, "people")
    return [
        (f"site {number}", *_images(size.samples, size.shape, generator))
        for number in range(size.sites)
    ]


def server(size: Size, view: pl.LabelView) -> pl.Site:
    x, y = _images(size.server, size.shape, stream(SEED, "server"))
    return pl.Site.of("server", x, view, y if view.kind == "exact" else None)


def _images(
    count: int, shape: tuple[int, int, int], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    return x, torch.randint(0, 10, (count,), generator=generator)


def classifier(model: str, size: Size) -> torch.nn.Module:
    torch.manual_seed(SEED)
    if model == "resnet18":
        return build("resnet18", size.shape, 10, stem="7x7")
    return as_classifier(MODELS[model](size.shape))


def measure(
    method: Method, federation: pl.Federation, model: str, size: Size, device: str, repeats: int
) -> dict[str, dict]:
    """Seconds of a round on each engine; repeats go round the engines."""
    place = torch.device(device)
    federation = federation.to(place)
    local = pl.LocalTraining(lr=0.01, batch_size=size.batch, optimiser=pl.SGD(momentum=0.9))
    recipe = pl.Recipe(rounds=1000, method=method, local=local)
    recipe.check(federation)
    network = Network(classifier(model, size))
    engines = {label: make() for label, make in ON[device].items()}
    states = {label: start(network, recipe, federation, place) for label in engines}
    rows: dict[str, dict] = {}

    def round_on(label: str) -> float:
        began = time.perf_counter()
        states[label], record = one_round(
            network, recipe, federation, engines[label], states[label]
        )
        if device == "cuda":
            torch.cuda.synchronize()
        assert not record["sat_out"], record["sat_out"]
        return time.perf_counter() - began

    for label in engines:
        try:
            rows[label] = {"first round s": round_on(label)}
            round_on(label)
        except RuntimeError as error:  # one engine's failure is a result, not the end
            rows[label] = {"error": str(error)[:500]}
    times: dict[str, list[float]] = {label: [] for label, row in rows.items() if "error" not in row}
    for _ in range(repeats):
        for label, taken in times.items():
            taken.append(round_on(label))
    base = median(times["sequential"])
    for label, taken in times.items():
        rows[label]["s/round"] = spread(taken)
        rows[label]["ratio"] = base / median(taken)
        rows[label]["remarks"] = list(getattr(engines[label], "remarks", []))
    return rows


def shown(results: dict[str, dict[str, dict]], device: str) -> str:
    labels = list(ON[device])
    lines = [["method", *labels]]
    for name, rows in results.items():
        cells = [
            f"{row['s/round']['median']:.4f} s ({row['ratio']:.2f}×)" if "ratio" in row else "error"
            for row in (rows[label] for label in labels)
        ]
        lines.append([name, *cells])
    return table(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="B6")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=ON, default="cpu")
    parser.add_argument("--quick", action="store_true", help="few samples, one repeat")
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    results: dict[str, dict] = {}
    for (device, model), size in SIZES.items():
        if device != arguments.device or (arguments.models and model not in arguments.models):
            continue
        if arguments.quick:
            size = replace(size, samples=3 * size.batch, server=size.batch)
        results[model] = {}
        for name in arguments.methods:
            method, make = METHODS[name]
            rows = measure(
                method, make(size), model, size, device, 1 if arguments.quick else arguments.repeats
            )
            results[model][name] = rows
            for label, row in rows.items():
                notes = " ".join(row.get("remarks", [])) + row.get("error", "")
                if notes:
                    print(f"{name}, {label}: {notes}")
            store(arguments.out, results, seeds=[SEED], device=device)
        print(f"\nB6 {model} on {device}: {size}")
        print(shown(results[model], device), flush=True)


if __name__ == "__main__":
    main()
