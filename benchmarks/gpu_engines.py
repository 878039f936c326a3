"""B3 and B4: engines on one GPU against a plain eager loop, in one run.

    python benchmarks/gpu_engines.py OUT.json [--quick] [--only B3] [--engines NAME ...]

Prints and stores images per second of a FedAvg round (median over repeats, engine by engine
within each), the seconds of the first round (compiling and capturing), how far each engine is
from the sequential reference in float64, and for B3 what share of the card's measured bfloat16
matrix-product peak is used.
"""

import argparse
import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
from models import lenet5
from record import spread, store
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

import potluck as pl
from potluck.engines import ENGINES, Engine, Graphed, Sequential, Stacked, run, start
from potluck.engines.rounds import one_round
from potluck.models import as_classifier, build
from potluck.models.network import Network

DEVICE = torch.device("cuda")
SEED = 0
LOCAL = pl.LocalTraining(lr=0.01, optimiser=pl.SGD(momentum=0.9))

Engines = dict[str, Callable[[], Engine]]


@dataclass(frozen=True)
class Case:
    """One row group of the table.

    Args:
      name:    of the case.
      model:   makes the classifier.
      shape:   of an image.
      sites:   how many.
      samples: each has.
      batch:   samples per step.
      engines: makes each engine.
      eager:   precisions of the eager loop.
    """

    name: str
    model: Callable[[], nn.Module]
    shape: tuple[int, int, int]
    sites: int
    samples: int
    batch: int
    engines: Engines
    eager: tuple[str, ...]


def cases(quick: bool) -> list[Case]:
    mnist, cifar = (1, 28, 28), (3, 32, 32)
    precisions = ("float32", "tf32", "bfloat16")
    auto: Engines = {"auto": ENGINES["auto"]} if "auto" in ENGINES else {}
    b4: Engines = {
        "sequential": Sequential,
        "stacked": lambda: Stacked(100),
        "stacked, compiled": lambda: Stacked(100, compile=True),
        "graphed 10 × 1": lambda: Graphed(10),
        "graphed 4 × 25": lambda: Graphed(4, 25),
        "graphed 4 × 25, bfloat16": lambda: Graphed(4, 25, "bfloat16"),
        **auto,
    }
    extra: Engines = {
        "sequential": Sequential,
        "graphed": Graphed,
        "graphed, tf32": lambda: Graphed(precision="tf32"),
        "graphed, bfloat16": lambda: Graphed(precision="bfloat16"),
        **auto,
    }
    images = 640 if quick else 1280
    small = [
        Case(
            f"B4 lenet5, {sites} sites, batch {batch}",
            lambda: as_classifier(lenet5(mnist)),
            mnist,
            sites,
            images,
            batch,
            b4,
            ("float32",),
        )
        for sites in (10, 100)
        for batch in (32, 128)
    ]
    fedul = Case(
        "B4 FedUL's lenet (14.2 M), 10 sites, batch 128",
        lambda: build("lenet", mnist, 10),
        mnist,
        10,
        images,
        128,
        extra,
        precisions,
    )
    resnet = Case(
        "B3 resnet18, 10 sites, batch 128",
        lambda: build("resnet18", cifar, 10, stem="7x7"),
        cifar,
        10,
        1280 if quick else 3968,
        128,
        extra,
        precisions,
    )
    return [resnet, *small, fedul]


def federation(case: Case) -> pl.Federation:
    generator = torch.Generator().manual_seed(SEED)
    space = pl.LabelSpace.numbered(10)
    size = (case.samples, *case.shape)
    sites = []
    for number in range(case.sites):
        x = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
        y = torch.randint(0, 10, (case.samples,), generator=generator)
        sites.append(pl.Site.of(f"site {number}", x, pl.exact(space), y))
    return pl.Federation.of(sites).to(DEVICE)


