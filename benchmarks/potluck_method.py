"""`potluck` against each paper's own method on that paper's small problem, on mixed federations,
with wrong declarations, and without each of its parts.

    python benchmarks/potluck_method.py PART [--data digits …] [--seeds 0 1 2 3 4]
                                        [--folder DATA] [--out FILE] [--device cpu]
                                        [--engine sequential]
    python benchmarks/potluck_method.py tables     write the tables of docs/potluck-method.md

PART is papers, mixed, pairs, wrong or ablation. Each cell (problem, data, method, seed) is trained
once and written to benchmarks/results/potluck_PART.json as soon as it is done; a cell that is there
is not trained again. Processes that share the work write to a FILE each; cells are independent of
each other, so their files can be put together. DATA has the sets as in the studies' examples
(fashion_mnist/, tabular/, …); digits needs none. Everything is the Python API: nothing but PyTorch
and scikit-learn is needed.

Defaults of `potluck` were chosen on the seeds 100 to 104, which no table shows.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev

import torch
from record import facts, hardware
from torch import Tensor, nn

import potluck as pl
from potluck.data.dataset import Split
from potluck.data.makers import bags as bag_maker
from potluck.data.makers import candidates as candidate_maker
from potluck.data.makers import noise
from potluck.data.partitions import bernoulli_dirichlet, covering_label_subsets, iid
from potluck.data.readers import read_dataset
from potluck.engines import ENGINES
from potluck.methods import (
    FedMT,
    FedPLLLAAR,
    FedUL,
    LabelProjection,
    Likelihood,
    Method,
    Potluck,
    RefinedFedUL,
    RidgeHead,
    SemiFL,
    Tuning,
)
from potluck.models import build
from potluck.streams import stream

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "potluck-method.md"
INFINITE = float("inf")


# --- data ------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """How much of a data set the problems use, and with which model.

    Args:
      train:     samples to share out.
      test:      samples to test on.
      per_class: exact labels of each class at the server in FedMT's problem.
      per_site:  samples of each of its sites.
      partial:   samples in FedPLL's problem.
      folder:    where the set lies below the data folder.
      model:     its name.
      strong:    the strong view of methods that want one.
      weak:      their weak view.
      mixed:     how many times as many samples sites of mixed federations have as those of digits.
      how:       how mixed federations are trained, a key of `LOCAL`.
    """

    train: int
    test: int
    per_class: int
    per_site: int
    partial: int
    folder: str = ""
    model: str = "mlp"
    strong: str = "none"
    weak: str = "none"
    mixed: int = 1
    how: str = "mixed"


SIZES = {
    "digits": Size(1400, 397, 1, 300, 600, strong="rotate"),
    "fashion-mnist": Size(2000, 1000, 3, 300, 1200, "fashion_mnist", strong="rotate"),
    "frogs": Size(2000, 1000, 3, 300, 1200, "tabular"),
    "cardiotocography": Size(1700, 426, 3, 300, 1200, "tabular"),
    "mnist": Size(20000, 10000, 1, 4000, 10000, "mnist", "cnn", strong="rotate"),
    "cifar10": Size(45000, 10000, 25, 10000, 30000, "cifar10", "resnet18", "randaugment", "weak"),
    "cifar10-small": Size(
        6000, 2000, 25, 1000, 3000, "cifar10", "cnn", strong="rotate", mixed=4, how="mixed-cnn"
    ),
    "cifar100": Size(45000, 10000, 25, 10000, 30000, "cifar100", "resnet18", "randaugment", "weak"),
}


@cache
def whole(name: str, folder: str) -> Split:
    """A data set as it is on disk."""
    kept = None if name == "digits" else Path(folder) / SIZES[name].folder
    return read_dataset(name.removesuffix("-small"), kept)


@dataclass(frozen=True, eq=False)
class Data:
    """The samples of one seed: shuffled, cut, with a model that standardises them."""

    name: str
    space: pl.LabelSpace
    inputs: Tensor
    classes: Tensor
    test: tuple[Tensor, Tensor]
    generator: torch.Generator
    size: Size

    @classmethod
    def of(cls, name: str, seed: int, folder: str) -> "Data":
        """Draw training and test samples; small sets are split anew with every seed."""
        size, split, generator = SIZES[name], whole(name, folder), stream(seed, "data", name)
        train, test = split.train, split.test
        if name in ("digits", "cardiotocography"):
            inputs = torch.cat([train.inputs, test.inputs])
            classes = torch.cat([train.classes, test.classes])
            order = torch.randperm(len(inputs), generator=generator)
            first, last = order[: size.test], order[size.test : size.test + size.train]
            parts = (inputs[last], classes[last]), (inputs[first], classes[first])
        else:
            order = torch.randperm(len(train), generator=generator)[: size.train]
            others = torch.randperm(len(test), generator=generator)[: size.test]
            parts = (
                (train.inputs[order], train.classes[order]),
                (
                    test.inputs[others],
                    test.classes[others],
                ),
            )
        return cls(name, pl.LabelSpace(train.names), *parts[0], parts[1], generator, size)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def names(self) -> list[str]:
        return list(self.space.names)

    @property
    def prior(self) -> Tensor:
        """(K,) shares of the classes; a class that did not turn up counts half a sample."""
        counts = torch.bincount(self.classes, minlength=len(self.space)).double().clamp_min(0.5)
        return counts / counts.sum()

    def model(self, seed: int) -> nn.Module:
        values = self.inputs.float() / 255 if self.inputs.dtype == torch.uint8 else self.inputs
        image = values.ndim == 4
        at, spread = (values.mean(), values.std()) if image else (values.mean(0), values.std(0))
        return build(
            self.size.model,
            tuple(self.inputs.shape[1:]),
            len(self.space),
            generator=stream(seed, "model"),
            mean=at.tolist(),
            std=spread.clamp_min(1e-6).tolist(),
        )


# --- each paper's problem -------------------------------------------------------------------------


def spaces(names: list[str]) -> list[dict[str, list[str]]]:
    """Three coarser label spaces: nested, overlapping, nested in another way."""
    k = len(names)
    a, b = round(0.4 * k), round(0.7 * k)
    return [
        {"low": names[:a], "middle": names[a:b], "high": names[b:]},
        {"first": names[:a], "second": names[a - 1 : b], "third": names[b - 1 :] + names[:1]},
        {"even": names[::2], "odd": names[1::2]},
    ]


def other_spaces(data: Data, known: bool = True) -> pl.Federation:
    """FedMT: a few exact labels at the server, other label spaces at three sites."""
    mine = rank_in_class(data.classes) <= data.size.per_class
    server = pl.Site.of(
        "server", data.inputs[mine], pl.exact(data.space), data.classes[mine], data.classes[mine]
    )
    inputs, classes, per = data.inputs[~mine], data.classes[~mine], data.size.per_site
    sites = []
    for s, mapping in enumerate(spaces(data.names)):
        part, view = slice(s * per, (s + 1) * per), pl.coarse(data.space, mapping)
        truth = classes[part]
        symbols = torch.multinomial(view.codebook.T[truth], 1, generator=data.generator)[:, 0]
        if not known:
            flat = torch.full_like(view.codebook, 1 / len(view.codebook))
            view = pl.coarse(data.space, flat, view.symbols.names)
        sites.append(pl.Site.of(f"site-{s}", inputs[part], view, symbols, truth))
    return pl.Federation.of(sites, server, data.test)


def rank_in_class(classes: Tensor) -> Tensor:
    """(N,) each sample's number within its class, from 1."""
    return nn.functional.one_hot(classes).cumsum(0).gather(1, classes[:, None])[:, 0]


