"""Coarse labels: the matrix is obeyed, exactly where it is certain and on average elsewhere."""

import pytest
import torch

from potluck.data.makers.coarse import coarsen
from potluck.errors import PotluckError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_matrix_of_zeros_and_ones_is_a_lookup():
    groups = torch.tensor([0, 2, 1, 1, 0])
    matrix = torch.zeros(3, 5).scatter_(0, groups.unsqueeze(0), 1.0)
    classes = torch.randint(5, (5000,), generator=seeded())
    for seed in range(3):
        assert torch.equal(coarsen(classes, matrix, seeded(seed)), groups[classes])


def test_overlapping_symbols_occur_with_their_probabilities():
    matrix = torch.tensor([[0.9, 0.2, 0.0], [0.1, 0.3, 1.0], [0.0, 0.5, 0.0]])
    classes = torch.arange(3).repeat_interleave(20_000)
    seen = coarsen(classes, matrix, seeded()).view(3, -1)
    found = torch.stack([torch.bincount(row, minlength=3) for row in seen]).T / 20_000
    assert torch.allclose(found, matrix, atol=0.015)
    assert (found[matrix == 0] == 0).all()


def test_the_seed_decides_the_symbols():
    matrix, classes = torch.full((2, 2), 0.5), torch.zeros(100, dtype=torch.long)
    assert torch.equal(coarsen(classes, matrix, seeded(1)), coarsen(classes, matrix, seeded(1)))
    assert not torch.equal(coarsen(classes, matrix, seeded(1)), coarsen(classes, matrix, seeded(2)))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1.0, 0.5, 1.0], [0.0, 0.4, 0.0]], "column of class 1 sums to 0.9, not 1"),
        ([[1.0, 1.5, 1.0], [0.0, -0.5, 0.0]], "has negative entries"),
        ([[1.0, 0.0], [0.0, 1.0]], "has 2 columns, but there are samples of class 2"),
    ],
)
def test_a_wrong_matrix_is_explained(matrix, message):
    with pytest.raises(PotluckError, match=message):
        coarsen(torch.tensor([0, 1, 2]), torch.tensor(matrix), seeded())
