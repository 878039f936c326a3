"""What labels are worth, compared with exact ones: against sums over all symbols, by hand."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import potluck as pl
from potluck.data.makers.noise import symmetric
from potluck.labels.information import removed_variance, symbol_entropy, worth
from potluck.losses import view_nll

SPACE = pl.LabelSpace.numbered(10)
GROUPS = {"low": list("0123"), "middle": list("456"), "high": list("789")}


def posteriors(count: int, classes: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, classes, generator=generator, dtype=torch.float64).log_softmax(1)


def worth_of(view: pl.LabelView, log_eta: torch.Tensor, symbols: torch.Tensor) -> float:
    log_a, log_b = view.codebook.log(), view.normaliser.log()
    return float(worth(log_eta, log_a[symbols], log_b)[0])


def test_an_exact_label_is_worth_one_and_none_is_worth_nothing():
    log_eta, classes = posteriors(50, 10, 0), torch.arange(50) % 10
    assert worth_of(pl.exact(SPACE), log_eta, classes) == pytest.approx(1)
    assert worth_of(pl.unlabeled(SPACE), log_eta, torch.zeros(50).long()) < 1e-6


def test_three_groups_of_ten_classes_are_worth_two_ninths_before_anything_is_learned():
    # Gini impurity falls from 0.9 to 0.4 · 3/4 + 2 · 0.3 · 2/3 = 0.7.
    view = pl.coarse(SPACE, GROUPS)
    symbols = view.codebook.argmax(0)  # each class once
    log_eta = torch.full((10, 10), 0.1).double().log()
    assert worth_of(view, log_eta, symbols) == pytest.approx(0.2 / 0.9, rel=1e-6)


def test_more_noise_is_worth_less():
    log_eta = torch.full((10, 10), 0.1).double().log()
    found = [
        worth_of(pl.noisy(SPACE, symmetric(10, rate)), log_eta, torch.arange(10))
        for rate in (0.0, 0.2, 0.4, 0.6, 0.9)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(1)
    assert found[-1] == pytest.approx(0, abs=1e-6)


@given(st.integers(0, 1000))
def test_the_removed_variance_is_the_fisher_information_about_each_logit(seed):
    generator = torch.Generator().manual_seed(seed)
    book = torch.rand(4, 3, generator=generator, dtype=torch.float64) + 0.05
    book = book / book.sum(0)
    log_eta = posteriors(1, 3, seed).requires_grad_()
    log_p = torch.logsumexp(log_eta + book.log(), 1) - torch.logsumexp(log_eta, 1)  # (Z,)
    scores = torch.stack([torch.autograd.grad(p, log_eta, retain_graph=True)[0] for p in log_p])
    fisher = (log_p.exp().detach()[:, None] * scores[:, 0] ** 2).sum(0)
    removed = [
        log_p[z].exp().detach()
        * removed_variance(log_eta.detach(), book[z].log(), torch.zeros(3))[0]
        for z in range(4)
    ]
    assert torch.allclose(torch.stack(removed).sum(0), fisher, atol=1e-9)


def entropy_of(view: pl.LabelView) -> torch.Tensor:
    return symbol_entropy(view.codebook.log(), view.normaliser.log())


def test_who_knows_the_class_is_surprised_by_noise_and_by_bags_only():
    noisy = entropy_of(pl.noisy(SPACE, symmetric(10, 0.4)))
    assert noisy.tolist() == pytest.approx([-0.6 * log(0.6) - 0.4 * log(0.4 / 9)] * 10)
    two = pl.LabelSpace(("a", "b"))
    bags = entropy_of(pl.bags(two, [[0.75, 0.25], [0.25, 0.75]]))
    assert bags.tolist() == pytest.approx([-0.75 * log(0.75) - 0.25 * log(0.25)] * 2)
    sets = torch.eye(10) + torch.eye(10).roll(1, 0)
    for view in (
        pl.exact(SPACE),
        pl.coarse(SPACE, GROUPS),
        pl.candidates(SPACE, sets),
        pl.subset(SPACE, list("135")),
        pl.unlabeled(SPACE),
    ):
        assert entropy_of(view).tolist() == [0] * 10


def test_overlapping_groups_leave_one_bit_of_chance_in_the_classes_they_share():
    view = pl.coarse(SPACE, {"low": list("01234"), "high": list("456789")})
    assert entropy_of(view).tolist() == pytest.approx([0] * 4 + [log(2)] + [0] * 5)


@given(st.integers(0, 1000))
def test_symbol_entropy_is_the_expected_loss_of_a_model_that_knows_the_class(seed):
    generator = torch.Generator().manual_seed(seed)
    book = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    log_a, log_b = book.log(), book.sum(0).log()
    sure = 1e3 * torch.eye(3, dtype=torch.float64)  # logits, one row for each class
    losses = torch.stack([view_nll(sure, row, log_b) for row in log_a])  # (Z, K)
    expected = ((log_a - log_b).exp() * losses).sum(0)
    assert torch.allclose(symbol_entropy(log_a, log_b), expected)
