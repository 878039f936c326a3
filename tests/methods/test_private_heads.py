"""Heads that private sites need not learn against each other: fixed, and of least squares."""

import pytest
import torch
from by_hand import play, whole
from torch import nn

import potluck as pl
from potluck.engines import Stacked
from potluck.methods import FixedHead, RidgeHead
from potluck.methods.fixed_head import direction
from potluck.models import Classifier
from potluck.models.network import Network

NAMES = ("ant", "bee", "cow", "dog")
SPACE = pl.LabelSpace(NAMES)
CLASSES = {"one": ["cow", "ant"], "two": ["bee", "cow", "ant"], "three": ["bee", "cow"]}
MAKE = {
    "private": pl.private_subset,
    "own": pl.subset,
    "all": lambda space, classes: pl.subset(space, classes, softmax="all"),
    "exact": lambda space, classes: pl.exact(space),
}


def network(bias=True):
    torch.manual_seed(4)  # the model's own start, not the round's randomness
    encoder = nn.Sequential(nn.Linear(3, 6), nn.Tanh())
    return Network(Classifier(encoder, nn.Linear(6, 4, bias=bias)))


def federation(kind, counts=(6, 9, 4)):
    generator = torch.Generator().manual_seed(2)
    return pl.Federation.of(
        [
            pl.Site.of(
                name,
                torch.randn(count, 3, generator=generator),
                MAKE[kind](SPACE, own),
                [own[i % len(own)] for i in range(count)],
            )
            for (name, own), count in zip(CLASSES.items(), counts, strict=True)
        ]
    )


def head(theta, bias=True):
    return network(bias).layout.unflatten(theta)


def test_a_fixed_row_depends_on_the_name_of_its_class_alone():
    for space in (SPACE, pl.LabelSpace(("eel", "cow", "ant"))):
        site = pl.Site.of("farm", torch.zeros(2, 3), pl.subset(space, ["cow", "ant"]), [0, 1])
        rows = FixedHead(scale=3.0).server_start(network(), pl.Federation.of([site]))["rows"]
        for name in ("cow", "ant"):
            assert torch.equal(rows[space.index(name)], 3 * direction(name, 6))


def test_directions_of_different_names_are_nearly_orthogonal_in_many_dimensions():
    rows = torch.stack([direction(f"class {i}", 512) for i in range(100)])
    cosines = rows @ rows.T - torch.eye(100)
    assert torch.allclose(rows.norm(dim=1), torch.ones(100), atol=1e-6)
    assert cosines.abs().max() < 0.25
    assert abs(float(cosines.mean())) < 0.01


@pytest.mark.parametrize("federated", [pl.FedAvg(), pl.FedAdam(), pl.Scaffold(), pl.FedProx()])
def test_a_fixed_head_never_moves_and_the_encoder_learns(federated):
    local = whole(0.1, steps=3, optimiser=pl.AdamW(weight_decay=0.5))
    recipe = pl.Recipe(rounds=2, method=FixedHead(scale=2.0), federated=federated, local=local)
    states, _ = play(network(), recipe, federation("private"), rounds=2)
    expected = 2 * torch.stack([direction(name, 6) for name in NAMES])
    for state in states:
        assert torch.equal(head(state.theta)["head.weight"], expected)
        assert not head(state.theta)["head.bias"].any()
    start = head(network().initial()[0])["encoder.0.weight"]
    assert not torch.allclose(head(states[-1].theta)["encoder.0.weight"], start, atol=1e-3)


def test_under_a_fixed_head_private_sites_learn_what_open_ones_learn():
    recipe = pl.Recipe(rounds=2, method=FixedHead(), local=whole(0.5, steps=2))
    ends = [
        play(network(), recipe, federation(kind), rounds=2)[0][-1].theta
        for kind in ("private", "own")
    ]
    assert torch.allclose(*ends, atol=1e-6)


