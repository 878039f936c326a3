"""B3 and B4: engines on one GPU against a plain eager loop, in one run.

    python benchmarks/gpu_engines.py OUT.json [--quick]

Prints and stores images per second of a FedAvg round, and how far each engine is from the
sequential reference after two rounds.
"""

import argparse
import copy
import json
import platform
import time
from dataclasses import replace
from functools import partial

import torch
from torch.nn.functional import cross_entropy

import potluck as pl
from potluck.engines import Graphed, Sequential, Stacked, run, start
from potluck.engines.rounds import one_round
from potluck.models import build
from potluck.models.network import Network

DEVICE = torch.device("cuda")


def federation(sites, samples, shape, classes=10):
    generator = torch.Generator().manual_seed(0)
    space = pl.LabelSpace.numbered(classes)
    made = []
    for number in range(sites):
        x = torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=generator)
        y = torch.randint(0, classes, (samples,), generator=generator)
        made.append(pl.Site.of(f"site {number}", x, pl.exact(space), y))
    return pl.Federation.of(made).to(DEVICE)


def eager_round(model, sites, batch, lr):
    """A round the way the papers' code writes it: one client after another."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    total = {name: torch.zeros_like(value) for name, value in start.items()}
    for site in sites:
        model.load_state_dict(start)
        optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        model.train()
        order = torch.randperm(len(site), device=DEVICE)
        for index in order.split(batch):
            optimiser.zero_grad()
            loss = cross_entropy(model(site.inputs[index]), site.symbols[index])
            loss.backward()
            optimiser.step()
        for name, value in model.state_dict().items():
            total[name] += value / len(sites) if value.is_floating_point() else value
    model.load_state_dict({n: v if v.is_floating_point() else start[n] for n, v in total.items()})


def timed(work, images, repeats):
    work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return images * repeats / (time.perf_counter() - began)


def agreement(classifier, recipe, sites, engine):
    """Largest difference of θ from the reference after a float64 round of a few steps."""
    few = replace(sites, sites=sites.sites[:3])
    two = replace(recipe, rounds=1, local=replace(recipe.local, steps=4))
    model = Network(copy.deepcopy(classifier).double())

    def end(which):
        state = start(model, two, few, DEVICE)
        return run(model, two, few, which, state, lambda *_: None).theta

    return float((end(engine) - end(Sequential())).abs().max())


def measure(name, model_name, shape, sites, samples, batch, engines, options, repeats=3):
    people = federation(sites, samples, shape)
    images = sites * samples
    classifier = build(model_name, shape, 10, **options)
    network = Network(classifier)
    local = pl.LocalTraining(lr=0.01, batch_size=batch, optimiser=pl.SGD(momentum=0.9))
    recipe = pl.Recipe(rounds=1000, local=local)
    rows = {}
    module = classifier.to(DEVICE)
    for precision in ("float32", "bfloat16") if "resnet" in model_name else ("float32",):
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
            rate = timed(lambda: eager_round(module, people.sites, batch, 0.01), images, repeats)
        rows[f"eager loop {precision}"] = {"images/s": rate, "ratio": rate}
    base = rows["eager loop float32"]["images/s"]
    for label, engine in engines.items():
        state = start(network, recipe, people, DEVICE)
        try:
            work = partial(one_round, network, recipe, people, engine, state)
            rate = timed(work, images, repeats)
            rows[label] = {
                "images/s": rate,
                "disagreement": agreement(classifier, recipe, people, engine),
            }
        except RuntimeError as error:
            rows[label] = {"images/s": 0.0, "error": str(error)[:300]}
    for label, row in rows.items():
        row["ratio"] = row["images/s"] / base
        print(
            f"{name:34} {label:22} {row['images/s']:12,.0f} img/s {row['ratio']:7.2f}x "
            f"{row.get('disagreement', '')} {row.get('error', '')}",
            flush=True,
        )
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    results = {}
    small = (1, 28, 28)
    for sites, batch in ((10, 32), (10, 128), (100, 32), (100, 128)):
        engines = {
            "sequential": Sequential(),
            "stacked": Stacked(100),
            "graphed 10 streams": Graphed(10),
            "graphed 20 streams": Graphed(20),
        }
        samples = 1280 if arguments.quick else 2560
        name = f"B4 lenet, {sites} sites, batch {batch}"
        results[name] = measure(name, "lenet", small, sites, samples, batch, engines, {}, 1)
    engines = {
        "sequential": Sequential(),
        "graphed float32": Graphed(10, "float32"),
        "graphed tf32": Graphed(10, "tf32"),
        "graphed bfloat16": Graphed(10, "bfloat16"),
    }
    name = "B3 resnet18, 10 sites, batch 128"
    results[name] = measure(
        name,
        "resnet18",
        (3, 32, 32),
        10,
        1280 if arguments.quick else 3968,
        128,
        engines,
        {"stem": "7x7"},
        1 if arguments.quick else 3,
    )
    facts = {
        "command": "python benchmarks/gpu_engines.py",
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "results": results,
    }
    with open(arguments.out, "w") as file:
        json.dump(facts, file, indent=1)


if __name__ == "__main__":
    main()
