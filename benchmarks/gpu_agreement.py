"""Do the engines agree with the reference on a GPU, for every method and federated optimiser?

    PYTHONPATH=.:tests/engines python benchmarks/gpu_agreement.py OUT.json

The same tiny federations as in the tests of the stacked engine, in float64 on the GPU; the
largest difference of θ from `sequential` after two rounds. Captured graphs run without compiling
for all methods; compiled ones for a few, since compiling takes long.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

import test_stacked
import torch
from record import store
from test_stacked_methods import suitable
from torch import nn

import potluck as pl
from potluck.engines import Graphed, Sequential, Stacked, run, start
from potluck.federated import FEDERATED
from potluck.methods import METHODS
from potluck.models.network import Network

CUDA = torch.device("cuda")
COMPILED = {"likelihood", "fedmt", "fedpll-laar", "scaffold", "dropout"}
LIMIT = 1e-8


def theta(engine, network, recipe, federation):
    state = start(network, recipe, federation, CUDA)
    return run(network, recipe, federation, engine, state, lambda *_: None).theta


def compare(name, recipe, federation, model):
    placed = federation.to(CUDA)
    network = Network(model._training.to(CUDA))
    engines = {
        "stacked": Stacked(),
        "graphed": Graphed(3, compile=False),
        "graphed in groups": Graphed(2, 2, compile=False),
    }
    if name in COMPILED:
        engines["graphed, compiled"] = Graphed(3)
    reference = theta(Sequential(), network, recipe, placed)
    row = {}
    for label, engine in engines.items():
        try:
            found = theta(engine, network, recipe, placed)
        except RuntimeError as error:
            row[label] = f"failed: {str(error)[:200]}"
            continue
        row[label] = float((found - reference).abs().max())
        if engine.remarks:
            row[f"{label}: remarks"] = engine.remarks
    shown = {k: f"{v:.1e}" if isinstance(v, float) else v for k, v in row.items()}
    print(f"{name:20}", shown, flush=True)
    return row


def main():
    out, began, results = sys.argv[1], time.time(), {}
    mlp, convolutional = test_stacked.network("mlp"), test_stacked.network("convolutional")
    for name in sorted(METHODS):
        method = METHODS[name]()
        if hasattr(method, "tau"):
            method = replace(method, tau=0.0)
        local = pl.LocalTraining(lr=0.05, batch_size=16)
        recipe = pl.Recipe(rounds=2, method=method, local=local)
        results[name] = compare(name, recipe, suitable(method), mlp)
    mixed = test_stacked.federation.__wrapped__()
    for name in sorted(FEDERATED):
        local = pl.LocalTraining(lr=0.05, batch_size=8, optimiser=pl.SGD(momentum=0.5))
        batch_norm = "local" if name == "fedbn" else "average"
        recipe = pl.Recipe(
            rounds=2, federated=FEDERATED[name](), local=local, batch_norm=batch_norm
        )
        results[name] = compare(name, recipe, mixed, convolutional)
    dropping = test_stacked.with_body(nn.Conv2d(1, 4, 3), nn.Dropout(0.5))
    results["dropout"] = compare("dropout", pl.Recipe(rounds=2), mixed, dropping)
    far = {
        f"{name}, {engine}"
        for name, row in results.items()
        for engine, value in row.items()
        if isinstance(value, str) or (isinstance(value, float) and not value < LIMIT)
    }
    print("agree" if not far else f"DISAGREE: {sorted(far)}", f"{time.time() - began:.0f} s")
    store(Path(out), results, limit=LIMIT, disagree=sorted(far))


if __name__ == "__main__":
    main()