def with_server_as_site(data: Data) -> pl.Federation:
    """FedMT 2023: who has exact labels is averaged like everybody else."""
    federation = other_spaces(data)
    assert federation.server is not None
    return pl.Federation.of((federation.server, *federation.sites), test=data.test)


def no_labels(data: Data) -> pl.Federation:
    """SemiFL: the same, but the sites have no labels."""
    federation = other_spaces(data)
    sites = [
        pl.Site.of(site.name, site.inputs, pl.unlabeled(data.space), None, site.truth)
        for site in federation.sites
    ]
    return pl.Federation.of(sites, federation.server, data.test)


def bags(data: Data, epsilon: float = 0.0) -> pl.Federation:
    """FedUL: five sites, ten unlabelled sets each, with proportions that may be off."""
    sites = []
    for s, part in enumerate(iid(data.classes, 5, data.generator)):
        sites.append(bag_site(f"site-{s}", data, part, 10, epsilon))
    return pl.Federation.of(sites, test=data.test)


def bag_site(name: str, data: Data, part: Tensor, number: int, epsilon: float = 0.0) -> pl.Site:
    """A site of unlabelled sets; see METHODS on the noise π((2γ − 1) ε + 1)."""
    wanted = bag_maker.draw_priors(number, len(data.space), data.generator)
    made = bag_maker.make_bags(data.classes[part], wanted, data.generator)
    index = part[made.index]
    factor = 2 * torch.rand(made.priors.shape, generator=data.generator) - 1
    declared = (made.priors * (factor * epsilon + 1)).clamp_min(0)
    view = pl.bags(
        data.space,
        declared / declared.sum(1, keepdim=True),
        sizes=made.sizes,
        target_prior=data.prior,
        minimum_rank=1,
        maximum_condition=1e12,
    )
    return pl.Site.of(name, data.inputs[index], view, made.bag, data.classes[index])


