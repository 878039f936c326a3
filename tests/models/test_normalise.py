import pytest
import torch

from potluck.errors import PotluckError
from potluck.models import Normalise


def test_bytes_are_scaled_then_standardised_per_channel():
    layer = Normalise((2, 1, 2), mean=[0.0, 0.5], std=[1.0, 0.25])
    x = torch.tensor([[[[0, 255]], [[51, 255]]]], dtype=torch.uint8)
    wanted = torch.tensor([[[[0.0, 1.0]], [[(0.2 - 0.5) / 0.25, 2.0]]]])
    torch.testing.assert_close(layer(x), wanted)


def test_floats_are_standardised_as_they_are_per_column():
    layer = Normalise((3,), mean=torch.tensor([1.0, 2.0, 3.0]), std=2)
    x = torch.tensor([[300.0, 2.0, -1.0]], dtype=torch.float64)
    assert torch.equal(layer(x), torch.tensor([[149.5, 0.0, -2.0]]))


@pytest.mark.parametrize("shape", [(3, 4, 5), (6,)])
def test_by_default_floats_pass_unchanged(shape):
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Normalise(shape)(x), x)


def test_statistics_travel_with_the_state():
    state = Normalise((3, 4, 4), mean=0.25, std=[0.1, 0.2, 0.3]).state_dict()
    assert {name: value.shape for name, value in state.items()} == {
        "mean": (3, 1, 1),
        "std": (3, 1, 1),
    }
    fresh = Normalise((3, 4, 4))
    fresh.load_state_dict(state)
    assert torch.equal(fresh.std, state["std"])


@pytest.mark.parametrize(
    ("shape", "statistics", "message"),
    [
        ((8, 8), {}, r"input shape \(8, 8\) is neither an image"),
        ((0,), {}, r"input shape \(0,\) is neither"),
        ((3, 8, 8), {"mean": [0.5, 0.5]}, "mean has 2 values.* have 3 channels"),
        ((4,), {"std": [1.0, 2.0]}, "std has 2 values.* have 4 columns"),
        ((2,), {"std": [1.0, 0.0]}, "std must be positive.* use 1"),
        ((2,), {"mean": float("nan")}, "mean must be finite; found"),
    ],
)
def test_unsuitable_statistics_are_explained(shape, statistics, message):
    with pytest.raises(PotluckError, match=message):
        Normalise(shape, **statistics)