def eager_round(model: nn.Module, sites: tuple[pl.Site, ...], batch: int) -> None:
    """A round the way the papers' code writes it: one client after another."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    total = {name: torch.zeros_like(value) for name, value in before.items()}
    for site in sites:
        model.load_state_dict(before)
        optimiser = torch.optim.SGD(model.parameters(), lr=LOCAL.lr, momentum=0.9)
        model.train()
        order = torch.randperm(len(site), device=DEVICE)
        for index in order.split(batch):
            optimiser.zero_grad()
            loss = cross_entropy(model(site.inputs[index].float() / 255), site.symbols[index])
            loss.backward()
            optimiser.step()
        for name, value in model.state_dict().items():
            total[name] += value / len(sites) if value.is_floating_point() else value
    model.load_state_dict({n: v if v.is_floating_point() else before[n] for n, v in total.items()})


def eager(case: Case, people: pl.Federation, precision: str) -> Callable[[], None]:
    """Takes one round of the eager loop in a precision."""
    model = case.model().to(DEVICE)

    def go() -> None:
        with matrix_precision(precision), autocast(precision):
            eager_round(model, people.sites, case.batch)

    return go


def engine_rounds(case: Case, people: pl.Federation, engine: Engine) -> Callable[[], None]:
    """Takes one round after another on an engine."""
    network = Network(case.model())
    recipe = pl.Recipe(rounds=1000, local=replace(LOCAL, batch_size=case.batch))
    state = start(network, recipe, people, DEVICE)

    def go() -> None:
        nonlocal state
        state, _ = one_round(network, recipe, people, engine, state)

    return go


def autocast(precision: str) -> AbstractContextManager[object]:
    if precision == "bfloat16":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


@contextmanager
def matrix_precision(precision: str):
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    wanted = precision != "float32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def disagreement(case: Case, people: pl.Federation, engine: Engine) -> float:
    """Largest difference of θ from the reference after four steps at three sites in float64."""
    # As float64, since a plain module does not cast its inputs.
    few = [replace(site, inputs=site.inputs.double() / 255) for site in people.sites[:3]]
    people = replace(people, sites=tuple(few))
    local = replace(LOCAL, batch_size=case.batch, steps=4)
    recipe = pl.Recipe(rounds=1, local=local)
    network = Network(copy.deepcopy(case.model()).double())

    def end(which: Engine) -> torch.Tensor:
        first = start(network, recipe, people, DEVICE)
        return run(network, recipe, people, which, first, lambda *_: None).theta

    return float((end(engine) - end(Sequential())).abs().max())


def training_flops(case: Case) -> float:
    """Floating point operations of an image's forward and backward pass."""
    model = case.model().to(DEVICE)
    images = torch.rand(case.batch, *case.shape, device=DEVICE)
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    return counter.get_total_flops() / case.batch


def peak_flops(size: int = 8192, times: int = 20) -> float:
    """The card's bfloat16 matrix products per second, measured, in operations."""
    a, b = torch.randn(2, size, size, device=DEVICE, dtype=torch.bfloat16)
    seconds(lambda: [a @ b for _ in range(times)])
    taken = median(seconds(lambda: [a @ b for _ in range(times)]) for _ in range(5))
    return 2 * size**3 * times / taken


def measure(case: Case, repeats: int, agree: bool) -> dict[str, dict]:
    people = federation(case)
    images = case.sites * case.samples
    work = {f"eager loop, {name}": eager(case, people, name) for name in case.eager}
    engines = {label: make() for label, make in case.engines.items()}
    work |= {label: engine_rounds(case, people, engine) for label, engine in engines.items()}
    rows: dict[str, dict] = {}
    for label, go in work.items():
        try:
            rows[label] = {"first round s": seconds(go)}
            seconds(go)
        except RuntimeError as error:  # one engine's failure is a result, not the end
            rows[label] = {"error": str(error)[:500]}
    working = [label for label, row in rows.items() if "error" not in row]
    times: dict[str, list[float]] = {label: [] for label in working}
    for _ in range(repeats):
        for label in working:
            times[label].append(seconds(work[label]))
    flops = training_flops(case)
    peak = peak_flops() if case.name.startswith("B3") else None
    base = median(times["eager loop, float32"])
    for label in working:
        row = rows[label]
        row["s/round"] = spread(times[label])
        row["images/s"] = images / row["s/round"]["median"]
        row["ratio"] = base / row["s/round"]["median"]
        row["TFLOP/s"] = row["images/s"] * flops / 1e12
        if peak is not None:
            row["share of bfloat16 peak"] = row["images/s"] * flops / peak
    for label, engine in engines.items():
        row = rows[label]
        row["remarks"] = list(getattr(engine, "remarks", []))
        exact = getattr(engine, "precision", "float32") == "float32"
        if agree and exact and label not in ("sequential", "auto") and "error" not in row:
            row["disagreement"] = disagreement(case, people, case.engines[label]())
    for label, row in rows.items():
        print(f"{case.name:36} {label:28} {shown(row)}", flush=True)
    return rows


def shown(row: dict) -> str:
    if "error" in row:
        return "ERROR " + row["error"]
    text = f"{row['images/s']:12,.0f} img/s {row['ratio']:7.2f}× {row['TFLOP/s']:6.1f} TFLOP/s"
    if "share of bfloat16 peak" in row:
        text += f" {row['share of bfloat16 peak']:.1%} of peak"
    text += f"  first round {row['first round s']:.1f} s"
    if "disagreement" in row:
        text += f"  off by {row['disagreement']:.1e}"
    return " ".join([text, *row.get("remarks", [])])


def main() -> None:
    parser = argparse.ArgumentParser(description="B3 and B4")
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true", help="less data, one repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", metavar="START", help="cases that start so")
    parser.add_argument("--engines", nargs="+", metavar="NAME", help="of these engines only")
    arguments = parser.parse_args()
    results = {}
    repeats = 1 if arguments.quick else arguments.repeats
    for case in cases(arguments.quick):
        if case.name.startswith(arguments.only):
            if arguments.engines:
                wanted = {name: case.engines[name] for name in arguments.engines}
                case = replace(case, engines=wanted)
            results[case.name] = measure(case, repeats, not arguments.quick)
            torch.cuda.empty_cache()
            store(arguments.out, results, seeds=[SEED])  # after each: a later one may not end


if __name__ == "__main__":
    main()
