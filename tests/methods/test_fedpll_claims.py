"""What FedPLL-LAAR claims, on digits: five sites, Bernoulli 0.7 and Dirichlet 0.5, 600 samples.

Learning rate, momentum and the weight of the alignment were chosen on other seeds and samples.
Mean test accuracy over the seeds 0 to 7, of which the first three run here:

    ρ = 0.3   FedAvg 0.794   LAAR 0.920   without disambiguation 0.794, mixup 0.924,
                                          alignment 0.920, w1 and w2 0.919
    ρ = 0.5   FedAvg 0.707   LAAR 0.869

Over these and ten further seeds (20 to 29) LAAR leads by 0.13 at ρ = 0.3 and by 0.15 at ρ = 0.5:
the lead grows, but by less than it varies from seed to seed, so that three seeds cannot show it.
Alignment and mixup are neutral on this small model: the claim about them is that dropping them
does not help. At the paper's weight of 1 instead of 0.01, alignment harms it.
"""

from statistics import mean

import pytest
import torch

import potluck as pl
from potluck.data.makers import candidates as maker
from potluck.data.partitions import bernoulli_dirichlet
from potluck.data.readers.digits import digits
from potluck.methods import CandidateTargets, FedPLLLAAR
from potluck.models import build
from potluck.streams import stream

SEEDS = (0, 1, 2)
FULL = FedPLLLAAR(momentum=0.97, align=0.01)
METHODS = {
    "fedavg": CandidateTargets(),
    "full": FULL,
    "w/o cld": FedPLLLAAR(momentum=1.0, align=0.01),
    "w/o am": FedPLLLAAR(momentum=0.97, align=0.01, mix=0.0),
    "w/o ga": FedPLLLAAR(momentum=0.97, align=0.0),
    "w/o w1+w2": FedPLLLAAR(momentum=0.97, align=0.01, mix_weights="none"),
}


def federation(seed, rho):
    data, generator = digits(), stream(seed, "fed")
    order = torch.randperm(len(data), generator=generator)
    train, test = data.subset(order[:600]), data.subset(order[1100:])
    parts = bernoulli_dirichlet(train.classes, 5, generator, p=0.7, alpha=0.5, min_size=20)
    space = pl.LabelSpace(data.names)
    sites = []
    for i, part in enumerate(train.subset(part) for part in parts):
        mask = maker.uniform(part.classes, 10, rho, generator)
        view = pl.candidates(space, mask)
        sites.append(pl.Site.of(f"site-{i}", part.inputs, view, mask, part.classes))
    return pl.Federation.of(sites, test=(test.inputs, test.classes))


def history(seed, rho, method):
    recipe = pl.Recipe(
        rounds=15,
        seed=seed,
        method=method,
        local=pl.LocalTraining(lr=0.3, optimiser=pl.SGD(momentum=0.5), epochs=4, batch_size=64),
    )
    model = build("mlp", (1, 8, 8), 10, generator=stream(seed, "model"), mean=0.305, std=0.376)
    return pl.train(federation(seed, rho), recipe, model).history


@pytest.fixture(scope="module")
def histories():
    """One history for each noise level, method and seed; ablations at ρ = 0.3 only."""
    wanted = [(0.3, name) for name in METHODS] + [(0.5, "fedavg"), (0.5, "full")]
    with pytest.warns(UserWarning, match="treated as unlabelled"):  # at ρ = 0.5 some sets are full
        return {
            (rho, name): [history(seed, rho, METHODS[name]) for seed in SEEDS]
            for rho, name in wanted
        }


@pytest.fixture(scope="module")
def accuracy(histories):
    return {
        key: mean(run[-1]["test"]["accuracy"] for run in runs) for key, runs in histories.items()
    }


def pseudo_label_accuracy(record):
    sites = record["sites"].values()
    total = sum(site["samples"] for site in sites)
    return sum(site["pseudo_label_accuracy"] * site["samples"] for site in sites) / total


@pytest.mark.parametrize("rho", [0.3, 0.5])
def test_laar_beats_fedavg_on_candidates_clearly(accuracy, rho):
    assert accuracy[rho, "full"] > accuracy[rho, "fedavg"] + 0.05


def test_dropping_disambiguation_hurts_most(accuracy):
    ablated = {name: accuracy[0.3, name] for name in METHODS if name.startswith("w/o")}
    others = [value for name, value in ablated.items() if name != "w/o cld"]
    assert ablated["w/o cld"] < min(others) - 0.05
    assert ablated["w/o cld"] < accuracy[0.3, "full"] - 0.05


@pytest.mark.parametrize("name", ["w/o am", "w/o ga", "w/o w1+w2"])
def test_no_other_ablation_helps(accuracy, name):
    # Over three seeds, two runs that are equal in the mean differ by up to 0.02.
    assert accuracy[0.3, name] < accuracy[0.3, "full"] + 0.03


@pytest.mark.parametrize("rho", [0.3, 0.5])
def test_pseudo_labels_get_better_over_the_rounds(histories, rho):
    for run in histories[rho, "full"]:
        course = [pseudo_label_accuracy(record) for record in run]
        assert course[0] < 0.4
        assert course[-1] > 0.8
        thirds = [mean(course[i : i + 5]) for i in (0, 5, 10)]
        assert thirds == sorted(thirds)
