"""What FedPLL-LAAR claims, on digits: five sites, Bernoulli 0.7 and Dirichlet 0.5, 1300 samples.

The model is wide and local training is long, so that it can fit wrong candidates: that is where
disambiguation matters, and where more of them do more harm. Learning rate, batch size, width,
rounds and momentum were chosen on the seeds 100 to 107. Mean test accuracy over ten others, 20 to
29; the tests run the seeds 0 and 1:

    ρ = 0.3   FedAvg 0.824   LAAR 0.932   LAAR leads by 0.108 (0.060 or more for each seed)
    ρ = 0.5   FedAvg 0.717   LAAR 0.907   LAAR leads by 0.190 (0.114 or more)

From ρ = 0.3 to 0.5 the lead grows by 0.082, with a standard deviation of 0.041 over the seeds; by
0.038 or more for each. To save time, ablations end a round earlier. Over the seeds 20 to 23, where
LAAR has 0.926 at that round, it has

    ρ = 0.3   without disambiguation 0.831, mixup 0.927, alignment 0.925, w1 and w2 0.913

Mixup and alignment are neutral on this small model: the claim about them is that dropping them does
not help. At the paper's weight of 1 instead of 0.01, alignment harms it.
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

SEEDS, ROUNDS, ABLATION_ROUNDS = (0, 1), 5, 4
METHODS = {"fedavg": CandidateTargets(), "full": FedPLLLAAR(momentum=0.98, align=0.01)}
ABLATIONS = {
    "w/o cld": FedPLLLAAR(momentum=1.0, align=0.01),
    "w/o am": FedPLLLAAR(momentum=0.98, align=0.01, mix=0.0),
    "w/o ga": FedPLLLAAR(momentum=0.98, align=0.0),
    "w/o w1+w2": FedPLLLAAR(momentum=0.98, align=0.01, mix_weights="none"),
}


def federation(seed, rho):
    """Five sites; at both noise levels a seed has the same split and the same random numbers."""
    data, generator = digits(), stream(seed, "fed")
    order = torch.randperm(len(data), generator=generator)
    train, test = data.subset(order[:1297]), data.subset(order[1297:])
    parts = bernoulli_dirichlet(train.classes, 5, generator, p=0.7, alpha=0.5, min_size=20)
    space = pl.LabelSpace(data.names)
    sites = []
    for i, part in enumerate(train.subset(part) for part in parts):
        mask = maker.uniform(part.classes, 10, rho, generator)
        view = pl.candidates(space, mask)
        sites.append(pl.Site.of(f"site-{i}", part.inputs, view, mask, part.classes))
    return pl.Federation.of(sites, test=(test.inputs, test.classes))


def history(seed, rho, method, rounds=ROUNDS):
    recipe = pl.Recipe(
        rounds=rounds,
        seed=seed,
        method=method,
        local=pl.LocalTraining(lr=0.2, optimiser=pl.SGD(momentum=0.9), epochs=10, batch_size=256),
    )
    model = build(
        "mlp",
        (1, 8, 8),
        10,
        generator=stream(seed, "model"),
        mean=0.305,
        std=0.376,
        hidden=(512,),
    )
    return pl.train(federation(seed, rho), recipe, model).history


@pytest.fixture(scope="module")
def histories():
    """The history of each seed, by noise level and method."""
    with pytest.warns(UserWarning, match="treated as unlabelled"):  # at ρ = 0.5 some sets are full
        return {
            (rho, name): [history(seed, rho, METHODS[name]) for seed in SEEDS]
            for rho in (0.3, 0.5)
            for name in METHODS
        }


@pytest.fixture(scope="module")
def lead(histories):
    """How far LAAR is ahead of FedAvg in mean test accuracy, by noise level."""
    return {
        rho: accuracy(histories[rho, "full"]) - accuracy(histories[rho, "fedavg"])
        for rho in (0.3, 0.5)
    }


@pytest.fixture(scope="module")
def ablated(histories):
    """By how much mean test accuracy changes without each part, at ρ = 0.3."""
    full = accuracy([run[:ABLATION_ROUNDS] for run in histories[0.3, "full"]])
    return {
        name: accuracy([history(seed, 0.3, method, ABLATION_ROUNDS) for seed in SEEDS]) - full
        for name, method in ABLATIONS.items()
    }


def accuracy(runs):
    return mean(run[-1]["test"]["accuracy"] for run in runs)


def pseudo_label_accuracy(record):
    sites = record["sites"].values()
    total = sum(site["samples"] for site in sites)
    return sum(site["pseudo_label_accuracy"] * site["samples"] for site in sites) / total


@pytest.mark.parametrize("rho", [0.3, 0.5])
def test_laar_beats_fedavg_on_candidates_clearly(lead, rho):
    assert lead[rho] > 0.05


def test_lead_over_fedavg_grows_with_the_noise(lead):
    assert lead[0.5] > lead[0.3] + 0.02


def test_dropping_disambiguation_hurts_most(ablated):
    others = [change for name, change in ablated.items() if name != "w/o cld"]
    assert ablated["w/o cld"] < -0.05
    assert ablated["w/o cld"] < min(others) - 0.05


@pytest.mark.parametrize("name", sorted(ABLATIONS.keys() - {"w/o cld"}))
def test_no_other_ablation_helps(ablated, name):
    # A neutral part moves single seeds by up to 0.016.
    assert ablated[name] < 0.02


@pytest.mark.parametrize("rho", [0.3, 0.5])
def test_pseudo_labels_get_better_over_the_rounds(histories, rho):
    for run in histories[rho, "full"]:
        course = [pseudo_label_accuracy(record) for record in run]
        assert course[0] < 0.4
        assert course[-1] > 0.9
        assert course[0] < course[1] < mean(course[2:])
