"""Confusion and calibration, against loops over the samples."""

import pytest
import torch

from potluck.engines.evaluation import BINS, examine


def drawn(count=400, classes=5):
    generator = torch.Generator().manual_seed(3)
    probabilities = torch.randn(count, classes, generator=generator).mul(3).softmax(1)
    return probabilities, torch.randint(classes, (count,), generator=generator)


def test_confusion_counts_true_rows_and_predicted_columns():
    probabilities, classes = drawn()
    expected = torch.zeros(5, 5, dtype=torch.int64)
    for row, true in zip(probabilities, classes, strict=True):
        expected[true, row.argmax()] += 1
    assert torch.equal(examine(probabilities, classes).confusion, expected)


def test_every_bin_has_its_count_its_confidence_and_its_hits():
    probabilities, classes = drawn()
    expected = torch.zeros(BINS, 3, dtype=torch.float64)
    for row, true in zip(probabilities.double(), classes, strict=True):
        place = min(int(row.max() * BINS), BINS - 1)
        expected[place] += torch.tensor([1, row.max(), row.argmax() == true], dtype=torch.float64)
    assert torch.allclose(examine(probabilities, classes).calibration, expected)


def test_a_probability_of_one_belongs_to_the_last_bin():
    found = examine(torch.eye(2)[[0, 1, 1]], torch.tensor([0, 1, 0]))
    assert found.calibration[-1].tolist() == pytest.approx([3, 3, 2])
    assert found.calibration[:-1].sum() == 0
