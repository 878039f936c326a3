"""Sites with some of the classes: per-class head averages, public and private.

The oracle is Algorithm 1 of "Private label sets" on ordinary modules: each site trains an
encoder and a head with rows for its own classes only.
"""

from copy import deepcopy

import pytest
import torch
from by_hand import Spy, play, whole
from torch import nn

import potluck as pl
from potluck.engines.rounds import choose
from potluck.models import Classifier
from potluck.models.network import Network

SPACE = pl.LabelSpace(("ant", "bee", "cow", "dog"))
CLASSES = {"one": ["cow", "ant"], "two": ["bee", "cow", "ant"], "three": ["bee", "cow"]}
COUNTS = {"one": 6, "two": 9, "three": 4}
KINDS = {"public": pl.subset, "private": pl.private_subset}


def network():
    torch.manual_seed(11)  # the model's own start, not the round's randomness
    encoder = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
    return Network(Classifier(encoder, nn.Linear(5, 4)).double())


def federation(kind, classes=CLASSES):
    generator = torch.Generator().manual_seed(2)
    return pl.Federation.of(
        [
            pl.Site.of(
                name,
                torch.randn(COUNTS[name], 3, generator=generator).double(),
                KINDS[kind](SPACE, own),
                [own[i % len(own)] for i in range(COUNTS[name])],
            )
            for name, own in classes.items()
        ]
    )


def by_algorithm_1(network, sites, rounds, train):
    """Algorithm 1 on ordinary modules.

    Args:
      network: where to start.
      sites:   {name: (inputs, labels within the site's own classes, indices of its classes)}.
      rounds:  how many rounds.
      train:   trains a site's module in place.
    """
    central = network.module(*network.initial())
    for _ in range(rounds):
        updates = {}
        for name, (inputs, labels, index) in sites.items():
            module = Classifier(deepcopy(central.encoder), nn.Linear(5, len(index)).double())
            with torch.no_grad():
                module.head.weight.copy_(central.head.weight[index])
                module.head.bias.copy_(central.head.bias[index])
            train(module, inputs, labels)
            updates[name] = module
        total = sum(len(inputs) for inputs, _, _ in sites.values())
        encoder = {
            key: sum(
                len(sites[name][0]) / total * module.encoder.state_dict()[key]
                for name, module in updates.items()
            )
            for key in central.encoder.state_dict()
        }
        central.encoder.load_state_dict(encoder)
        for y in range(4):
            holders = [name for name, (_, _, index) in sites.items() if y in index]
            n_y = sum(len(sites[name][0]) for name in holders)
            if not holders:
                continue
            for part in ("weight", "bias"):
                rows = {n: getattr(updates[n].head, part)[sites[n][2].index(y)] for n in holders}
                mean = sum(len(sites[n][0]) / n_y * row for n, row in rows.items())
                with torch.no_grad():
                    getattr(central.head, part)[y] = mean
    return network.layout.flatten(dict(central.named_parameters()))


def descent(lr, steps, mu=0.0):
    """Full-batch SGD on cross-entropy, with a proximal term on the encoder."""

    def train(module, inputs, labels):
        start = deepcopy(module)
        optimiser = torch.optim.SGD(module.parameters(), lr=lr)
        for _ in range(steps):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(module(inputs), labels)
            pairs = zip(module.encoder.parameters(), start.encoder.parameters(), strict=True)
            loss = loss + mu / 2 * sum(((p - q.detach()) ** 2).sum() for p, q in pairs)
            loss.backward()
            optimiser.step()

    return train


def oracle_sites(classes=CLASSES):
    return {
        site.name: (site.inputs, site.symbols, [SPACE.index(c) for c in classes[site.name]])
        for site in federation("public", classes).sites
    }


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_averaged_over_their_holders_and_the_encoder_over_all(kind):
    recipe = pl.Recipe(rounds=3, local=whole(0.5, steps=3))
    states, _ = play(network(), recipe, federation(kind), rounds=3)
    expected = by_algorithm_1(network(), oracle_sites(), 3, descent(0.5, 3))
    assert torch.allclose(states[-1].theta, expected, atol=1e-12)


def test_one_round_of_head_averages_written_out():
    # No encoder, head W = 0, one feature x = 1, classes a, b, c, d. Site S (2 samples, class a of
    # {a, b}) moves row a by +1/2 and b by −1/2. Site T (6 samples, class b of {c, b}) moves b by
    # +1/2 and c by −1/2. Row b: (2 · −1/2 + 6 · 1/2) / 8 = 1/4. Nobody has d.
    space = pl.LabelSpace(("a", "b", "c", "d"))
    head = nn.Linear(1, 4, bias=False).double()
    nn.init.zeros_(head.weight)
    model = Network(Classifier(nn.Identity(), head))
    for make in KINDS.values():
        sites = [
            pl.Site.of("S", torch.ones(2, 1).double(), make(space, ["a", "b"]), ["a"] * 2),
            pl.Site.of("T", torch.ones(6, 1).double(), make(space, ["c", "b"]), ["b"] * 6),
        ]
        states, _ = play(model, pl.Recipe(rounds=1, local=whole()), pl.Federation.of(sites))
        assert states[0].theta.tolist() == pytest.approx([0.5, 0.25, -0.5, 0.0], abs=1e-15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "federated", [pl.FedAvg(), pl.FedAvgM(), pl.FedAdam(), pl.FedYogi(), pl.FedNova()]
)
def test_a_row_that_nobody_holds_keeps_its_value_exactly(kind, federated):
    recipe = pl.Recipe(rounds=3, federated=federated, local=whole(0.5, steps=2))
    states, _ = play(network(), recipe, federation(kind), rounds=3)
    before = network().layout.unflatten(network().initial()[0])
    after = network().layout.unflatten(states[-1].theta)
    for part in ("head.weight", "head.bias"):
        assert torch.equal(before[part][3], after[part][3])
        assert not torch.equal(before[part][:3], after[part][:3])


