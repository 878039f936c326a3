"""What a federation's views can separate: worked by hand, and against brute force."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.errors import PotluckError
from potluck.labels import (
    Identifiability,
    LabelSpace,
    LabelView,
    bags,
    candidates,
    coarse,
    exact,
    identifiability,
    noisy,
    private_subset,
    subset,
    unlabeled,
)

THREE, FOUR, FIVE = LabelSpace(tuple("abc")), LabelSpace(tuple("abcd")), LabelSpace(tuple("abcde"))


def check(*views: LabelView) -> Identifiability:
    return identifiability({f"site {i}": view for i, view in enumerate(views)})


def pairs(space: LabelSpace, first: str) -> LabelView:
    """The classes in `first` have one label, the others another."""
    rest = [name for name in space if name not in first]
    return coarse(space, {"first": list(first), "rest": rest})


def symmetric_noise(classes: int, flipped: float) -> np.ndarray:
    noise = np.full((classes, classes), flipped / (classes - 1))
    np.fill_diagonal(noise, 1 - flipped)
    return noise


# ---------------------------------------------------------------- worked by hand


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_exact_labels_settle_everything(classes: int) -> None:
    found = check(exact(LabelSpace.numbered(classes)))
    assert found.complete
    assert found.settled == classes - 1
    assert found.groups == found.entangled == found.unseen == ()
    assert found.verdict() == (
        f"All {classes} classes can be separated from the labels the sites have."
    )


def test_unlabelled_samples_settle_nothing() -> None:
    found = check(unlabeled(THREE))
    assert found.settled == 0
    assert found.groups == (("a", "b", "c"),)
    assert found.entangled == ()


def test_superclasses_alone_leave_exactly_their_classes_confused() -> None:
    found = check(coarse(FIVE, {"x": ["a", "d"], "y": ["b"], "z": ["c", "e"]}))
    assert found.groups == (("a", "d"), ("c", "e"))
    assert found.settled == 2
    assert found.entangled == ()
    assert not found.complete
    assert found.verdict() == (
        "Only 2 of 4 independent class contrasts can be learned. "
        "Nothing tells apart: a, d. Nothing tells apart: c, e."
    )


def test_two_overlapping_label_spaces_together_separate_all() -> None:
    """{a}{bc} and {ab}{c}: each confuses a pair, and the pairs differ."""
    first, second = pairs(THREE, "a"), pairs(THREE, "ab")
    assert check(first).groups == (("b", "c"),)
    assert check(second).groups == (("a", "b"),)
    assert check(first, second).complete


def test_two_crossed_halvings_of_four_classes_leave_one_contrast() -> None:
    """ab|cd and ac|bd tell any two classes apart, yet a+d against b+c stays unknown."""
    found = check(pairs(FOUR, "ab"), pairs(FOUR, "ac"))
    assert found.settled == 2
    assert found.groups == ()
    assert found.entangled == ("a", "b", "c", "d")
    assert check(pairs(FOUR, "ab"), pairs(FOUR, "ac"), pairs(FOUR, "ad")).complete


def test_few_bags_and_a_site_that_supplies_the_rest() -> None:
    """Two bags settle one contrast of three classes; labels that single out c settle another."""
    few = bags(THREE, [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], minimum_rank=2)
    assert check(few).settled == 1
    assert check(few).groups == ()
    assert check(few).entangled == ("a", "b", "c")
    found = check(few, pairs(THREE, "c"))
    assert found.complete
    assert [(site.alone, site.only) for site in found.sites.values()] == [(1, 1), (1, 1)]


def test_bags_of_two_sites_with_too_few_each_suffice_together() -> None:
    first = bags(THREE, [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], minimum_rank=2)
    second = bags(THREE, [[0.2, 0.7, 0.1], [0.6, 0.1, 0.3]], minimum_rank=2)
    assert check(first, second).complete


def test_the_same_few_bags_at_many_sites_settle_no_more() -> None:
    few = bags(THREE, [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], minimum_rank=2)
    assert check(*[few] * 20).settled == 1


def test_full_rank_bags_settle_everything_whatever_sizes_and_priors() -> None:
    priors = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]
    assert check(bags(THREE, priors)).complete
    tiny = bags(THREE, priors, sizes=[1, 10**9, 10**12], target_prior=[0.98, 0.01, 0.01])
    assert check(tiny).complete


def test_classes_in_the_same_ratio_in_every_bag_are_confusable() -> None:
    """b is always half of a: the bags show a + b/2 only, though the columns are not equal."""
    priors = [[0.6, 0.3, 0.1], [0.2, 0.1, 0.7]]
    found = check(bags(THREE, priors, minimum_rank=2))
    assert found.groups == (("a", "b"),)
    assert found.entangled == ()
    assert found.settled == 1
    # A second site where the ratio is another one tells them apart after all.
    other = bags(THREE, [[0.3, 0.6, 0.1], [0.1, 0.2, 0.7]], minimum_rank=2)
    assert check(bags(THREE, priors, minimum_rank=2), other).complete


def test_one_bag_says_nothing_even_beside_others() -> None:
    one = bags(THREE, [[0.1, 0.2, 0.7]], minimum_rank=1)
    assert check(one).settled == 0
    superclass = pairs(THREE, "a")
    assert check(superclass, one).groups == (("b", "c"),)


def test_symmetric_noise_hides_nothing() -> None:
    for flipped in (1e-12, 0.1, 0.4, 0.6, 0.7499, 0.9):
        assert check(noisy(FOUR, symmetric_noise(4, flipped))).complete, flipped
    everything_equal = check(noisy(FOUR, symmetric_noise(4, 0.75)))
    assert everything_equal.groups == (("a", "b", "c", "d"),)


def test_noise_that_treats_two_classes_alike_confuses_them() -> None:
    found = check(noisy(THREE, [[0.8, 0.1, 0.1], [0.1, 0.45, 0.45], [0.1, 0.45, 0.45]]))
    assert found.groups == (("b", "c"),)
    assert found.settled == 1


def test_differences_that_are_only_rounding_settle_nothing() -> None:
    noise = np.array([[0.8, 0.1, 0.1], [0.1, 0.45, 0.45], [0.1, 0.45, 0.45]])
    noise[1, 2] += 1e-7
    assert check(noisy(THREE, noise)).groups == (("b", "c"),)
    noise[1, 2] += 1e-3
    assert check(noisy(THREE, noise)).complete


def test_a_label_that_is_never_written_is_no_trouble() -> None:
    assert check(noisy(THREE, [[1, 1, 0], [0, 0, 0], [0, 0, 1]])).groups == (("a", "b"),)


def test_disjoint_class_sets_are_entangled() -> None:
    """Within {ab} and within {cd} all is known, but not how the two compare."""
    found = check(subset(FOUR, ["a", "b"]), private_subset(FOUR, ["c", "d"]))
    assert found.settled == 2
    assert found.groups == ()
    assert found.entangled == ("a", "b", "c", "d")
    assert "Known only in combination: a, b, c, d" in found.verdict()


def test_chained_class_sets_settle_everything() -> None:
    assert check(subset(THREE, ["a", "b"]), subset(THREE, ["b", "c"])).complete


def test_superclass_labels_join_disjoint_class_sets() -> None:
    apart = (subset(FOUR, ["a", "b"]), subset(FOUR, ["c", "d"]))
    assert check(*apart, pairs(FOUR, "ab")).complete


def test_coincidences_of_even_posteriors_are_not_mistaken_for_the_rule() -> None:
    """With a:b and c:d known, a + c settles the rest unless a·d = b·c, as when all are equal."""
    apart = (subset(FOUR, ["a", "b"]), subset(FOUR, ["c", "d"]))
    assert check(*apart, pairs(FOUR, "ac")).complete


def test_only_the_classes_whose_share_is_open_are_called_entangled() -> None:
    """a's share is known; so are b:c and d:e, but not how b+c and d+e divide the rest."""
    found = check(pairs(FIVE, "a"), subset(FIVE, ["b", "c"]), subset(FIVE, ["d", "e"]))
    assert found.settled == 3
    assert found.entangled == ("b", "c", "d", "e")
    assert found.groups == ()


