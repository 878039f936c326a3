"""FedUL table 1, MNIST, IID, M = 10 at full scale: one cell, as a first check on real data.

    python benchmarks/fedul_mnist.py DATA OUT.json [ENGINE] [SEED]

DATA is a folder with MNIST in any format that potluck reads. Needs no more than PyTorch and NumPy,
so that it runs on a GPU machine that has little else. Settings: examples/papers/fedul/mnist.toml.
Reports the last round; nothing is selected on test data.
"""

import json
import platform
import sys
import time

import torch

import potluck as pl
from potluck.data.makers.bags import draw_priors, make_bags
from potluck.data.partitions import iid
from potluck.data.readers import read_dataset
from potluck.engines import ENGINES
from potluck.methods import FedUL
from potluck.streams import stream


def main():
    data, out, *rest = sys.argv[1:]
    engine, seed = (rest + ["graphed", "0"][len(rest) :])[:2]
    seed = int(seed)
    train, test = read_dataset("mnist", data)
    train = train.subset(torch.arange(48_000))  # the paper keeps the rest for validation
    space = pl.LabelSpace(train.names)
    parts = iid(train.classes, 5, stream(seed, "partition"))
    results = {}
    for name in ("fedul", "supervised"):
        sites = []
        for number, part in enumerate(parts):
            own, generator = train.subset(part), stream(seed, number, "labels")
            made = make_bags(own.classes, draw_priors(10, 10, generator), generator)
            kept = own.subset(made.index)
            view = pl.bags(space, made.priors, sizes=made.sizes)
            site = pl.Site.of(f"site {number}", kept.inputs, view, made.bag, kept.classes)
            sites.append(site if name == "fedul" else site.revealed())
        federation = pl.Federation.of(sites, test=(test.inputs, test.classes))
        method = FedUL(augment="rotate") if name == "fedul" else pl.Likelihood(augment="rotate")
        local = pl.LocalTraining(
            lr=1e-4, optimiser=pl.Adam(), batch_size=128, last_batch="drop", l1=1e-5
        )
        recipe = pl.Recipe(
            rounds=100, seed=seed, method=method, local=local, federated=pl.FedAvg("uniform")
        )
        began = time.perf_counter()
        trained = pl.train(
            federation,
            recipe,
            "lenet",
            engine=ENGINES[engine](),
            device="cuda",
            on_round=lambda _, record: (
                print(record["round"], round(100 - 100 * record["test"]["accuracy"], 2), flush=True)
                if record["round"] % 20 == 0
                else None
            ),
        )
        errors = [100 - 100 * record["test"]["accuracy"] for record in trained.history]
        results[name] = {"seconds": time.perf_counter() - began, "error": errors[-1], "all": errors}
        print(name, results[name]["error"], results[name]["seconds"], flush=True)
    facts = {
        "command": "python benchmarks/fedul_mnist.py DATA OUT.json " + f"{engine} {seed}",
        "seeds": [seed],
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "paper": {"fedul": 0.78, "supervised": None},
        "test error in %": results,
    }
    with open(out, "w") as file:
        json.dump(facts, file, indent=1)


if __name__ == "__main__":
    main()
