"""Declared views against a model's predictions: the right ones stand, the wrong ones fall."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import potluck as pl
from potluck.data.makers.noise import flip, symmetric
from potluck.labels.refinement import SLIP, Refined, refined

SPACE = pl.LabelSpace.numbered(6)
GROUPS = {"low": list("012"), "high": list("345")}
MISREAD = {"low": list("01"), "high": list("2345")}


def samples(count=300, seed=0, sharp=3.0):
    """True classes, and the exact posteriors given points around e_y, `sharp` deviations apart."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(6, (count,), generator=generator)
    points = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    points = points + sharp * torch.nn.functional.one_hot(truth, 6)
    return truth, (sharp * points).log_softmax(1), generator


def compare(view: pl.LabelView, symbols, log_eta, trust=10.0) -> Refined:
    log_a, log_b = view.codebook.log(), view.normaliser.log()
    return refined(log_a, log_b, view.prior, symbols, log_eta, trust)


def test_a_right_mapping_stands():
    truth, log_eta, _ = samples()
    view = pl.coarse(SPACE, GROUPS)
    found = compare(view, view.codebook.argmax(0)[truth], log_eta)
    assert not found.refuted.any()
    assert torch.equal(found.log_a, view.codebook.log())


def test_of_a_mapping_with_one_wrong_class_that_class_falls():
    truth, log_eta, _ = samples()
    symbols = pl.coarse(SPACE, GROUPS).codebook.argmax(0)[truth]
    right = compare(pl.coarse(SPACE, GROUPS), symbols, log_eta)
    found = compare(pl.coarse(SPACE, MISREAD), symbols, log_eta)
    assert found.refuted.tolist() == [False, False, True, False, False, False]
    assert found.log_a[0, 2].exp() > 0.7
    assert found.surprise > 20 * right.surprise.clamp_min(1e-3)


def test_what_was_not_declared_is_learned():
    truth, log_eta, _ = samples()
    view = pl.coarse(SPACE, GROUPS)
    flat = pl.coarse(SPACE, torch.full((2, 6), 0.5), names=["low", "high"])
    found = compare(flat, view.codebook.argmax(0)[truth], log_eta, trust=1.0)
    assert found.refuted.all()
    assert torch.allclose(found.log_a.exp(), view.codebook, atol=0.15)


def test_the_wrong_noise_rate_shows_as_a_gap():
    truth, log_eta, generator = samples(600)
    symbols = flip(truth, symmetric(6, 0.3), generator)
    for declared, low, high in ((0.3, -3, 3), (0.5, 4, 40), (0.1, -60, -4)):
        found = compare(pl.noisy(SPACE, symmetric(6, declared)), symbols, log_eta)
        assert low < float(found.rate_gap) < high


def test_wrong_proportions_of_a_bag_fall_and_right_ones_stand():
    truth, log_eta, _ = samples(400)
    bag = (truth >= 3).long()  # all of the first three classes in one bag
    right = torch.stack([torch.bincount(truth[bag == m], minlength=6) / 200 for m in range(2)])
    right = right / right.sum(1, keepdim=True)
    sizes = torch.bincount(bag)
    stands = compare(pl.bags(SPACE, right, sizes=sizes, minimum_rank=1), bag, log_eta)
    assert not stands.refuted.any()
    wrong = torch.stack([right[0], torch.full((6,), 1 / 6)])
    falls = compare(pl.bags(SPACE, wrong, sizes=sizes, minimum_rank=1), bag, log_eta)
    assert falls.refuted.tolist() == [False, True]
    assert torch.allclose(falls.log_b.exp(), falls.log_a.exp().sum(0))


def test_samples_that_bags_with_other_proportions_would_have_elsewhere_are_misplaced():
    """Two bags of ten; by the model 6 and 4 of two classes in one, 2 and 8 in the other."""
    space = pl.LabelSpace(("a", "b"))
    predicted = torch.tensor([0] * 6 + [1] * 4 + [0] * 2 + [1] * 8)
    bag = torch.arange(20) // 10
    log_eta = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64).log()[predicted]
    right = torch.tensor([[0.6, 0.4], [0.2, 0.8]])
    assert float(compare(pl.bags(space, right), bag, log_eta).misplaced) < 1e-6
    wrong = torch.tensor([[0.9, 0.1], [0.3, 0.7]])  # three to move in one bag, one in the other
    assert float(compare(pl.bags(space, wrong), bag, log_eta).misplaced) == pytest.approx(4 / 20)


@given(st.integers(0, 200), st.sampled_from([1.0, 2.0, 3.0]))
def test_where_the_proportions_are_right_every_misplaced_sample_is_a_mistake(seed, sharp):
    truth, log_eta, generator = samples(90, seed, sharp)
    bag = torch.randint(7, (90,), generator=generator)
    found = torch.zeros(7, 6).index_put((bag, truth), torch.ones(90), accumulate=True)
    view = pl.bags(
        SPACE,
        found / found.sum(1, keepdim=True),
        sizes=found.sum(1),
        minimum_rank=1,
        maximum_condition=1e12,
    )
    mistakes = (log_eta.argmax(1) != truth).double().mean()
    assert compare(view, bag, log_eta).misplaced <= mistakes + 1e-6


@pytest.mark.parametrize(
    "view",
    [
        pl.exact(SPACE),
        pl.unlabeled(SPACE),
        pl.private_subset(SPACE, ["1", "4"]),
        pl.candidates(SPACE, torch.tensor([[1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1]])),
    ],
)
def test_certain_labels_candidates_and_missing_ones_have_nothing_to_refine(view):
    _, log_eta, _ = samples(5)
    found = compare(view, torch.zeros(5).long(), log_eta)
    assert len(found.refuted) == 0
    assert float(found.surprise) == float(found.misplaced) == 0
    assert torch.equal(found.log_a, view.codebook.log())


@given(st.integers(0, 200), st.sampled_from([1.0, 10.0]))
def test_the_estimate_is_the_maximum_a_posteriori(seed, trust):
    truth, log_eta, generator = samples(80, seed, sharp=2.0)
    flat = pl.coarse(SPACE, torch.full((3, 6), 1 / 3), names=["a", "b", "c"])
    symbols = flip_to_three(truth, generator)
    found = compare(flat, symbols, log_eta, trust)
    estimate = found.log_a.exp()

    def objective(book):
        fit = torch.logsumexp(book.log()[symbols] + log_eta, 1).sum()
        return fit + trust * (book.log() / 3).sum()

    best = objective(estimate) if found.refuted.all() else None
    if best is None:  # a column that stands is no estimate
        return
    for _ in range(5):
        nudge = torch.randn(estimate.shape, generator=generator, dtype=torch.float64)
        other = (estimate * (0.2 * nudge).exp()).clamp_min(SLIP / 10)
        assert objective(other / other.sum(0)) < best + 0.05


def flip_to_three(truth, generator):
    matrix = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]).repeat(1, 2)
    return torch.multinomial(matrix.T[truth], 1, generator=generator)[:, 0]