@pytest.mark.parametrize("federated", [pl.FedAvgM(), pl.FedAdam(), pl.Scaffold()])
def test_server_momentum_does_not_move_a_row_whose_holders_are_not_in_the_cohort(federated):
    classes = {"one": ["cow", "ant"], "three": ["bee", "dog"]}
    sites = federation("private", classes)
    recipe = next(
        recipe
        for seed in range(50)
        if (
            recipe := pl.Recipe(
                rounds=2, seed=seed, cohort=1, federated=federated, local=whole(0.5)
            )
        )
        and [choose(recipe, sites.sites, r)[0].name for r in (0, 1)] == ["one", "three"]
    )
    (first, second), _ = play(network(), recipe, sites, rounds=2)
    layout = network().layout
    entries = layout.entries(torch.tensor([0, 2]))
    rows = entries[torch.isin(entries, layout.entries(torch.tensor([1, 3])), invert=True)]
    start = network().initial()[0]
    assert not torch.equal(first.theta[rows], start[rows])
    assert torch.equal(second.theta[rows], first.theta[rows])
    assert not torch.equal(second.theta, first.theta)


@pytest.mark.parametrize(
    "optimiser", [pl.SGD(), pl.SGD(momentum=0.9, weight_decay=0.1), pl.Adam(), pl.AdamW()]
)
@pytest.mark.parametrize("federated", [pl.FedAvg(), pl.FedAvgM(), pl.Scaffold(), pl.FedAdam()])
def test_private_sites_learn_what_public_ones_learn(optimiser, federated):
    # A row that a site lacks has no gradient there, and what decay does to it is not sent.
    local = pl.LocalTraining(lr=0.05, optimiser=optimiser, batch_size=2, epochs=2)
    recipe = pl.Recipe(rounds=3, federated=federated, local=local)
    ends = [play(network(), recipe, federation(kind), rounds=3)[0][-1].theta for kind in KINDS]
    assert torch.allclose(*ends, atol=1e-10)


def test_a_private_site_with_all_classes_in_its_own_order_learns_what_an_open_one_learns():
    classes = {"one": ["dog", "bee", "ant", "cow"], "two": ["bee", "dog"]}
    recipe = pl.Recipe(rounds=2, local=whole(0.5, steps=2))
    private, _ = play(network(), recipe, federation("private", classes), rounds=2)
    public, _ = play(network(), recipe, federation("public", classes), rounds=2)
    expected = by_algorithm_1(network(), oracle_sites(classes), 2, descent(0.5, 2))
    assert torch.allclose(private[-1].theta, expected, atol=1e-12)
    assert torch.allclose(public[-1].theta, expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_site_receives(kind):
    spy = Spy()
    recipe = pl.Recipe(rounds=2, federated=pl.Scaffold(), local=whole(0.5, steps=2))
    states, _ = play(network(), recipe, federation(kind), rounds=2, engine=spy)
    model, state = network(), states[0]
    parameters = model.layout.unflatten(state.theta)
    control = model.layout.unflatten(state.federated["control"])
    for name, sent in spy.broadcasts[3:]:  # the second round: control variates are not 0
        if kind == "public":
            assert torch.equal(sent.theta, state.theta)
            continue
        index = [SPACE.index(c) for c in CLASSES[name]]
        for vector, source in ((sent.theta, parameters), (sent.aligned["control"], control)):
            got = model.layout.narrowed(len(index)).unflatten(vector)
            assert torch.equal(got["encoder.0.weight"], source["encoder.0.weight"])
            assert torch.equal(got["encoder.0.bias"], source["encoder.0.bias"])
            for part in ("head.weight", "head.bias"):
                assert torch.equal(got[part], source[part][index])  # its own rows, own order
        assert sent.aligned["control"].abs().max() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_site_sends_covers_the_encoder_and_its_own_rows_only(kind):
    spy = Spy()
    recipe = pl.Recipe(rounds=1, federated=pl.Scaffold(), local=whole(0.5, steps=2))
    play(network(), recipe, federation(kind), engine=spy)
    encoder = 3 * 5 + 5
    for update in spy.updates:
        size = encoder + len(CLASSES[update.site]) * (5 + 1)
        assert update.delta.shape == update.aligned["control"].shape == (size,)
        assert update.extras == update.buffers == {}


def test_fedprox_leaves_a_private_head_out():
    recipe = pl.Recipe(rounds=2, federated=pl.FedProx(mu=0.7), local=whole(0.5, steps=3))
    states, _ = play(network(), recipe, federation("private"), rounds=2)
    expected = by_algorithm_1(network(), oracle_sites(), 2, descent(0.5, 3, mu=0.7))
    assert torch.allclose(states[-1].theta, expected, atol=1e-12)
    public, _ = play(network(), recipe, federation("public"), rounds=2)
    assert not torch.allclose(public[-1].theta, expected, atol=1e-4)
