import math

import pytest
import torch

from potluck.losses.dimension import local_intrinsic_dimension


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_points_in_a_flat_piece_of_space_have_its_dimension(dimension):
    generator = torch.Generator().manual_seed(dimension)
    flat = torch.rand(2000, dimension, generator=generator, dtype=torch.float64)
    embedded = torch.cat([flat, torch.zeros(2000, 3, dtype=torch.float64)], 1)
    # The plain average of 1/x̄ overestimates by k/(k−1); edges pull the other way.
    found = local_intrinsic_dimension(embedded, neighbours=20).mean().item()
    assert found == pytest.approx(dimension, rel=0.12)


def test_estimate_equals_the_formula_point_by_point_and_in_chunks():
    points = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = []
    for i in range(30):
        distances = sorted((points[i] - points[j]).norm().item() for j in range(30) if j != i)
        near = distances[:5]
        expected.append(-1 / (sum(math.log(r / near[-1]) for r in near) / 5))
    for chunk in (7, 100):
        found = local_intrinsic_dimension(points, neighbours=5, chunk=chunk)
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_points_that_coincide_have_no_dimension():
    assert local_intrinsic_dimension(torch.ones(4, 2)).tolist() == [0, 0, 0, 0]