def candidates(data: Data, rho: float) -> pl.Federation:
    """FedPLL: five sites, Bernoulli 0.7 and Dirichlet 0.5, candidate sets."""
    classes = data.classes[: data.size.partial]
    parts = bernoulli_dirichlet(classes, 5, data.generator, p=0.7, alpha=0.5, min_size=20)
    sites = []
    for s, part in enumerate(parts):
        mask = candidate_maker.uniform(classes[part], len(data.space), rho, data.generator)
        view = pl.candidates(data.space, mask)
        sites.append(pl.Site.of(f"site-{s}", data.inputs[part], view, mask, classes[part]))
    return pl.Federation.of(sites, test=data.test)


def private(data: Data, labels: int) -> pl.Federation:
    """Private label sets: ten sites with few classes each; the server has unlabelled samples."""
    aside = 300
    inputs, classes = data.inputs[aside:], data.classes[aside:]
    split = covering_label_subsets(classes, 10, data.generator, labels)
    sites = []
    for s, (part, held) in enumerate(zip(split.indices, split.subsets, strict=True)):
        view = pl.private_subset(data.space, [data.names[k] for k in held.nonzero().flatten()])
        written = [data.names[k] for k in classes[part]]
        sites.append(pl.Site.of(f"site-{s}", inputs[part], view, written, classes[part]))
    server = pl.Site.of("server", data.inputs[:aside], pl.unlabeled(data.space))
    return pl.Federation.of(sites, server, data.test)


# --- mixed federations ------------------------------------------------------------

KINDS = ("exact", "coarse", "noisy", "bags", "candidates", "subset", "unlabeled")
MIXED = (60, 200, 200, 200, 200, 200, 200)


@dataclass(frozen=True)
class Declared:
    """How far what sites declare is off: priors by ε, the noise rate, classes of the mapping."""

    epsilon: float = 0.0
    rate: float = 0.0
    classes: int = 0


