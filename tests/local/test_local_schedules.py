"""Learning rates over the rounds, by hand."""

import math

import pytest
from by_hand import play, seesaw, seesaw_network, whole

import potluck as pl
from potluck.local import SCHEDULES


def test_constant_never_changes():
    assert {pl.Constant().factor(r, 50) for r in range(50)} == {1.0}


def test_cosine_starts_at_one_passes_the_middle_and_ends_near_its_floor():
    cosine = pl.Cosine()
    assert cosine.factor(0, 100) == 1
    assert cosine.factor(50, 100) == pytest.approx(0.5)
    assert cosine.factor(99, 100) == pytest.approx((1 - math.cos(math.pi / 100)) / 2)
    assert cosine.factor(100, 100) == pytest.approx(0)


def test_cosine_with_a_floor():
    cosine = pl.Cosine(floor=0.2)
    assert cosine.factor(0, 10) == 1
    assert cosine.factor(5, 10) == pytest.approx(0.6)
    assert cosine.factor(10, 10) == pytest.approx(0.2)


def test_step_multiplies_from_each_milestone_on():
    step = pl.Step(milestones=(2, 4), gamma=0.5)
    assert [step.factor(r, 6) for r in range(6)] == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_a_round_uses_the_rate_of_its_schedule():
    local = whole(0.8, schedule=pl.Step(milestones=(1,), gamma=0.25))
    recipe = pl.Recipe(rounds=2, local=local)
    _, records = play(seesaw_network(), recipe, seesaw(), rounds=2)
    assert [record["lr"] for record in records] == [0.8, 0.2]
    # From a = 0 with lr .8: .8/8 = .1; then .2 along the mean gradient at .1.
    states, _ = play(seesaw_network(), recipe, seesaw(), rounds=2)
    slope = 0.75 * (1 - 1 / (1 + math.exp(-0.2))) - 0.25 * 2 / (1 + math.exp(-0.4))
    assert float(states[1].theta[0]) == pytest.approx(0.1 + 0.2 * slope, abs=1e-12)


def test_schedules_are_known_by_name():
    assert {"constant": pl.Constant, "cosine": pl.Cosine, "step": pl.Step} == SCHEDULES
