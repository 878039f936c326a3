"""Every federated optimiser learns the digits.

The floors hold with a margin of .05 or more over 12 seeds (data, model and batches).
"""

import pytest
import torch
from torch import nn

import potluck as pl
from potluck.data.readers.digits import digits
from potluck.federated import FEDERATED

SPACE = pl.LabelSpace.numbered(10)
SETTINGS = {
    "fedadam": {"server_lr": 0.02},
    "fedyogi": {"server_lr": 0.02},
    "fedadagrad": {"server_lr": 0.03},
}


@pytest.fixture(scope="module")
def shuffled():
    data = digits()
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    return data.inputs[order], data.classes[order]


def with_batch_norm():
    torch.manual_seed(0)  # the model's own start
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)
    )


@pytest.mark.parametrize("name", FEDERATED)
def test_digits_are_learned(name, shuffled):
    inputs, classes = shuffled
    parts = {"large": slice(0, 300), "middle": slice(300, 500), "small": slice(500, 600)}
    federation = pl.Federation.of(
        [pl.Site.of(n, inputs[part], pl.exact(SPACE), classes[part]) for n, part in parts.items()],
        test=(inputs[1397:], classes[1397:]),
    )
    batch_norm, model = ("local", with_batch_norm()) if name == "fedbn" else ("average", "mlp")
    recipe = pl.Recipe(
        rounds=8,
        federated=FEDERATED[name](**SETTINGS.get(name, {})),
        local=pl.LocalTraining(lr=0.1, batch_size=50, optimiser=pl.SGD(momentum=0.9)),
        batch_norm=batch_norm,
    )
    accuracy = pl.train(federation, recipe, model).history[-1]["test"]["accuracy"]
    assert accuracy > 0.78


@pytest.mark.parametrize(
    ("optimiser", "lr"), [(pl.SGD(), 0.1), (pl.SGD(momentum=0.9), 0.05), (pl.Adam(), 0.003)]
)
def test_scaffold_learns_from_sites_that_each_have_two_digits(optimiser, lr, shuffled):
    # Control variates computed from a momentum step as if it were a plain one drive this to .1.
    inputs, classes = shuffled
    sites = []
    for first in range(0, 10, 2):
        own = ((classes // 2 == first // 2).nonzero().flatten())[:200]
        sites.append(pl.Site.of(f"site-{first}", inputs[own], pl.exact(SPACE), classes[own]))
    federation = pl.Federation.of(sites, test=(inputs, classes))
    local = pl.LocalTraining(
        lr=lr, epochs=2, batch_size=50, optimiser=optimiser, optimiser_state="keep"
    )
    recipe = pl.Recipe(rounds=8, federated=pl.Scaffold(), local=local)
    assert pl.train(federation, recipe).history[-1]["test"]["accuracy"] > 0.65
