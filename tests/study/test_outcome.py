"""What a finished run folder says about its model."""

import numpy as np
import pytest
import torch

from potluck.engines import Recipe
from potluck.federation import Federation, Site
from potluck.labels import LabelSpace, coarse, exact
from potluck.local import LocalTraining
from potluck.methods import FedMT
from potluck.study.outcome import read_outcome, write_outcome
from potluck.study.stocktaking import take_outcome
from potluck.training import train

SPACE = LabelSpace(("a", "b", "c"))
CODES = coarse(SPACE, {"vowel": ["a"], "consonant": ["b", "c"]})


@pytest.fixture(scope="module")
def federation() -> Federation:
    """Classes that lie apart, coarse labels at the site, exact ones at the server."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(60) % 3
    inputs = torch.eye(3)[truth] * 4 + torch.randn(60, 3, generator=generator)
    site = Site.of("clinic", inputs, CODES, (truth > 0).long(), truth)
    server = Site.of("server", inputs[:30], exact(SPACE), truth[:30], truth[:30])
    return Federation.of([site], server, test=(inputs, truth))


@pytest.fixture(scope="module")
def trained(federation):
    method = FedMT(tau=0.5, weak="none", strong="none", lambda2=0)
    return train(federation, Recipe(rounds=6, method=method, local=LocalTraining(lr=0.1)))


def test_confusion_and_estimated_meaning_are_those_of_the_final_model(federation, trained):
    found = take_outcome(trained, federation)
    accuracy = trained.evaluate(*federation.test).accuracy
    assert found.rounds == 6
    assert found.test.confusion.trace() / found.test.confusion.sum() == pytest.approx(accuracy)
    matrix = trained.state.sites["clinic"].method["correspondence"]
    assert np.array_equal(found.correspondence["clinic"], matrix)
    assert "server" not in found.correspondence


def test_everything_survives_the_way_through_the_files(federation, trained, tmp_path):
    before = take_outcome(trained, federation)
    write_outcome(tmp_path, before)
    after = read_outcome(tmp_path)
    assert after.rounds == 6
    assert np.array_equal(after.test.confusion, before.test.confusion)
    assert np.array_equal(after.test.calibration, before.test.calibration)
    assert np.array_equal(after.correspondence["clinic"], before.correspondence["clinic"])


def test_without_a_test_set_there_is_no_confusion(federation, trained, tmp_path):
    untested = Federation.of(federation.sites, federation.server)
    write_outcome(tmp_path, take_outcome(trained, untested))
    assert read_outcome(tmp_path).test is None


def test_a_run_that_is_not_finished_has_no_outcome(tmp_path):
    assert read_outcome(tmp_path) is None