def central_ridge(sites, ridge, scale, bias=True):
    """Least squares on all samples, one-hot labels and the first encoder."""
    module = network(bias).module(network(bias).initial()[0], {})
    with torch.no_grad():
        features = torch.cat([module.encoder(site.inputs) for site in sites]).double()
    classes = torch.cat([site.view.codebook.argmax(1)[site.symbols] for site in sites])
    if bias:
        features = torch.cat([features, torch.ones(len(features), 1).double()], 1)
    penalty = ridge * (features**2).sum() / features.shape[1]
    # As rows of data: √penalty · I with target 0.
    tall = torch.cat([features, penalty.sqrt() * torch.eye(features.shape[1]).double()])
    target = torch.cat(
        [nn.functional.one_hot(classes, 4), torch.zeros(features.shape[1], 4)]
    ).double()
    return scale * torch.linalg.lstsq(tall, target).solution.T


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("bias", [True, False])
def test_the_ridge_head_is_that_of_all_samples_in_one_place(kind, bias):
    sites = federation(kind)
    method = RidgeHead(ridge=0.01, scale=5.0)
    recipe = pl.Recipe(rounds=1, method=method, local=whole(0.5, steps=2))
    states, _ = play(network(bias), recipe, sites)
    rows = central_ridge(sites.sites, 0.01, 5.0, bias)
    found = head(states[0].theta, bias)
    assert torch.allclose(found["head.weight"][:3].double(), rows[:3, :6], atol=1e-4)
    if bias:
        assert torch.allclose(found["head.bias"][:3].double(), rows[:3, 6], atol=1e-4)
    # Nobody has dogs: their row is the one that the model started with.
    start = head(network(bias).initial()[0], bias)
    if kind in ("private", "own"):
        assert torch.equal(found["head.weight"][3], start["head.weight"][3])


def test_the_ridge_head_does_not_depend_on_who_has_which_samples():
    merged = federation("exact")
    inputs = torch.cat([site.inputs for site in merged.sites])
    classes = torch.cat([site.view.codebook.argmax(1)[site.symbols] for site in merged.sites])
    pooled = pl.Federation.of([pl.Site.of("all", inputs, pl.exact(SPACE), classes)])
    recipe = pl.Recipe(rounds=1, method=RidgeHead(), local=whole())
    ends = [head(play(network(), recipe, sites)[0][0].theta) for sites in (merged, pooled)]
    assert torch.allclose(ends[0]["head.weight"], ends[1]["head.weight"], atol=1e-4)


def test_each_round_has_sums_of_its_own():
    recipe = pl.Recipe(rounds=4, cohort=1, seed=3, method=RidgeHead(), local=whole())
    sites = federation("private")
    states, records = play(network(), recipe, sites, rounds=4)
    counts = {site.name: len(site) for site in sites.sites}
    for state, record in zip(states, records, strict=True):
        assert float(state.method["gram"][-1, -1]) == pytest.approx(counts[record["cohort"][0]])
        assert not state.method["arriving.gram"].any()


def test_engines_agree_on_ridge_heads_of_private_sites():
    recipe = pl.Recipe(rounds=2, method=RidgeHead(), local=whole(0.2, steps=2))
    ends = [
        play(network(), recipe, federation("private"), rounds=2, engine=engine)[0][-1].theta
        for engine in (None, Stacked())
    ]
    assert torch.allclose(*ends, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FixedHead(scale=0.0), "method.scale is 0.0; it must be above 0"),
        (RidgeHead(ridge=0.0), "method.ridge is 0.0; it must be above 0"),
        (RidgeHead(scale=-1.0), "method.scale is -1.0; it must be above 0"),
    ],
)
def test_settings_out_of_range_are_refused(method, message):
    with pytest.raises(pl.PotluckError, match=message):
        pl.Recipe(rounds=1, method=method).check(federation("private"))


def test_a_ridge_head_needs_the_class_of_every_sample():
    site = pl.Site.of("dark", torch.zeros(2, 3), pl.unlabeled(SPACE))
    with pytest.raises(pl.PotluckError, match='site "dark" has a view of kind unlabeled'):
        pl.Recipe(rounds=1, method=RidgeHead()).check(pl.Federation.of([site]))
