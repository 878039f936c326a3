"""The made-up sEMG data: their form, their statistics, and how hard they are."""

import math

import pytest
import torch

from potluck.data.readers import read_dataset
from potluck.data.readers.semg_like import FEATURES, LENGTH, RATE, signals, summary
from potluck.errors import PotluckError


def test_the_data_have_the_papers_form():
    train, test = read_dataset("semg-like")
    assert train.inputs.shape == (9025, 12)
    assert test.inputs.shape == (1000, 12)
    assert torch.bincount(train.classes).tolist() == [1805] * 5
    assert torch.bincount(test.classes).tolist() == [200] * 5
    again, _ = read_dataset("semg-like")
    assert torch.equal(train.inputs, again.inputs)


def test_there_is_no_file_to_read():
    with pytest.raises(PotluckError, match="made, not read"):
        read_dataset("semg-like", "somewhere")


def test_the_statistics_of_a_pure_tone():
    cycles, height = 40, 2.0  # 40 periods in the window: 78.125 Hz, a bin of the transform
    time = torch.arange(LENGTH) / LENGTH
    tone = height * torch.sin(2 * math.pi * cycles * time + 0.1)
    found = dict(zip(FEATURES, summary(tone.unsqueeze(0))[0].tolist(), strict=True))
    assert found["MSV"] == pytest.approx(height**2 / 2, rel=1e-3)
    assert found["RMS"] == pytest.approx(height / math.sqrt(2), rel=1e-3)
    assert found["MAV"] == pytest.approx(2 * height / math.pi, rel=1e-2)
    assert found["VAR"] == pytest.approx(found["STD"] ** 2, rel=1e-4)
    assert found["ZC"] == pytest.approx(2 * cycles, abs=2)
    assert found["MSF"] == pytest.approx(cycles * RATE / LENGTH, rel=1e-2)
    assert found["MF"] == pytest.approx(cycles * RATE / LENGTH, rel=1e-3)


def test_severity_makes_the_signal_stronger_and_slower_on_average():
    severity = torch.arange(5).repeat_interleave(300)
    features = summary(signals(severity, torch.Generator().manual_seed(0)))
    means = torch.stack([features[severity == level].mean(0) for level in range(5)])
    strength, frequency = means[:, FEATURES.index("RMS")], means[:, FEATURES.index("MSF")]
    assert (strength.diff() > 0).all()
    assert frequency[-1] < frequency[0]


def test_neighbouring_severities_overlap():
    from sklearn.linear_model import LogisticRegression

    train, test = read_dataset("semg-like")
    mean, deviation = train.inputs.mean(0), train.inputs.std(0)
    model = LogisticRegression(max_iter=300)
    model.fit(((train.inputs - mean) / deviation).numpy()[:4000], train.classes[:4000])
    score = model.score(((test.inputs - mean) / deviation).numpy(), test.classes)
    assert 0.55 < score < 0.8
