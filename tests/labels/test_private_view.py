"""A private subset: what the site itself knows, and that nothing is lost by knowing only that."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.errors import PotluckError
from potluck.labels import LabelSpace, LabelView, private_subset, subset
from potluck.losses import log_posterior, view_nll

DISEASES = LabelSpace(("anthrax", "botulism", "cholera", "dengue", "ebola"))


@st.composite
def private_cases(draw: st.DrawFn) -> tuple[LabelSpace, list[str], int]:
    space = LabelSpace.numbered(draw(st.integers(2, 8)))
    names = draw(st.lists(st.sampled_from(space.names), min_size=1, unique=True))
    return space, names, draw(st.integers(0, 2**31))


def test_a_private_subset_is_the_public_one_but_for_its_mark() -> None:
    public, private = (make(DISEASES, ["ebola", "cholera"]) for make in (subset, private_subset))
    assert not public.private
    assert private.private
    assert torch.equal(private.codebook, public.codebook)
    assert torch.equal(private.normaliser, public.normaliser)
    assert private.classes.tolist() == public.classes.tolist() == [4, 2]
    assert private.held.tolist() == [False, False, True, False, True]


def test_the_site_s_own_view_has_its_own_names_in_its_own_order_and_nothing_else() -> None:
    own = private_subset(DISEASES, ["ebola", "cholera"]).own()
    assert {field.name for field in dataclasses.fields(own)} == {
        "kind",
        "space",
        "symbols",
        "codebook",
        "normaliser",
        "prior",
        "private",
    }
    assert own.kind == "exact"
    assert own.space.names == own.symbols.names == ("ebola", "cholera")
    assert torch.equal(own.codebook, torch.eye(2, dtype=torch.float64))
    assert torch.equal(own.normaliser, torch.ones(2, dtype=torch.float64))
    assert torch.equal(own.prior, torch.full((2,), 0.5, dtype=torch.float64))
    assert own.private is False
    assert own.classes.tolist() == [0, 1]


def contents(view: LabelView) -> dict[str, object]:
    """All that a view holds, fields or not, as plain values."""
    return {
        name: (value.tolist(), value.dtype) if isinstance(value, torch.Tensor) else value
        for name, value in vars(view).items()
    }


def test_the_same_site_looks_the_same_in_any_federation() -> None:
    """Nothing about the other classes, not even how many there are, can be read off the view."""
    few, many = LabelSpace(("cholera", "ebola")), LabelSpace((*DISEASES, *"fghijklm"))
    own = [private_subset(space, ["ebola", "cholera"]).own() for space in (few, DISEASES, many)]
    assert contents(own[0]) == contents(own[1]) == contents(own[2])
    assert [vars(view.space) for view in own] == [vars(own[0].space)] * 3


def test_no_tensor_of_the_own_view_keeps_the_whole_one_in_memory() -> None:
    own = private_subset(DISEASES, ["ebola", "cholera"]).own()
    for tensor in (own.codebook, own.normaliser, own.prior):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


@given(private_cases())
def test_head_rows_of_its_classes_and_the_own_view_give_the_public_likelihood(
    case: tuple[LabelSpace, list[str], int],
) -> None:
    """Restricted softmax: training on the own rows is training the whole head on the subset."""
    space, names, seed = case
    view = private_subset(space, names)
    own = view.own()
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    head = torch.randn(len(space), 4, generator=generator, dtype=torch.float64).requires_grad_()
    rows = head.detach()[view.classes].clone().requires_grad_()
    labels = [names[i % len(names)] for i in range(6)]
    symbols = view.observe(labels, 6)
    assert torch.equal(own.observe(labels, 6), symbols)

    whole = view_nll(features @ head.T, view.rows(symbols).log(), view.normaliser.log())
    part = view_nll(features @ rows.T, own.rows(symbols).log(), own.normaliser.log())
    torch.testing.assert_close(whole, part)

    whole.sum().backward()
    part.sum().backward()
    torch.testing.assert_close(head.grad[view.classes], rows.grad)
    assert (head.grad[~view.held] == 0).all()

    unlabelled = torch.zeros(len(space), dtype=torch.float64)
    inside = log_posterior(features @ head.T + view.normaliser.log(), unlabelled)
    torch.testing.assert_close(
        inside[:, view.classes], log_posterior(features @ rows.T, unlabelled[view.classes])
    )


@given(private_cases())
def test_own_predictions_are_those_of_the_public_view(
    case: tuple[LabelSpace, list[str], int],
) -> None:
    space, names, seed = case
    view = private_subset(space, names)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, len(space), generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        view.own().project(logits[:, view.classes].softmax(1)), view.project(logits.softmax(1))
    )


def test_another_site_s_class_is_unknown_there_and_not_named() -> None:
    own = private_subset(DISEASES, ["ebola", "cholera"]).own()
    with pytest.raises(PotluckError, match='unknown label "anthrax"') as caught:
        own.observe(["anthrax"], 1)
    assert "botulism" not in str(caught.value)
    assert "dengue" not in str(caught.value)
