"""Private label sets: is it the encoder that is poor, or the head?

    python benchmarks/private_heads.py DATA [--labels 3] [--rounds 12] [--seed 100] [--out FILE]

The study of the paper's figure 2 (examples/papers/private-label-sets/cifar10-private.toml; DATA has
the folder cifar10), by FedAvg and by `potluck`. After each round, all on the samples that sites
keep aside for validation, over all ten classes: the model that sites train, with their averaged
rows; its encoder under a head by least squares over the training samples (`potluck` serves it a
round later, when sites have sent the sums); under the head of the encoder before the round, with
several ridges (`stale`); and how far features moved in the round, as a share of their length.
"""

import argparse
from pathlib import Path

import torch
from record import RESULTS, store, table
from torch import Tensor

from potluck.engines import start
from potluck.engines.rounds import one_round
from potluck.methods import head_sums
from potluck.methods.potluck import SCALE
from potluck.models.network import Network, features_batched
from potluck.study.build import prepare
from potluck.study.schema import read_study

STUDY = Path(__file__).parents[1] / "examples/papers/private-label-sets/cifar10-private.toml"
METHODS = {"FedAvg": "likelihood", "potluck": "potluck"}
RIDGES = (1e-4, 1e-2, 0.1, 1.0, 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Heads for encoders of private label sets")
    parser.add_argument("data", type=Path)
    parser.add_argument("--labels", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "private_heads.json")
    arguments = parser.parse_args()
    settings = {
        "simulation.path": arguments.data / "cifar10",
        "simulation.partition.labels_per_site": arguments.labels,
        "seed": arguments.seed,
    }
    overrides = [f"{key}={value}" for key, value in settings.items()]
    results = {}
    for name, method in METHODS.items():
        results[name] = measured([*overrides, f"method={method}"], arguments.rounds)
        print(f"\n{name}\n{shown(results[name])}\n")
    store(arguments.out, results, seeds=[arguments.seed], labels=arguments.labels)


def measured(overrides: list[str], rounds: int) -> list[dict[str, float]]:
    """A row for each round."""
    all_ready = prepare(read_study(STUDY, overrides))
    network, recipe, federation = all_ready.network, all_ready.recipe, all_ready.federation
    state = start(network, recipe, federation, all_ready.device)
    inputs, classes = samples(federation.sites)
    aside, truth = samples(federation.validation)
    targets = torch.nn.functional.one_hot(classes, len(federation.space)).float()
    rows, before, received = [], None, None
    for number in range(1, rounds + 1):
        state, _ = one_round(network, recipe, federation, all_ready.engine, state)
        theta, own = state.theta, features_batched(network, state.theta, state.buffers, inputs)
        features = features_batched(network, theta, state.buffers, aside)
        sums = dict(zip(("gram", "sums"), head_sums.sums(own, targets).values(), strict=True))
        ridge = head_sums.evidence_ridge(sums["gram"], sums["sums"])
        heads = {"trained": theta, "solved": solved(network, theta, sums, ridge)}
        row = {"round": number, "ridge": ridge}
        if before is not None:
            heads |= {f"stale {one:g}": solved(network, theta, before, one) for one in RIDGES}
            row["moved"] = float((features - received).norm() / received.norm())
        row |= {name: accuracy(network, one, features, truth) for name, one in heads.items()}
        before, received = sums, features
        rows.append(row)
        print({key: round(value, 4) for key, value in row.items()}, flush=True)
    return rows


def solved(network: Network, theta: Tensor, sums: dict[str, Tensor], ridge: float) -> Tensor:
    """The encoder of some parameters under a head by least squares."""
    return head_sums.solved(sums, theta, network.layout, ridge, SCALE)


def accuracy(network: Network, theta: Tensor, features: Tensor, truth: Tensor) -> float:
    """Of a head on features."""
    with torch.no_grad():
        return float((network.scores(theta, features).argmax(1) == truth).float().mean())


def samples(sites: tuple) -> tuple[Tensor, Tensor]:
    """The inputs of all sites, and the classes that their labels name."""
    inputs = torch.cat([site.inputs for site in sites])
    return inputs, torch.cat([site.view.classes[site.symbols] for site in sites])


def shown(rows: list[dict[str, float]]) -> str:
    """A line for each round."""
    head = list(rows[-1])
    return table([head, *([f"{row.get(key, float('nan')):.3g}" for key in head] for row in rows)])


if __name__ == "__main__":
    main()