def test_a_confusable_pair_does_not_make_the_other_classes_entangled() -> None:
    found = check(coarse(FOUR, {"x": ["a", "b"], "c": ["c"], "d": ["d"]}))
    assert found.groups == (("a", "b"),)
    assert found.entangled == ()


def test_a_class_that_nobody_has_is_named() -> None:
    found = check(subset(FOUR, ["a", "b"]), subset(FOUR, ["b", "c"]))
    assert found.unseen == ("d",)
    assert found.entangled == ()
    assert found.settled == 2
    assert found.verdict() == (
        "Only 2 of 3 independent class contrasts can be learned. No site has: d."
    )


def test_two_classes_that_nobody_has_are_confusable_too() -> None:
    found = check(subset(FOUR, ["a", "b"]))
    assert found.unseen == ("c", "d")
    assert found.groups == (("c", "d"),)
    assert "Nothing tells apart" not in found.verdict()


def test_sites_with_a_single_class_each_settle_nothing() -> None:
    """Positive examples alone: nothing says where one class ends and another begins."""
    found = check(*(subset(THREE, [name]) for name in THREE))
    assert found.settled == 0
    assert found.groups == (("a", "b", "c"),)
    assert found.unseen == ()


def test_a_class_seen_only_alone_is_known_only_in_combination_and_an_unseen_one_not_at_all() -> (
    None
):
    found = check(subset(FOUR, ["a", "b"]), subset(FOUR, ["c"]))
    assert found.unseen == ("d",)
    assert found.groups == (("c", "d"),)
    assert found.entangled == ("a", "b", "c")


