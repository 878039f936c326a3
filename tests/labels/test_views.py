"""What each kind of view holds, observes and predicts."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from potluck.labels import (
    LabelSpace,
    LabelView,
    bags,
    candidate_mask,
    candidates,
    coarse,
    exact,
    noisy,
    subset,
    unlabeled,
)

ANIMALS = LabelSpace(("cat", "lynx", "dog"))
PRIORS = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]
NOISE = [[0.8, 0.3, 0.0], [0.2, 0.7, 0.0], [0.0, 0.0, 1.0]]


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def posteriors(count: int, classes: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, classes, generator=generator, dtype=torch.float64).mul(3).softmax(1)


def every_view() -> dict[str, LabelView]:
    views = [
        exact(ANIMALS),
        coarse(ANIMALS, {"feline": ["cat", "lynx"], "canine": ["dog"]}),
        noisy(ANIMALS, NOISE),
        bags(ANIMALS, PRIORS, sizes=[30, 10, 60], target_prior=[0.5, 0.3, 0.2]),
        candidates(ANIMALS, [[1, 1, 0], [0, 1, 1], [1, 1, 0]]),
        subset(ANIMALS, ["dog", "cat"]),
        unlabeled(ANIMALS),
    ]
    return {view.kind: view for view in views}


# ---------------------------------------------------------------- codebooks, worked by hand


@pytest.mark.parametrize(
    ("kind", "symbols", "codebook", "normaliser"),
    [
        ("exact", ("cat", "lynx", "dog"), np.eye(3), [1, 1, 1]),
        ("coarse", ("feline", "canine"), [[1, 1, 0], [0, 0, 1]], [1, 1, 1]),
        ("noisy", ("cat", "lynx", "dog"), NOISE, [1, 1, 1]),
        ("candidates", ("lynx|dog", "cat|lynx"), [[0, 1, 1], [1, 1, 0]], [1, 1, 1]),
        ("subset", ("dog", "cat"), [[0, 0, 1], [1, 0, 0]], [1, 0, 1]),
        ("unlabeled", ("nothing",), [[1, 1, 1]], [1, 1, 1]),
        (
            "bags",
            ("0", "1", "2"),
            # share of the bag × its proportions ÷ target prior
            [
                [0.3 * 0.7 / 0.5, 0.3 * 0.2 / 0.3, 0.3 * 0.1 / 0.2],
                [0.1 * 0.1 / 0.5, 0.1 * 0.6 / 0.3, 0.1 * 0.3 / 0.2],
                [0.6 * 0.2 / 0.5, 0.6 * 0.2 / 0.3, 0.6 * 0.6 / 0.2],
            ],
            [0.34 / 0.5, 0.24 / 0.3, 0.42 / 0.2],
        ),
    ],
)
def test_the_codebook_is_the_one_worked_by_hand(
    kind: str, symbols: tuple[str, ...], codebook: object, normaliser: object
) -> None:
    view = every_view()[kind]
    assert view.symbols.names == symbols
    assert view.space == ANIMALS
    torch.testing.assert_close(view.codebook, tensor(codebook))
    torch.testing.assert_close(view.normaliser, tensor(normaliser))
    assert view.codebook.dtype == view.normaliser.dtype == view.prior.dtype == torch.float64
    torch.testing.assert_close(view.prior.sum(), tensor(1.0))


def test_a_class_that_several_labels_cover_gets_each_of_them_equally_often() -> None:
    view = coarse(ANIMALS, {"wild": ["lynx"], "feline": ["lynx", "cat"], "canine": ["dog"]})
    torch.testing.assert_close(view.codebook, tensor([[0, 0.5, 0], [1, 0.5, 0], [0, 0, 1]]))


def test_columns_and_rows_rounded_by_hand_are_made_exact() -> None:
    third = [0.333, 0.333, 0.333]
    torch.testing.assert_close(
        noisy(ANIMALS, np.transpose([third] * 3)).codebook.sum(0), tensor([1, 1, 1])
    )
    view = bags(ANIMALS, [third, [1, 0, 0], [0, 1, 0]])
    torch.testing.assert_close(view.proportions.sum(1), tensor([1, 1, 1]))
    view = bags(ANIMALS, PRIORS, target_prior=third)
    torch.testing.assert_close(view.prior, tensor([1 / 3] * 3))


def test_a_declared_matrix_may_be_lists_an_array_or_a_tensor() -> None:
    for declared in (NOISE, np.array(NOISE, dtype=np.float32), torch.tensor(NOISE)):
        torch.testing.assert_close(
            noisy(ANIMALS, declared).codebook, tensor(NOISE), atol=1e-6, rtol=0
        )


def test_a_declared_matrix_is_copied() -> None:
    matrix = np.array(NOISE)
    view = noisy(ANIMALS, matrix)
    matrix[:] = 9
    torch.testing.assert_close(view.codebook, tensor(NOISE))


def test_names_of_labels_and_bags_are_kept() -> None:
    matrix = [[1, 1, 0], [0, 0, 1]]
    assert coarse(ANIMALS, matrix).symbols.names == ("0", "1")
    assert coarse(ANIMALS, matrix, names=["feline", "canine"]).symbols.names == ("feline", "canine")
    assert bags(ANIMALS, PRIORS, names=["a", "b", "c"]).symbols.names == ("a", "b", "c")


def test_bags_without_sizes_are_equal_and_without_target_prior_uniform() -> None:
    view = bags(ANIMALS, PRIORS)
    same = bags(ANIMALS, PRIORS, sizes=[5, 5, 5], target_prior=[1 / 3] * 3)
    torch.testing.assert_close(view.codebook, same.codebook)
    torch.testing.assert_close(view.codebook, tensor(PRIORS))  # 1/3 ÷ 1/3 cancel


def test_fewer_bags_than_classes_may_be_declared() -> None:
    assert len(bags(ANIMALS, PRIORS[:2], minimum_rank=2).symbols) == 2


def test_bags_that_lack_a_class_do_not_hold_it() -> None:
    view = bags(ANIMALS, [[0.7, 0, 0.3], [0.2, 0, 0.8]], minimum_rank=2)
    assert view.held.tolist() == [True, False, True]
    assert view.classes.tolist() == [0, 2]


# ---------------------------------------------------------------- proportions


@given(st.integers(2, 8), st.integers(0, 3), st.integers(0, 2**31))
def test_the_proportions_of_bags_are_the_declared_priors(
    classes: int, extra: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    priors = generator.dirichlet(np.ones(classes), classes + extra) + 2 * np.eye(
        classes + extra, classes
    )
    priors /= priors.sum(1, keepdims=True)
    view = bags(
        LabelSpace.numbered(classes),
        priors,
        sizes=generator.integers(1, 1000, classes + extra),
        target_prior=generator.dirichlet(np.full(classes, 5.0)),
    )
    torch.testing.assert_close(view.proportions, torch.from_numpy(priors))


def test_proportions_of_labels_follow_bayes_rule() -> None:
    torch.testing.assert_close(
        every_view()["coarse"].proportions, tensor([[0.5, 0.5, 0], [0, 0, 1]])
    )
    torch.testing.assert_close(
        every_view()["noisy"].proportions,
        tensor([[8 / 11, 3 / 11, 0], [2 / 9, 7 / 9, 0], [0, 0, 1]]),
    )


def test_a_label_that_is_never_written_has_no_proportions() -> None:
    view = noisy(ANIMALS, [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert view.proportions.tolist() == [[0.5, 0.5, 0], [0, 0, 0], [0, 0, 1]]


# ---------------------------------------------------------------- held classes


def test_all_classes_are_held_but_in_a_subset() -> None:
    for kind, view in every_view().items():
        held = [True, False, True] if kind == "subset" else [True] * 3
        assert view.held.tolist() == held, kind


def test_held_classes_come_in_the_order_of_the_symbols() -> None:
    assert every_view()["subset"].classes.tolist() == [2, 0]
    assert every_view()["exact"].classes.tolist() == [0, 1, 2]
    mapping = {"canine": ["dog"], "feline": ["cat", "lynx"]}
    assert coarse(ANIMALS, mapping).classes.tolist() == [2, 0, 1]


def test_only_a_private_view_differs_from_the_site_s_own() -> None:
    for view in every_view().values():
        assert view.own() is view


# ---------------------------------------------------------------- observing


@pytest.mark.parametrize(
    ("kind", "labels", "expected"),
    [
        ("exact", ["dog", "cat"], [2, 0]),
        ("exact", [2, 0], [2, 0]),
        ("exact", torch.tensor([2, 0]), [2, 0]),
        ("exact", np.eye(3)[[2, 0]], [2, 0]),
        ("coarse", ["canine", "feline", "canine"], [1, 0, 1]),
        ("noisy", np.array(["lynx"]), [1]),
        ("bags", [0, 2, 1, 1], [0, 2, 1, 1]),
        ("bags", ["2", "0"], [2, 0]),
        ("candidates", [[1, 1, 0], [0, 1, 1], [1, 1, 0]], [1, 0, 1]),
        ("candidates", torch.tensor([[0, 1, 1]], dtype=torch.bool), [0]),
        ("candidates", sparse.csr_matrix([[1, 1, 0], [0, 1, 1]]), [1, 0]),
        ("candidates", ["cat|lynx", "lynx|dog"], [1, 0]),
        ("subset", ["dog", "cat", "dog"], [0, 1, 0]),
        ("unlabeled", None, [0, 0, 0, 0]),
        ("exact", [], []),
    ],
)
def test_labels_become_symbols(kind: str, labels: object, expected: list[int]) -> None:
    symbols = every_view()[kind].observe(labels, len(expected))
    assert symbols.dtype == torch.int64
    assert symbols.tolist() == expected


@given(st.integers(2, 8), st.integers(1, 30), st.integers(0, 2**31))
def test_the_rows_of_observed_candidate_sets_are_the_sets(
    classes: int, count: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(count, classes, generator=generator) < 0.4
    mask[torch.arange(count), torch.randint(classes, (count,), generator=generator)] = True
    view = candidates(LabelSpace.numbered(classes), mask)
    assert len(view.symbols) == len({tuple(row) for row in mask.tolist()})
    assert torch.equal(view.rows(view.observe(mask, count)), mask.double())


def test_rows_are_gathered_by_symbol() -> None:
    view = every_view()["noisy"]
    torch.testing.assert_close(view.rows(torch.tensor([2, 0, 2])), tensor(NOISE)[[2, 0, 2]])


def test_observing_takes_no_loop_over_samples() -> None:
    """Half a million samples in the time of some array operations, however busy the machine."""
    count = 500_000
    symbols = torch.arange(count) % 3
    began = time.perf_counter()
    view = exact(ANIMALS)
    assert torch.equal(view.observe(symbols, count), symbols)
    assert view.rows(symbols).shape == (count, 3)
    mask = torch.eye(3, dtype=torch.bool)[symbols]
    assert torch.equal(view.observe(mask, count), symbols)
    assert time.perf_counter() - began < 5


def test_candidate_sets_may_be_joined_names() -> None:
    mask = candidate_mask(ANIMALS, ["dog", "lynx| cat", " dog ", "cat|lynx|dog|"])
    assert mask.tolist() == [
        [False, False, True],
        [True, True, False],
        [False, False, True],
        [True, True, True],
    ]
    assert torch.equal(
        candidate_mask(ANIMALS, np.array(["dog;cat"]), ";"), mask.new_tensor([[1, 0, 1]])
    )


def test_candidate_sets_may_be_dense_or_sparse() -> None:
    dense = np.array([[1, 1, 0], [0, 1, 1]])
    expected = candidates(ANIMALS, dense).codebook
    for sets in (dense.tolist(), torch.tensor(dense), sparse.csr_array(dense), dense.astype(bool)):
        assert torch.equal(candidates(ANIMALS, sets).codebook, expected)


# ---------------------------------------------------------------- predicting in the site's terms


@pytest.mark.parametrize("kind", sorted(every_view()))
def test_a_projection_is_the_probability_of_each_symbol(kind: str) -> None:
    view = every_view()[kind]
    eta = posteriors(5, 3, seed=1)
    expected = [
        [
            sum(a * p for a, p in zip(row, sample, strict=True))
            / sum(b * p for b, p in zip(view.normaliser.tolist(), sample, strict=True))
            for row in view.codebook.tolist()
        ]
        for sample in eta.tolist()
    ]
    torch.testing.assert_close(view.project(eta), tensor(expected))
    if kind != "candidates":
        torch.testing.assert_close(view.project(eta).sum(1), torch.ones(5, dtype=torch.float64))


def test_projecting_onto_superclasses_adds_up_their_classes() -> None:
    eta = torch.tensor([[0.5, 0.2, 0.3]])
    view = every_view()["coarse"]
    assert view.project(eta).dtype == torch.float32
    torch.testing.assert_close(view.project(eta), torch.tensor([[0.7, 0.3]]))


def test_projecting_onto_a_subset_renormalises() -> None:
    eta = torch.tensor([[0.5, 0.2, 0.3]])
    torch.testing.assert_close(every_view()["subset"].project(eta), torch.tensor([[0.375, 0.625]]))


def test_a_model_that_gives_the_site_s_classes_no_chance_still_projects() -> None:
    projected = every_view()["subset"].project(torch.tensor([[0.0, 1.0, 0.0]]))
    torch.testing.assert_close(projected, torch.tensor([[0.5, 0.5]]))