def seven(data: Data, wrong: Declared = Declared()) -> dict[str, pl.Site]:  # noqa: B008
    """A site of each kind, on other samples each; 60 exact labels, 200 samples otherwise."""
    sizes = [data.size.mixed * size for size in MIXED]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    part = {
        kind: torch.arange(end - size, end)
        for kind, size, end in zip(KINDS, sizes, ends, strict=True)
    }
    k, generator = len(data.space), data.generator

    def site(kind: str, view: pl.LabelView, labels: object, index: Tensor | None = None) -> pl.Site:
        index = part[kind] if index is None else index
        return pl.Site.of(kind, data.inputs[index], view, labels, data.classes[index])

    truth = {kind: data.classes[index] for kind, index in part.items()}
    coarse = pl.coarse(data.space, spaces(data.names)[0])
    flips = noise.symmetric(k, 0.4)
    mask = candidate_maker.uniform(truth["candidates"], k, 0.4, generator)
    own = part["subset"][truth["subset"] < k // 2]
    return {
        "exact": site("exact", pl.exact(data.space), truth["exact"]),
        "coarse": site(
            "coarse",
            pl.coarse(data.space, misread(spaces(data.names)[0], wrong.classes)),
            coarse.codebook.argmax(0)[truth["coarse"]],
        ),
        "noisy": site(
            "noisy",
            pl.noisy(data.space, noise.symmetric(k, 0.4 + wrong.rate)),
            noise.flip(truth["noisy"], flips, generator),
        ),
        "bags": bag_site("bags", data, part["bags"], k + 2, wrong.epsilon),
        "candidates": site("candidates", pl.candidates(data.space, mask), mask),
        "subset": site(
            "subset",
            pl.private_subset(data.space, data.names[: k // 2]),
            [data.names[c] for c in data.classes[own]],
            own,
        ),
        "unlabeled": site("unlabeled", pl.unlabeled(data.space), None),
    }


def misread(mapping: dict[str, list[str]], classes: int) -> dict[str, list[str]]:
    """The mapping with some classes under the next label: each group's last one, in turn."""
    groups = {label: list(names) for label, names in mapping.items()}
    labels = list(groups)
    for number in range(classes):
        here, there = labels[number % len(labels)], labels[(number + 1) % len(labels)]
        groups[there].insert(0, groups[here].pop())
    return groups


# --- how to train ------------------------------------------------------------

SGD = pl.SGD(momentum=0.9)
LOCAL = {
    "fedmt": (30, pl.LocalTraining(0.1, SGD, pl.Cosine(), steps=10)),
    "fedul": (25, pl.LocalTraining(5e-3, pl.Adam(), batch_size=64, steps=6)),
    "fedpll": (15, pl.LocalTraining(0.3, pl.SGD(momentum=0.5), epochs=4, batch_size=64)),
    "long": (10, pl.LocalTraining(0.003, pl.Adam(), batch_size=16)),
    "short": (16, pl.LocalTraining(0.001, pl.Adam(), batch_size=64)),
    "mixed": (40, pl.LocalTraining(0.1, SGD, epochs=2)),
    "mixed-adam": (40, pl.LocalTraining(0.003, pl.Adam(), epochs=2)),
    "mixed-cnn": (40, pl.LocalTraining(0.001, pl.Adam())),
}


@dataclass(frozen=True)
class Cell:
    """One training.

    Args:
      problem: its name in the tables.
      method:  the method's name there.
      make:    the federation.
      how:     a key of `LOCAL`.
      train:   the method.
    """

    problem: str
    method: str
    make: Callable[[Data], pl.Federation]
    how: str
    train: Method


def papers(data: str) -> Iterator[Cell]:
    """Each paper's problem with its own method, the likelihood alone, and `potluck`."""
    views = {"weak": SIZES[data].weak, "strong": SIZES[data].strong}
    fedmt = {"tau": 0.8, "lambda2": 1.0, **views}
    problems: list[tuple[str, Callable[[Data], pl.Federation], str, dict[str, Method]]] = [
        (
            "other label spaces, known (FedMT)",
            other_spaces,
            "fedmt",
            {"FedMT (T)": FedMT(correspondence="known", **fedmt)},
        ),
        (
            "other label spaces, unknown (FedMT)",
            lambda d: other_spaces(d, known=False),
            "fedmt",
            {"FedMT (E)": FedMT(**fedmt)},
        ),
        (
            "other label spaces (FedMT 2023)",
            with_server_as_site,
            "fedmt",
            {"FedMT (L)": LabelProjection()},
        ),
        ("no labels (SemiFL)", no_labels, "fedmt", {"SemiFL": SemiFL(tau=0.8, **views)}),
        ("unlabelled sets (FedUL)", bags, "fedul", {"FedUL": FedUL()}),
    ]
    for rho in (0.3, 0.5):
        laar = {"FedPLL-LAAR": FedPLLLAAR(momentum=0.97, align=0.01)}
        problems.append(
            (f"candidates, ρ = {rho} (FedPLL)", lambda d, r=rho: candidates(d, r), "fedpll", laar)
        )
    for labels, how in ((2, "long"), (3, "long"), (5, "long"), (3, "short")):
        problems.append(
            (
                f"{labels} private labels, {how} (Private label sets)",
                lambda d, n=labels: private(d, n),
                how,
                {"pairwise tuning": Tuning(), "ridge-head": RidgeHead()},
            )
        )
    for problem, make, how, theirs in problems:
        # Methods that compare views of images use the same ones; the others, none.
        compares = any(isinstance(method, SemiFL) for method in theirs.values())
        ours = Potluck(**views) if compares else Potluck()
        methods = {**theirs, "likelihood": Likelihood(), "potluck": ours}
        for name, method in methods.items():
            yield Cell(problem, name, make, how, method)


def mixed(data: str) -> Iterator[Cell]:
    """All seven kinds, by `potluck`, by the likelihood, and by methods that use some of them."""

    def of(kinds: tuple[str, ...], server: str | None = None) -> Callable[[Data], pl.Federation]:
        def make(d: Data) -> pl.Federation:
            sites = seven(d)
            own = None if server is None else replace(sites[server], name="server")
            return pl.Federation.of([sites[kind] for kind in kinds], own, d.test)

        return make

    everyone, how = of(KINDS), SIZES[data].how
    yield Cell("seven kinds", "potluck", everyone, how, Potluck())
    yield Cell("seven kinds", "likelihood", everyone, how, Likelihood())
    views = {"weak": SIZES[data].weak, "strong": SIZES[data].strong}
    some: dict[str, tuple[Method, tuple[str, ...], str | None]] = {
        "supervised, on the exact labels": (Likelihood(), ("exact",), None),
        "FedMT (T), on coarse and noisy": (
            FedMT(correspondence="known", lambda2=1.0, tau=0.8, **views),
            ("coarse", "noisy"),
            "exact",
        ),
        "SemiFL, on the unlabelled": (SemiFL(tau=0.8, **views), ("unlabeled",), "exact"),
        "FedUL, on the bags": (FedUL(), ("bags",), None),
        "FedPLL-LAAR, on exact and candidates": (
            FedPLLLAAR(momentum=0.97, align=0.01),
            ("exact", "candidates"),
            None,
        ),
        "ridge-head, on exact and subset": (RidgeHead(), ("exact", "subset"), None),
    }
    for name, (method, kinds, server) in some.items():
        yield Cell("seven kinds", name, of(kinds, server), how, method)
    for name, method in (("likelihood", Likelihood()), ("potluck", Potluck())):
        revealed = f"all labels revealed, {name}"
        yield Cell("seven kinds", revealed, lambda d: everyone(d).revealed(), how, method)


def pairs(data: str) -> Iterator[Cell]:
    """Each kind alone and every pair of kinds."""
    for kinds in (*combinations(KINDS, 1), *combinations(KINDS, 2)):
        for name, method in (("likelihood", Likelihood()), ("potluck", Potluck())):
            if kinds == ("unlabeled",):
                continue

            def make(d: Data, kinds: tuple[str, ...] = kinds) -> pl.Federation:
                sites = seven(d)
                return pl.Federation.of([sites[kind] for kind in kinds], test=d.test)

            yield Cell(" + ".join(kinds), name, make, SIZES[data].how, method)


WRONG = {
    "as declared": Declared(),
    "one class in the wrong group": Declared(classes=1),
    "priors off by ε = 0.8": Declared(epsilon=0.8),
    "noise rate off by 0.1": Declared(rate=0.1),
}


def wrong(data: str) -> Iterator[Cell]:
    """Seven kinds, one of which declares something wrong; and FedUL's problem with rough priors."""
    methods = {
        "likelihood": Likelihood(),
        "potluck, trusting": Potluck(trust=INFINITE),
        "potluck": Potluck(),
    }
    for problem, how in WRONG.items():
        for name, method in methods.items():
            yield Cell(
                problem,
                name,
                lambda d, w=how: pl.Federation.of(list(seven(d, w).values()), test=d.test),
                "mixed",
                method,
            )
    for epsilon in (0.8, 1.6):
        for name, method in {
            "FedUL": FedUL(),
            "FedUL, refined": RefinedFedUL(),
            **methods,
        }.items():
            yield Cell(
                f"FedUL's problem, ε = {epsilon}",
                name,
                lambda d, e=epsilon: bags(d, e),
                "fedul",
                method,
            )


PARTS: dict[str, Method] = {
    "potluck": Potluck(),
    "no pseudo-labels": Potluck(pseudo=0),
    "no mixup": Potluck(mix=0),
    "neither: the likelihood": Potluck(pseudo=0, mix=0),
    "thresholds per class": Potluck(thresholds="class"),
    "no moving average": Potluck(momentum=0),
    "declarations believed": Potluck(trust=INFINITE),
    "labels always fitted": Potluck(stop="never"),
    "sites count by samples": Potluck(weights="samples"),
    "rows count by information per class": Potluck(weights="information-per-class"),
    "heads averaged": Potluck(head="averaged"),
    "heads solved": Potluck(head="solved"),
}


def ablation(data: str) -> Iterator[Cell]:
    """`potluck` with one part changed, on four problems."""

    def everyone(d: Data) -> pl.Federation:
        return pl.Federation.of(list(seven(d).values()), test=d.test)

    problems: dict[str, tuple[Callable[[Data], pl.Federation], str]] = {
        "seven kinds": (everyone, "mixed"),
        "candidates 0.5": (lambda d: candidates(d, 0.5), "fedpll"),
        "unknown spaces": (lambda d: other_spaces(d, known=False), "fedmt"),
        "3 private": (lambda d: private(d, 3), "long"),
    }
    for problem, (make, how) in problems.items():
        for name, method in PARTS.items():
            yield Cell(problem, name, make, how, method)
    for name in ("potluck", "sites count by samples", "rows count by information per class"):
        yield Cell("seven kinds, Adam", name, everyone, "mixed-adam", PARTS[name])


RUNS = {
    "papers": papers,
    "mixed": mixed,
    "pairs": pairs,
    "wrong": wrong,
    "ablation": ablation,
}


# --- running ------------------------------------------------------------


def train(cell: Cell, data: Data, seed: int, device: str, engine: str, rounds: int | None) -> dict:
    """Accuracy after the last round, seconds, and the last metrics of each site."""
    federation = cell.make(data)
    if isinstance(cell.train, RidgeHead) and federation.server is not None:
        federation = replace(federation, server=None)  # it has no use for unlabelled samples
    length, local = LOCAL[cell.how]
    recipe = pl.Recipe(rounds or length, seed, cell.train, local=local)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # full candidate sets are announced each time
        trained = pl.train(
            replace(federation, test=None),
            recipe,
            data.model(seed),
            engine=ENGINES[engine](),
            device=device,
        )
    assert federation.test is not None
    kept = ("surprise", "refuted", "rate_gap", "misplaced")
    kept += ("worth", "sure", "pseudo_label_accuracy")
    return {
        "accuracy": trained.evaluate(*federation.test).accuracy,
        "seconds": time.perf_counter() - began,
        "sites": {
            site: {key: round(metrics[key], 4) for key in kept if key in metrics}
            for site, metrics in trained.history[-1]["sites"].items()
        },
    }


def run(args: argparse.Namespace) -> None:
    """Train the cells that are missing, and write each as it is done."""
    path = args.out or RESULTS / f"potluck_{args.part}.json"
    stored = json.loads(path.read_text()) if path.exists() else {"cells": {}, "facts": []}
    here = {
        "command": "python benchmarks/potluck_method.py " + args.part,
        "commit": facts()["commit"],
        "hardware": f"{hardware()}, on {args.device}",
        "torch": torch.__version__,
    }
    if here not in stored["facts"]:
        stored["facts"].append(here)
    for data in args.data:
        for seed in args.seeds:
            for cell in RUNS[args.part](data):
                key = f"{data} | {cell.problem} | {cell.method} | {seed}"
                if key in stored["cells"]:
                    continue
                # Made anew for each cell: its generator is used up.
                samples = Data.of(data, seed, args.folder)
                found = train(cell, samples, seed, args.device, args.engine, args.rounds)
                stored["cells"][key] = found
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(stored, indent=0, ensure_ascii=False) + "\n")
                print(f"{key}: {found['accuracy']:.3f} ({found['seconds']:.1f} s)", flush=True)


# --- tables ------------------------------------------------------------


def accuracies(part: str) -> dict[tuple[str, str, str], list[float]]:
    """(data, problem, method) → accuracies in per cent, by seed."""
    path = RESULTS / f"potluck_{part}.json"
    found: dict[tuple[str, str, str], list[float]] = {}
    for key, cell in json.loads(path.read_text())["cells"].items() if path.exists() else ():
        data, problem, method, _ = key.split(" | ")
        found.setdefault((data, problem, method), []).append(100 * cell["accuracy"])
    return found


def shown(values: list[float]) -> str:
    """Mean and the standard error of the mean."""
    if len(values) < 2:
        return f"{mean(values):.1f}"
    return f"{mean(values):.1f} ± {stdev(values) / len(values) ** 0.5:.1f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    if not rows:
        return "Not trained yet."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def verdict(ours: list[float], theirs: list[float]) -> str:
    """Win or loss where the mean difference of equal seeds exceeds two standard errors."""
    gaps = [a - b for a, b in zip(ours, theirs, strict=False)]
    if len(gaps) < 5:
        return ""  # too few to tell
    middle, error = mean(gaps), stdev(gaps) / len(gaps) ** 0.5
    if abs(middle) <= 2 * error:
        return "tie"
    return "win" if middle > 0 else "loss"


def tables() -> dict[str, str]:
    """Every table of the page, by its marker."""
    found = {part: accuracies(part) for part in RUNS}
    made = {}
    rows = []
    for data, problem, method in found["papers"]:
        if method in ("likelihood", "potluck"):
            continue
        cells = {
            name: found["papers"].get((data, problem, name), [])
            for name in (method, "likelihood", "potluck")
        }
        if all(cells.values()):
            seeds = min(map(len, cells.values()))
            rows.append(
                [data, problem, method]
                + [shown(cells[name]) for name in cells]
                + [verdict(cells["potluck"], cells[method]), str(seeds)]
            )
    made["papers"] = table(
        ["data", "problem", "its method", "its", "likelihood", "`potluck`", "", "seeds"], rows
    )
    for part, columns in (("mixed", "data"), ("ablation", "problem"), ("wrong", "method")):
        made[part] = crossed(found[part], columns)
    made["pairs"] = pairs_table(found["pairs"])
    made["surprise"] = surprise_table()
    return made


def crossed(found: dict[tuple[str, str, str], list[float]], columns: str) -> str:
    """Methods against data sets, parts against problems, or declarations against methods."""
    place = {"data": 0, "problem": 1, "method": 2}
    across = list(dict.fromkeys(key[place[columns]] for key in found))
    down = list(
        dict.fromkeys(tuple(v for i, v in enumerate(key) if i != place[columns]) for key in found)
    )
    several = [len({row[i] for row in down}) > 1 for i in range(2)]
    rows = []
    for row in down:
        cells = []
        for column in across:
            key = list(row)
            key.insert(place[columns], column)
            values = found.get((key[0], key[1], key[2]), [])
            cells.append(shown(values) if values else "")
        rows.append([name for name, many in zip(row, several, strict=True) if many] + cells)
    return table([""] * sum(several) + across, rows)


def pairs_table(found: dict[tuple[str, str, str], list[float]]) -> str:
    """Every pair: the likelihood, `potluck`, and the better of the two sites alone."""
    rows = []
    for data, problem, method in found:
        kinds = problem.split(" + ")
        if method != "potluck" or len(kinds) == 1:
            continue
        alone = [
            (mean(values), kind)
            for kind in kinds
            for name in ("likelihood", "potluck")
            if (values := found.get((data, kind, name)))
        ]
        likelihood = found.get((data, problem, "likelihood"), [])
        best, kind = max(alone) if alone else (float("nan"), "")
        rows.append(
            [
                data,
                problem,
                f"{best:.1f} ({kind})",
                shown(likelihood) if likelihood else "",
                shown(found[data, problem, method]),
            ]
        )
    return table(["data", "sites", "better site alone", "likelihood", "`potluck`"], rows)


def surprise_table() -> str:
    """The mean surprise of each site after the last round, by what is declared wrongly."""
    path = RESULTS / "potluck_wrong.json"
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for key, cell in json.loads(path.read_text())["cells"].items() if path.exists() else ():
        data, problem, method, _ = key.split(" | ")
        if method == "potluck" and problem in WRONG:
            row = found.setdefault((data, problem), {})
            for site, metrics in cell["sites"].items():
                if site in ("coarse", "noisy", "bags"):
                    row.setdefault(site, []).append(metrics.get("surprise", 0.0))
    rows = [
        [data, problem, *(f"{mean(row.get(s, [0])):.2f}" for s in ("coarse", "noisy", "bags"))]
        for (data, problem), row in found.items()
    ]
    return table(["data", "declared", "coarse", "noisy", "bags"], rows)


def write_tables() -> None:
    """Put the tables between their markers in the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, made in tables().items():
        first, last = f"<!-- {name} -->", f"<!-- end {name} -->"
        before, rest = text.split(first)
        text = f"{before}{first}\n{made}\n{last}{rest.split(last)[1]}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Parse, then run or write tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*RUNS, "tables"])
    parser.add_argument("--data", nargs="+", default=["digits"], choices=list(SIZES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--folder", default="data")
    parser.add_argument("--out", type=Path, help="instead of benchmarks/results/potluck_PART.json")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engine", default="sequential", choices=list(ENGINES))
    parser.add_argument("--rounds", type=int, help="instead of each problem's own number")
    args = parser.parse_args()
    if args.part == "tables":
        write_tables()
        return
    if args.device == "cpu":
        torch.set_num_threads(1)
    run(args)


if __name__ == "__main__":
    main()