def test_contributions_say_what_a_site_settles_alone_and_what_no_other_does() -> None:
    found = identifiability(
        {
            "fine": subset(FOUR, ["a", "b"]),
            "halves": pairs(FOUR, "ab"),
            "again": pairs(FOUR, "ab"),
            "none": unlabeled(FOUR),
            "other": subset(FOUR, ["d", "c"]),
        }
    )
    assert found.complete
    assert {name: (site.kind, site.alone, site.only) for name, site in found.sites.items()} == {
        "fine": ("subset", 1, 1),
        "halves": ("coarse", 1, 0),  # "again" says the same
        "again": ("coarse", 1, 0),
        "none": ("unlabeled", 0, 0),
        "other": ("subset", 1, 1),
    }
    assert found.sites["fine"].groups == (("c", "d"),)
    assert found.sites["halves"].groups == (("a", "b"), ("c", "d"))
    assert found.sites["none"].groups == (("a", "b", "c", "d"),)


def test_helpers_are_the_sites_that_settle_what_a_site_leaves_open() -> None:
    found = identifiability(
        {
            "all": exact(THREE),
            "first": pairs(THREE, "a"),
            "same": pairs(THREE, "a"),
            "none": unlabeled(THREE),
        }
    )
    assert {name: site.helpers for name, site in found.sites.items()} == {
        "all": (),
        "first": ("all",),
        "same": ("all",),
        "none": ("all", "first", "same"),
    }
    assert found.shortfalls() == [
        'Site "first" (coarse) settles 1 of 2 class contrasts alone; more come from "all".',
        'Site "same" (coarse) settles 1 of 2 class contrasts alone; more come from "all".',
        'Site "none" (unlabeled) settles 0 of 2 class contrasts alone; '
        'more come from "all", "first", "same".',
    ]
    assert check(unlabeled(THREE)).shortfalls() == [
        'Site "site 0" (unlabeled) settles 0 of 2 class contrasts alone; more come from nobody.'
    ]
    crowd = check(unlabeled(THREE), *[exact(THREE)] * 7).shortfalls()
    assert crowd[0].endswith('"site 1", "site 2", "site 3", "site 4", "site 5" and 2 more.')


# ---------------------------------------------------------------- candidate sets


def test_classes_that_are_always_candidates_together_are_confusable() -> None:
    found = check(candidates(FOUR, [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]]))
    assert found.groups == (("a", "b"),)
    assert found.settled == 2


