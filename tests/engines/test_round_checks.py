"""Updates that must not enter the average, and what the errors say."""

import pytest
import torch
from by_hand import (
    CPU,
    descend,
    gradient_a,
    gradient_b,
    play,
    seesaw,
    seesaw_network,
    whole,
)

import potluck as pl
from potluck.engines import run, start
from potluck.engines.engine import Finished
from potluck.engines.sequential import Sequential
from potluck.engines.site_round import check_update
from potluck.errors import PotluckError
from potluck.messages import SiteState, Update


def update(**changes):
    parts = {"site": "ward-3", "samples": 5, "delta": torch.zeros(4), "buffers": {}, **changes}
    return Update(**parts)


NAN = torch.tensor([0.0, float("nan"), 0.0, 0.0])
INF = torch.tensor([0.0, float("inf"), 0.0, 0.0])


def test_a_good_update_passes():
    check_update(update(aligned={"control": torch.ones(4)}, buffers={"n": torch.tensor(3)}), 4, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": torch.zeros(3)}, r"the update has shape \(3,\), expected \(4,\)"),
        ({"delta": torch.zeros(2, 2)}, r"the update has shape \(2, 2\), expected \(4,\)"),
        ({"aligned": {"control": torch.zeros(5)}}, r"control has shape \(5,\), expected \(4,\)"),
        ({"delta": NAN}, "the update has values that are not finite numbers: training diverged"),
        ({"delta": INF}, "Lower local.lr or set local.clip"),
        ({"aligned": {"control": NAN}}, "control has values that are not finite"),
        ({"extras": {"accumulated": INF}}, "accumulated has values that are not finite"),
        ({"buffers": {"running_var": NAN}}, "running_var has values that are not finite"),
    ],
)
def test_a_bad_update_is_refused_by_round_and_site(changes, message):
    with pytest.raises(PotluckError, match=f'round 7, site "ward-3": .*{message}'):
        check_update(update(**changes), 4, 6)


class Broken:
    """An engine whose second site sends nonsense."""

    def run(self, orders):
        for site in orders.cohort:
            size = 2 if site.name == "A" else 3
            sent = update(site=site.name, delta=torch.zeros(size, dtype=torch.float64))
            yield [Finished(site, sent, SiteState())]


def test_the_round_checks_every_update():
    recipe = pl.Recipe(rounds=1, local=whole())
    with pytest.raises(PotluckError, match=r'round 1, site "B".*shape \(3,\), expected \(2,\)'):
        play(seesaw_network(), recipe, seesaw(), engine=Broken())


def test_divergence_names_round_and_site_and_leaves_the_last_state():
    # In round 2 the first step at B goes so far that its logits, twice as far, overflow.
    schedule = pl.Step(milestones=(1,), gamma=1e308)
    recipe = pl.Recipe(rounds=2, local=whole(1.0, steps=2, schedule=schedule))
    network, states = seesaw_network(), []
    first = start(network, recipe, seesaw(), CPU)
    with pytest.raises(PotluckError, match=r'round 2, site "B": the update .* diverged'):
        run(network, recipe, seesaw(), Sequential(), first, lambda s, _: states.append(s))
    (last,) = states
    assert last.round == 1
    assert torch.isfinite(last.theta).all()


@pytest.mark.parametrize("federated", [pl.FedAvg(), pl.FedNova(), pl.Scaffold()])
def test_drift_is_how_far_a_sites_model_moved(federated):
    """FedNova sends its change divided by the number of steps; that is no shorter way."""
    local, ends = whole(0.5, steps=3), {"A": gradient_a, "B": gradient_b}
    _, (record,) = play(seesaw_network(), pl.Recipe(1, federated=federated, local=local), seesaw())
    for name, gradient in ends.items():
        # Both entries of θ, the two rows of the head, move by as much.
        moved = 2**0.5 * abs(descend(gradient, 0.0, 0.5, 3))
        assert record["sites"][name]["drift"] == pytest.approx(moved, rel=1e-12)


def test_a_learning_rate_that_diverges_on_images_says_so():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (40, 1, 6, 6), generator=generator, dtype=torch.uint8)
    space = pl.LabelSpace.numbered(2)
    site = pl.Site.of("ward-3", inputs, pl.exact(space), torch.arange(40) % 2)
    recipe = pl.Recipe(rounds=20, local=pl.LocalTraining(lr=1e12))
    with pytest.raises(PotluckError, match=r'site "ward-3".*training diverged'):
        pl.train(pl.Federation.of([site]), recipe)
