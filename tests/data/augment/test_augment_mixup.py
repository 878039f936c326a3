"""Mixup's blend and the distribution of its shares."""

import pytest
import torch
from scipy import stats
from torch.func import vmap

from potluck.data.augment import draw_mixup, mixup
from potluck.errors import PotluckError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_mixup_blends_with_one_share_for_the_batch():
    x, partner = torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    mixed = mixup(x, partner, torch.tensor(0.75))
    torch.testing.assert_close(mixed, torch.tensor([[0.25, 0.75], [0.75, 1.0]]))


def test_stacked_sites_mix_with_their_own_shares():
    x, partner = torch.rand(2, 3, 5, 4, 4, 3, generator=generator()).unbind(0)
    lam = draw_mixup(generator(), (3,), 0.75)
    stacked = vmap(mixup)(x, partner, lam)
    for site in range(3):
        torch.testing.assert_close(stacked[site], mixup(x[site], partner[site], lam[site]))


@pytest.mark.parametrize("alpha", [0.5, 0.75, 1.0, 4.0])
def test_shares_have_the_moments_and_the_shape_of_a_beta(alpha):
    lam = draw_mixup(generator(), (200, 100), alpha)
    assert lam.shape == (200, 100)
    assert lam.dtype == torch.float32
    assert lam.min() >= 0
    assert lam.max() <= 1
    assert abs(lam.mean() - 0.5) < 0.01
    assert abs(lam.var() - 1 / (4 * (2 * alpha + 1))) < 0.004
    distance = stats.kstest(lam.flatten().double().numpy(), stats.beta(alpha, alpha).cdf)
    assert distance.pvalue > 0.01


def test_tiny_alpha_picks_one_of_the_two_instead_of_failing():
    lam = draw_mixup(generator(), (2000,), 1e-4)
    assert torch.isfinite(lam).all()
    assert ((lam < 1e-3) | (lam > 1 - 1e-3)).float().mean() > 0.99
    assert abs(lam.mean() - 0.5) < 0.05


def test_shares_follow_the_generator():
    assert torch.equal(draw_mixup(generator(1), (9,), 0.75), draw_mixup(generator(1), (9,), 0.75))
    assert not torch.equal(
        draw_mixup(generator(1), (9,), 0.75), draw_mixup(generator(2), (9,), 0.75)
    )


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_alpha_must_be_positive(alpha):
    with pytest.raises(PotluckError, match="mixup needs alpha above 0"):
        draw_mixup(generator(), (3,), alpha)