def test_disjoint_candidate_sets_are_superclasses() -> None:
    sets = check(candidates(FOUR, [[1, 1, 0, 0], [0, 0, 1, 1]]))
    assert sets.groups == check(pairs(FOUR, "ab")).groups == (("a", "b"), ("c", "d"))
    assert sets.settled == 1


def test_a_class_in_no_candidate_set_does_not_occur_at_the_site() -> None:
    found = check(candidates(THREE, [[1, 0, 0], [1, 1, 0], [0, 1, 0]]))
    assert found.unseen == ("c",)
    assert not found.complete


def test_all_classes_as_candidates_is_no_label() -> None:
    assert check(candidates(THREE, [[1, 1, 1]])).settled == 0


def uniform_candidates(classes: int, rho: float) -> dict[tuple[bool, ...], np.ndarray]:
    """Exact P(S | y) when wrong classes join at rate ρ, and one at random where none did."""
    table = {}
    for bits in range(1, 2**classes):
        members = tuple(bool(bits >> k & 1) for k in range(classes))
        size = sum(members)
        chance = rho ** (size - 1) * (1 - rho) ** (classes - size)
        if size == 2:
            chance += (1 - rho) ** (classes - 1) / (classes - 1)
        if size > 1:
            table[members] = np.array([chance if inside else 0.0 for inside in members])
    return table


@pytest.mark.parametrize("classes", [2, 3, 4, 5])
def test_the_marks_say_as_much_as_the_true_law_of_uniformly_drawn_sets(classes: int) -> None:
    """Under the papers' noise P(S | y) is c_S on S, so that marks and law have the same rank."""
    table = uniform_candidates(classes, rho=0.3)
    np.testing.assert_allclose(sum(table.values()), np.ones(classes))
    space = LabelSpace.numbered(classes)
    marks = check(candidates(space, np.array(list(table))))
    law = check(coarse(space, np.array(list(table.values()))))
    assert marks.settled == law.settled
    assert marks.groups == law.groups
    assert marks.complete == (classes > 2)  # of two classes, both are always candidates


# ---------------------------------------------------------------- against brute force


@st.composite
def any_view(draw: st.DrawFn, space: LabelSpace) -> LabelView:
    """Views with few different entries, so that coincidences of columns are common."""
    classes = len(space)
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    kind = draw(st.sampled_from(["coarse", "soft", "bags", "candidates", "subset", "unlabeled"]))
    if kind == "coarse":
        labels = generator.integers(0, draw(st.integers(1, 3)), classes)
        used, labels = np.unique(labels, return_inverse=True)
        return coarse(space, np.eye(len(used))[labels].T)
    if kind == "soft":
        matrix = generator.integers(1, 3, (draw(st.integers(1, 3)), classes)).astype(float)
        return coarse(space, matrix / matrix.sum(0))
    if kind == "bags":
        weights = generator.integers(1, 3, (draw(st.integers(1, classes)), classes)).astype(float)
        priors = weights / weights.sum(1, keepdims=True)
        rank = np.linalg.matrix_rank(priors)
        return bags(
            space, priors, sizes=generator.integers(1, 5, len(priors)), minimum_rank=int(rank)
        )
    if kind == "candidates":
        mask = generator.random((draw(st.integers(1, 4)), classes)) < 0.5
        mask[np.arange(len(mask)), generator.integers(0, classes, len(mask))] = True
        return candidates(space, mask)
    if kind == "subset":
        count = draw(st.integers(1, classes))
        return subset(space, [space.names[k] for k in generator.permutation(classes)[:count]])
    return unlabeled(space)


@st.composite
def federations(draw: st.DrawFn) -> list[LabelView]:
    space = LabelSpace.numbered(draw(st.integers(2, 6)))
    return draw(st.lists(any_view(space), min_size=1, max_size=4))


def normaliser(view: LabelView) -> np.ndarray:
    """b on the classes that some symbol may come from."""
    return (view.normaliser * (view.codebook > 0).any(0)).numpy()


