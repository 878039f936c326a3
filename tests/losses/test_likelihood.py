"""The one loss equals each paper's formula, with the right gradient, whatever the view."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor
from torch.autograd import gradcheck

from potluck.labels import (
    LabelSpace,
    LabelView,
    bags,
    candidates,
    coarse,
    exact,
    noisy,
    private_subset,
    subset,
    unlabeled,
)
from potluck.losses import log_posterior, view_nll

SAMPLES = 3


def spaces() -> st.SearchStrategy[LabelSpace]:
    return st.integers(2, 8).map(LabelSpace.numbered)


def tables(rows: int, columns: int, low: float = 0.0) -> st.SearchStrategy[np.ndarray]:
    """Non-negative tables; where `low` is 0, many entries are."""
    return hnp.arrays(np.float64, (rows, columns), elements=st.floats(low, 1.0, width=32))


@st.composite
def scores(draw: st.DrawFn, space: LabelSpace) -> Tensor:
    elements = st.floats(-20, 20, width=32)
    return torch.from_numpy(
        draw(hnp.arrays(np.float64, (SAMPLES, len(space)), elements=elements)).copy()
    )


@st.composite
def correspondences(draw: st.DrawFn, rows: int, columns: int) -> np.ndarray:
    """Column-stochastic tables with zeros, none of whose rows and columns is empty."""
    table = draw(tables(rows, columns)).copy()
    table[np.arange(columns) % rows, np.arange(columns)] += 0.1
    table[np.arange(rows), np.arange(rows) % columns] += 0.1
    return table / table.sum(0)


@st.composite
def bag_declarations(draw: st.DrawFn, space: LabelSpace) -> dict[str, np.ndarray]:
    classes, extra = len(space), draw(st.integers(0, 3))
    table = draw(tables(classes + extra, classes)).copy()
    table[np.arange(classes), np.arange(classes)] += classes  # diagonally dominant: full rank
    table[classes:] += 0.01  # no empty bag
    prior = draw(tables(1, classes, low=0.125))[0]
    return {
        "priors": table / table.sum(1, keepdims=True),
        "sizes": draw(hnp.arrays(np.int64, classes + extra, elements=st.integers(1, 10_000))),
        "target_prior": prior / prior.sum(),
    }


@st.composite
def masks(draw: st.DrawFn, space: LabelSpace) -> np.ndarray:
    mask = draw(hnp.arrays(np.bool_, (SAMPLES, len(space)))).copy()
    truth = draw(hnp.arrays(np.int64, SAMPLES, elements=st.integers(0, len(space) - 1)))
    mask[np.arange(SAMPLES), truth] = True
    return mask


@st.composite
def class_sets(draw: st.DrawFn, space: LabelSpace) -> list[str]:
    return draw(st.lists(st.sampled_from(space.names), min_size=1, unique=True))


@st.composite
def views(draw: st.DrawFn, space: LabelSpace) -> LabelView:
    """Any kind of view."""
    classes = len(space)
    kind = draw(st.sampled_from(sorted(KINDS)))
    if kind == "coarse":
        return coarse(space, draw(correspondences(draw(st.integers(1, classes + 2)), classes)))
    if kind == "noisy":
        return noisy(space, draw(correspondences(classes, classes)))
    if kind == "bags":
        return bags(space, **draw(bag_declarations(space)))
    if kind == "candidates":
        return candidates(space, draw(masks(space)))
    if kind == "subset":
        return subset(space, draw(class_sets(space)))
    return exact(space) if kind == "exact" else unlabeled(space)


KINDS = {"exact", "coarse", "noisy", "bags", "candidates", "subset", "unlabeled"}
NORMALISED = KINDS - {"candidates"}


def softmax(row: Tensor) -> list[float]:
    """By hand, in Python floats."""
    top = max(row.tolist())
    raised = [math.exp(value - top) for value in row.tolist()]
    return [value / sum(raised) for value in raised]


def nll(view: LabelView, logits: Tensor, symbols: Tensor) -> Tensor:
    return view_nll(logits, view.rows(symbols).log(), view.normaliser.log())


def all_nll(view: LabelView, logits: Tensor) -> Tensor:
    """(N, Z) for every symbol."""
    count = len(view.symbols)
    return torch.stack([nll(view, logits, torch.full((len(logits),), z)) for z in range(count)], 1)


def agree(found: Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9
    )


# ---------------------------------------------------------------- the papers' formulas


@given(st.data())
def test_exact_labels_give_cross_entropy(data: st.DataObject) -> None:
    space = data.draw(spaces())
    logits = data.draw(scores(space))
    expected = [[-math.log(p) for p in softmax(row)] for row in logits]
    agree(all_nll(exact(space), logits), expected)
    target = torch.arange(SAMPLES) % len(space)
    torch.testing.assert_close(
        nll(exact(space), logits, target),
        torch.nn.functional.cross_entropy(logits, target, reduction="none"),
    )


@given(st.data())
def test_coarse_labels_give_the_projected_softmax_of_fedmt(data: st.DataObject) -> None:
    space = data.draw(spaces())
    M = data.draw(correspondences(data.draw(st.integers(1, 6)), len(space)))
    logits = data.draw(scores(space))
    expected = [
        [-math.log(sum(M[j, k] * p for k, p in enumerate(softmax(row)))) for j in range(len(M))]
        for row in logits
    ]
    agree(all_nll(coarse(space, M), logits), expected)


@given(st.data())
def test_noisy_labels_give_forward_correction(data: st.DataObject) -> None:
    space = data.draw(spaces())
    K = len(space)
    T = data.draw(correspondences(K, K))
    logits = data.draw(scores(space))
    expected = [
        [-math.log(sum(T[z, k] * softmax(row)[k] for k in range(K))) for z in range(K)]
        for row in logits
    ]
    agree(all_nll(noisy(space, T), logits), expected)


@given(st.data())
def test_bags_give_the_surrogate_posterior_of_fedul(data: st.DataObject) -> None:
    """Theorem 1: q ∝ D_π̄ · Π · D_π⁻¹ · η."""
    space = data.draw(spaces())
    declared = data.draw(bag_declarations(space))
    logits = data.draw(scores(space))
    expected = []
    for row in logits:
        eta = np.array(softmax(row))
        shares = declared["sizes"] / declared["sizes"].sum()
        q = np.diag(shares) @ declared["priors"] @ np.diag(1 / declared["target_prior"]) @ eta
        expected.append([-math.log(value / q.sum()) for value in q])
    agree(all_nll(bags(space, **declared), logits), expected)


@given(st.data())
def test_candidate_sets_give_their_probability(data: st.DataObject) -> None:
    space = data.draw(spaces())
    mask = data.draw(masks(space))
    logits = data.draw(scores(space))
    view = candidates(space, mask)
    expected = [
        -math.log(sum(p for p, inside in zip(softmax(row), members, strict=True) if inside))
        for row, members in zip(logits, mask, strict=True)
    ]
    found = nll(view, logits, view.observe(mask, SAMPLES))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@given(st.data(), st.sampled_from([subset, private_subset]))
def test_a_class_subset_gives_the_softmax_over_it_alone(data: st.DataObject, make) -> None:
    space = data.draw(spaces())
    names = data.draw(class_sets(space))
    logits = data.draw(scores(space))
    own = [space.index(name) for name in names]
    expected = [[-math.log(p) for p in softmax(row[own])] for row in logits]
    agree(all_nll(make(space, names), logits), expected)


@given(st.data())
def test_a_sample_without_label_costs_nothing(data: st.DataObject) -> None:
    space = data.draw(spaces())
    logits = data.draw(scores(space)).requires_grad_()
    loss = nll(unlabeled(space), logits, torch.zeros(SAMPLES, dtype=torch.int64))
    loss.sum().backward()
    assert torch.equal(loss, torch.zeros(SAMPLES, dtype=torch.float64))
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@given(st.data())
def test_the_probabilities_of_all_symbols_sum_to_one(data: st.DataObject) -> None:
    space = data.draw(spaces())
    view = data.draw(views(space).filter(lambda view: view.kind in NORMALISED))
    total = (-all_nll(view, data.draw(scores(space)))).exp().sum(1)
    torch.testing.assert_close(total, torch.ones(SAMPLES, dtype=torch.float64))


# ---------------------------------------------------------------- gradients


@given(st.data())
def test_the_gradient_is_the_difference_of_two_softmaxes(data: st.DataObject) -> None:
    space = data.draw(spaces())
    view = data.draw(views(space))
    symbols = torch.arange(SAMPLES) % len(view.symbols)
    logits = data.draw(scores(space)).requires_grad_()
    log_a, log_b = view.rows(symbols).log(), view.normaliser.log()
    view_nll(logits, log_a, log_b).sum().backward()
    expected = [
        [before - after for before, after in zip(softmax(f + log_b), softmax(f + a), strict=True)]
        for f, a in zip(logits.detach(), log_a, strict=True)
    ]
    agree(logits.grad, expected)


@given(st.data())
def test_the_gradient_agrees_with_finite_differences(data: st.DataObject) -> None:
    space = data.draw(spaces())
    view = data.draw(views(space))
    symbols = torch.arange(SAMPLES) % len(view.symbols)
    logits = data.draw(scores(space)).requires_grad_()
    assert gradcheck(lambda f: nll(view, f, symbols), logits)
    # The posterior's entries where a = 0 are −inf whatever the logits; the others are checked.
    possible = view.rows(symbols) > 0
    assert gradcheck(lambda f: log_posterior(f, view.rows(symbols).log())[possible], logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_zeros_and_huge_logits_leave_loss_and_gradient_finite(
    dtype: torch.dtype, scale: float
) -> None:
    space = LabelSpace.numbered(4)
    signs = torch.tensor([[1, -1, 1, -1], [-1, -1, -1, 1], [1, 1, 1, 1]], dtype=dtype)
    every = [
        exact(space),
        coarse(space, {"low": ["0", "1"], "high": ["2", "3"]}),
        bags(space, np.eye(4)),
        candidates(space, [[1, 1, 0, 0], [0, 1, 1, 1]]),
        subset(space, ["3", "1"]),
        unlabeled(space),
    ]
    for view in every:
        for z in range(len(view.symbols)):
            logits = (scale * signs).requires_grad_()
            rows = view.rows(torch.full((3,), z)).to(dtype)
            loss = view_nll(logits, rows.log(), view.normaliser.to(dtype).log())
            loss.sum().backward()
            assert loss.isfinite().all(), view.kind
            assert logits.grad.isfinite().all(), view.kind
            assert (loss >= -1e-6).all(), view.kind


def test_a_confidently_wrong_model_still_learns() -> None:
    """At ±1e4 the probability of the label underflows; the loss and its gradient do not."""
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = nll(exact(LabelSpace.numbered(2)), logits, torch.tensor([1]))
    loss.sum().backward()
    assert loss.item() == 2e4
    assert logits.grad.tolist() == [[1.0, -1.0]]


@given(st.data())
def test_a_constant_added_to_all_logits_changes_nothing(data: st.DataObject) -> None:
    space = data.draw(spaces())
    view = data.draw(views(space))
    logits = data.draw(scores(space))
    torch.testing.assert_close(all_nll(view, logits + 7.5), all_nll(view, logits))


# ---------------------------------------------------------------- shapes


def test_a_view_with_one_symbol_says_nothing() -> None:
    space = LabelSpace.numbered(3)
    logits = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    for view in (coarse(space, np.ones((1, 3))), bags(space, [[0.2, 0.3, 0.5]], minimum_rank=1)):
        torch.testing.assert_close(all_nll(view, logits), torch.zeros(1, 1, dtype=torch.float64))


def test_a_thousand_classes_are_no_different() -> None:
    space = LabelSpace.numbered(1000)
    logits = torch.randn(5, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    halves = coarse(space, {"first": space.names[:500], "second": space.names[500:]})
    first = torch.tensor([sum(softmax(row)[:500]) for row in logits], dtype=torch.float64)
    torch.testing.assert_close(nll(halves, logits, torch.zeros(5, dtype=torch.int64)), -first.log())


def test_stacked_sites_give_the_losses_of_each() -> None:
    """(S, B, K) logits with one normaliser per site."""
    space = LabelSpace.numbered(3)
    logits = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sites = [exact(space), subset(space, ["2", "0"])]
    symbols = torch.tensor([[0, 1, 2, 0], [0, 1, 1, 0]])
    together = view_nll(
        logits,
        torch.stack([view.rows(z) for view, z in zip(sites, symbols, strict=True)]).log(),
        torch.stack([view.normaliser for view in sites]).unsqueeze(1).log(),
    )
    apart = [nll(view, f, z) for view, f, z in zip(sites, logits, symbols, strict=True)]
    torch.testing.assert_close(together, torch.stack(apart))


# ---------------------------------------------------------------- posterior


@given(st.data())
def test_the_posterior_is_bayes_rule(data: st.DataObject) -> None:
    space = data.draw(spaces())
    view = data.draw(views(space))
    symbols = torch.arange(SAMPLES) % len(view.symbols)
    logits = data.draw(scores(space))
    rows = view.rows(symbols)
    expected = []
    for f, a in zip(logits, rows.tolist(), strict=True):
        joint = [likelihood * p for likelihood, p in zip(a, softmax(f), strict=True)]
        expected.append([value / sum(joint) for value in joint])
    found = log_posterior(logits, rows.log())
    agree(found.exp(), expected)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(SAMPLES, dtype=torch.float64))
    assert torch.equal(found == -math.inf, rows == 0)


def test_the_posterior_of_a_set_keeps_the_model_s_order_within_it() -> None:
    """FedPLL's disambiguation is its argmax; SemiFL's pseudo-label is that of no label at all."""
    space = LabelSpace(("cat", "lynx", "dog"))
    logits = torch.tensor([[0.0, 1.0, 5.0]])
    inside = candidates(space, [[1, 1, 0]]).codebook.float().log()
    assert log_posterior(logits, inside).argmax().item() == 1
    assert log_posterior(logits, unlabeled(space).codebook.float().log()).argmax().item() == 2