def brute_settled(views: list[LabelView]) -> int:
    """Rank of the numeric derivative of all symbols' probabilities on the simplex, at random η."""
    classes = len(views[0].space)
    eta = np.random.default_rng(5).dirichlet(np.full(classes, 20.0))

    def probabilities(point: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [view.codebook.numpy() @ point / (normaliser(view) @ point) for view in views]
        )

    step = 1e-4
    moves = [np.eye(classes)[k] - np.eye(classes)[classes - 1] for k in range(classes - 1)]
    slopes = [
        (probabilities(eta + step * move) - probabilities(eta - step * move)) / (2 * step)
        for move in moves
    ]
    return int(np.linalg.matrix_rank(np.array(slopes), tol=1e-5))


def brute_groups(views: list[LabelView]) -> tuple[tuple[str, ...], ...]:
    """Classes with proportional columns at all sites whose symbols vary in probability."""
    tables = [np.vstack([view.codebook.numpy(), normaliser(view)]) for view in views]
    classes = len(views[0].space)
    telling = [table for table in tables if np.linalg.matrix_rank(table, tol=1e-9) > 1]
    stacked = np.vstack([*telling, np.zeros((1, classes))])
    lengths = np.linalg.norm(stacked, axis=0)
    directions = stacked / np.where(lengths > 0, lengths, 1)
    merged: dict[int, list[int]] = {}
    for k in range(classes):
        alike = [j for j in merged if np.allclose(directions[:, j], directions[:, k], atol=1e-9)]
        merged.setdefault(alike[0] if alike else k, []).append(k)
    names = views[0].space.names
    return tuple(tuple(names[k] for k in group) for group in merged.values() if len(group) > 1)


@given(federations())
def test_what_is_settled_equals_brute_force(views: list[LabelView]) -> None:
    found = check(*views)
    assert found.settled == brute_settled(views)
    for view, site in zip(views, found.sites.values(), strict=True):
        assert site.alone == brute_settled([view])


@given(federations())
def test_what_only_one_site_settles_equals_brute_force(views: list[LabelView]) -> None:
    whole = brute_settled(views)
    for i, site in enumerate(check(*views).sites.values()):
        others = views[:i] + views[i + 1 :]
        assert site.only == whole - (brute_settled(others) if others else 0)


@given(federations())
def test_helpers_equal_brute_force(views: list[LabelView]) -> None:
    for i, site in enumerate(check(*views).sites.values()):
        alone = brute_settled([views[i]])
        more = [j for j in range(len(views)) if brute_settled([views[i], views[j]]) > alone]
        assert site.helpers == tuple(f"site {j}" for j in more)


@given(federations())
def test_confusable_groups_equal_brute_force(views: list[LabelView]) -> None:
    found = check(*views)
    assert found.groups == brute_groups(views)
    for view, site in zip(views, found.sites.values(), strict=True):
        assert site.groups == brute_groups([view])


@given(federations())
def test_confusable_classes_can_trade_mass_without_anyone_noticing(views: list[LabelView]) -> None:
    """The meaning of a group, tested as such: another η with the same observations everywhere."""
    found = check(*views)
    telling = [v for v, site in zip(views, found.sites.values(), strict=True) if site.alone]
    rng = np.random.default_rng(1)
    eta = rng.dirichlet(np.full(len(found.space), 20.0))
    for giver, taker in (pair for group in found.groups for pair in combinations(group, 2)):
        k, m = found.space.index(giver), found.space.index(taker)
        rates = [normaliser(view)[[k, m]] for view in telling if normaliser(view)[k] > 0]
        other = eta.copy()
        other[k] -= eta[k] / 2
        other[m] += eta[k] / 2 * (rates[0][0] / rates[0][1] if rates else 1)
        for view in telling:
            before, after = (
                view.codebook.numpy() @ point / (normaliser(view) @ point) for point in (eta, other)
            )
            np.testing.assert_allclose(before, after, atol=1e-9)


@given(federations())
def test_it_is_complete_exactly_when_there_is_nothing_to_complain_of(
    views: list[LabelView],
) -> None:
    found = check(*views)
    assert found.complete == (not found.groups and not found.entangled and not found.unseen)
    assert (len(found.verdict().split(". ")) == 1) == found.complete


@given(federations())
def test_another_site_never_settles_less(views: list[LabelView]) -> None:
    settled = [check(*views[: i + 1]).settled for i in range(len(views))]
    assert settled == sorted(settled)
    assert all(site.alone <= settled[-1] for site in check(*views).sites.values())
    assert all(0 <= site.only <= site.alone for site in check(*views).sites.values())


@given(federations(), st.randoms(use_true_random=False))
def test_the_order_of_sites_does_not_matter(views: list[LabelView], random) -> None:
    shuffled = list(enumerate(views))
    random.shuffle(shuffled)
    one = identifiability({str(i): view for i, view in enumerate(views)})
    other = identifiability({str(i): view for i, view in shuffled})

    def sorted_helpers(found: Identifiability) -> Identifiability:
        sites = {
            name: replace(site, helpers=tuple(sorted(site.helpers)))
            for name, site in found.sites.items()
        }
        return replace(found, sites=sites)

    assert sorted_helpers(one) == sorted_helpers(other)  # these are listed in the sites' order


@given(st.integers(2, 6), st.integers(0, 2**31))
def test_the_order_of_classes_does_not_matter(classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 2, (3, classes)) + 0.5
    matrix /= matrix.sum(0)
    order = rng.permutation(classes)
    names = LabelSpace.numbered(classes)
    moved = LabelSpace(tuple(names.names[k] for k in order))
    one, other = check(coarse(names, matrix)), check(coarse(moved, matrix[:, order]))
    assert one.settled == other.settled
    assert {frozenset(g) for g in one.groups} == {frozenset(g) for g in other.groups}


# ---------------------------------------------------------------- scale, errors


def test_many_sites_with_many_symbols_neither_invent_contrasts_nor_drown_a_weak_one() -> None:
    """Rounding grows with what is added up; it must not reach the size of a weak contrast."""
    halves = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 20_000, axis=0)
    weights = np.random.default_rng(0).random((len(halves), 1)) + 0.1
    loud = coarse(FOUR, halves * weights / (halves * weights).sum(0))
    many = {str(i): loud for i in range(100)}
    found = identifiability(many)
    assert found.groups == (("a", "b"), ("c", "d"))
    assert found.settled == 1
    quiet = bags(FOUR, [[0.251, 0.249, 0.25, 0.25], [0.25, 0.25, 0.252, 0.248]], minimum_rank=1)
    assert identifiability({"quiet": quiet, **many}).sites["quiet"].only == 1


def test_bags_that_are_accepted_as_full_rank_count_as_such() -> None:
    """The most alike bags that `bags` takes by default are not called rounding here."""
    for classes in (2, 3, 10):
        space = LabelSpace.numbered(classes)
        even = np.full((classes, classes), 1 / classes)
        for share in (1e-1, 1e-2, 2e-4):
            view = bags(space, (1 - share) * even + share * np.eye(classes))
            assert check(view).complete, (classes, share)


def test_a_hundred_classes_and_twenty_sites_are_not_too_many() -> None:
    # To try all subsets of them would take for ever.
    space = LabelSpace.numbered(100)
    rng = np.random.default_rng(0)
    views = [coarse(space, np.eye(6)[rng.permutation(100) % 6].T) for _ in range(20)]
    assert check(*views).complete  # 20 × 5 contrasts, drawn at random, span all 99
    assert not check(*views[:19]).complete  # 95 cannot


def test_a_federation_without_sites_is_refused() -> None:
    with pytest.raises(PotluckError, match="a federation needs at least one site"):
        identifiability({})


def test_views_over_different_classes_are_refused() -> None:
    with pytest.raises(
        PotluckError,
        match='site "south" has a view over other target classes than site "north"; all sites need '
        "the same target classes in the same order",
    ):
        identifiability({"north": exact(THREE), "south": exact(LabelSpace(tuple("acb")))})
