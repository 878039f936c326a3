"""Every declaration that cannot be right is refused in words that say what to do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import sparse

from potluck.errors import PotluckError
from potluck.labels import (
    LabelSpace,
    bags,
    candidate_mask,
    candidates,
    coarse,
    exact,
    noisy,
    private_subset,
    subset,
)

ANIMALS = LabelSpace(("cat", "lynx", "dog"))
PRIORS = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]


def refused(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(PotluckError, match=message):
        make()


# ---------------------------------------------------------------- matrices of any kind


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (
            [[1, 0], [0, 1]],
            "the noise matrix T must have 3 rows × 3 columns, one column for each target class; "
            "it is 2 × 2",
        ),
        (np.eye(4, 3), "must have 3 rows × 3 columns, .* it is 4 × 3"),
        ([1, 0, 0], "must have 3 rows × 3 columns, .* it is 3"),
        (
            [[1, 0, 0], [0, 1], [0, 0, 1]],
            "the noise matrix T: the rows have different lengths; give every row the same number",
        ),
        (
            [["a", "b", "c"]] * 3,
            "the noise matrix T: numbers are needed, without text or blank cells",
        ),
        ([[1, None, 0]] * 3, "numbers are needed, without text or blank cells"),
        (
            [[1, 0, 0], [0, np.nan, 0], [0, 0, 1]],
            r"has the entry nan in row 2, column 2 \(counted from 1\); fill in a finite number",
        ),
        ([[1, 0, 0], [0, 1, 0], [np.inf, 0, 1]], "has the entry inf in row 3, column 1"),
        (
            [[1.1, 0, 0], [-0.1, 1, 0], [0, 0, 1]],
            r"has the negative entry -0.1 in row 2, column 1 \(counted from 1\); probabilities are "
            "between 0 and 1",
        ),
        (
            [[0.8, 0.1, 0], [0.2, 0.8, 0], [0, 0, 1]],
            'the noise matrix T: the column of class "lynx" sums to 0.9, not 1; a column holds the '
            r"probabilities of all labels that a case of that class may get \(divide percentages",
        ),
    ],
)
def test_a_wrong_noise_matrix_is_refused(matrix: object, message: str) -> None:
    refused(message, lambda: noisy(ANIMALS, matrix))


@pytest.mark.parametrize(
    ("matrix", "names", "message"),
    [
        (
            np.zeros((0, 3)),
            None,
            "the correspondence matrix M has no rows; it needs at least one",
        ),
        (np.eye(2), None, "M must have any number of rows × 3 columns, .* it is 2 × 2"),
        (np.eye(3), ["a", "b"], "M must have 2 rows × 3 columns"),
        ([[1, 1, 0], [0, 0, 0]], None, 'M: the column of class "dog" sums to 0, not 1'),
        (
            [[1, 1, 1], [0, 0, 0]],
            ["any", "none"],
            'the label "none" covers no target class; remove it or say what it covers',
        ),
        (np.eye(3), ["a", "b", "b"], 'names "b" more than once'),
    ],
)
def test_a_wrong_correspondence_matrix_is_refused(
    matrix: object, names: list[str] | None, message: str
) -> None:
    refused(message, lambda: coarse(ANIMALS, matrix, names))


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "the mapping of labels to target classes is empty; list for each label"),
        (
            {"feline": ["cat", "linx"], "canine": ["dog"]},
            'label "feline" covers an unknown target class "linx"; did you mean "lynx"\\?',
        ),
        (
            {"feline": ["cat", "lynx"], "canine": "dog"},
            "label \"canine\" maps to 'dog', which is no list; give the list of target classes "
            r'that it covers: \["dog"\]',
        ),
        ({"feline": ["cat", "lynx"], "canine": 2}, 'label "canine" maps to 2, which is no list'),
        (
            {"feline": ["cat"]},
            'no label covers the target class "lynx", "dog"; add each of them to the label that '
            "such a case gets at this site, or would get",
        ),
        (
            {"pet": ["cat", "dog", "lynx"], "ghost": []},
            'the label "ghost" covers no target class; remove it or say what it covers',
        ),
    ],
)
def test_a_wrong_mapping_is_refused(mapping: dict[str, object], message: str) -> None:
    refused(message, lambda: coarse(ANIMALS, mapping))


def test_names_beside_a_mapping_are_refused() -> None:
    refused(
        "label names are given twice: in the mapping and as names; leave out names",
        lambda: coarse(ANIMALS, {"pet": list(ANIMALS)}, names=["pet"]),
    )


# ---------------------------------------------------------------- bags


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        (
            [[0.7, 0.2, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]],
            'the bag priors Π: the row of bag "0" sums to 1.1, not 1; a row holds the proportions '
            r"of all classes in that bag \(divide percentages by 100\)",
        ),
        (np.multiply(PRIORS, 100), r"sums to 100, not 1; .*\(divide percentages by 100\)"),
        ([[0.5, 0.5]], "the bag priors Π must have any number of rows × 3 columns, .* it is 1 × 2"),
        (
            PRIORS[:2],
            "bag priors have rank 2 but there are 3 classes; FedUL needs at least as many "
            r"sufficiently different bags as classes \(found 2 bags, 2 distinct rows\)\. Merge "
            "classes or add bags, or set minimum_rank = 2 if other sites can tell the remaining",
        ),
        (
            [PRIORS[0], PRIORS[1], PRIORS[0], PRIORS[1]],
            r"bag priors have rank 2 but there are 3 classes; .* \(found 4 bags, 2 distinct rows\)",
        ),
        # The third is the mean of the others: three distinct rows, but no third piece of evidence.
        ([PRIORS[0], PRIORS[1], [0.4, 0.4, 0.2]], r"rank 2 .* \(found 3 bags, 3 distinct rows\)"),
        (
            [[0.4, 0.3, 0.3], [0.4001, 0.2999, 0.3], [0.4, 0.3001, 0.2999]],
            r"the bags' class proportions are too much alike \(condition number .*, at most 1e\+04 "
            r"accepted\): small errors in the priors would decide the result\. Form bags that "
            "differ more, or raise maximum_condition",
        ),
    ],
)
def test_wrong_bag_priors_are_refused(priors: object, message: str) -> None:
    refused(message, lambda: bags(ANIMALS, priors))


def test_a_declared_rank_must_be_met_and_possible() -> None:
    same = [PRIORS[0], PRIORS[0]]
    refused(
        r"bag priors have rank 1 but minimum_rank is 2 \(found 2 bags, 1 distinct rows\)",
        lambda: bags(ANIMALS, same, minimum_rank=2),
    )
    for rank in (0, 4):
        refused(
            f"minimum_rank is {rank}; it must be from 1 to the number of classes, 3",
            lambda rank=rank: bags(ANIMALS, PRIORS, minimum_rank=rank),
        )


def test_a_condition_that_was_accepted_is_no_error() -> None:
    close = [[0.4, 0.3, 0.3], [0.4001, 0.2999, 0.3], [0.4, 0.3001, 0.2999]]
    assert len(bags(ANIMALS, close, maximum_condition=1e6).symbols) == 3


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([1, 2], "there are 3 bags but 2 bag sizes; give one size per bag"),
        (
            [10, 0, 5],
            'bag "ward-b" is empty; leave it out of the bag priors and the bag sizes',
        ),
        ([10, -2, 5], 'bag "ward-b" has size -2; give its number of samples'),
        ([10, 5, np.nan], 'bag "ward-c" has size nan; give its number of samples'),
        ([np.inf, 5, 5], 'bag "ward-a" has size inf; give its number of samples'),
        (["ten", 5, 5], "the bag sizes: numbers are needed, without text or blank cells"),
    ],
)
def test_wrong_bag_sizes_are_refused(sizes: object, message: str) -> None:
    names = ["ward-a", "ward-b", "ward-c"]
    refused(message, lambda: bags(ANIMALS, PRIORS, sizes=sizes, names=names))


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (
            [0.5, 0.5, 0],
            'the target prior π is 0 for class "dog", but it makes up .* of bag ".*"; give the '
            "class a share of the target population, however small, or leave it out",
        ),
        (
            [0.5, 0.5, 0.5],
            "the target prior π sums to 1.5, not 1; give the share of each class",
        ),
        (
            [0.5, 0.5],
            "the target prior π has 2 entries but there are 3 target classes; give the share of",
        ),
        ([0.5, 0.5, np.nan], "the target prior π has the entry nan in row 1, column 3"),
        ([0.5, 0.6, -0.1], "the target prior π has the negative entry -0.1"),
        (["a", "b", "c"], "the target prior π: numbers are needed"),
    ],
)
def test_a_wrong_target_prior_is_refused(prior: object, message: str) -> None:
    refused(message, lambda: bags(ANIMALS, PRIORS, target_prior=prior))


def test_a_target_prior_of_zero_is_refused_even_for_a_class_in_no_bag() -> None:
    refused(
        'the target prior π is 0 for class "dog"; a class that never occurs in the target '
        "population cannot be learned: leave it out of the label space or give it a share",
        lambda: bags(
            ANIMALS, [[0.7, 0.3, 0], [0.2, 0.8, 0]], minimum_rank=2, target_prior=[0.5, 0.5, 0]
        ),
    )


def test_bag_names_must_match_the_priors() -> None:
    refused(
        "the bag priors Π must have 2 rows × 3 columns",
        lambda: bags(ANIMALS, PRIORS, names=["ward-a", "ward-b"]),
    )


# ---------------------------------------------------------------- candidates


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (
            [[1, 0, 0, 0]],
            r"candidate sets must be a matrix of samples × 3 classes; found shape \(1, 4\)",
        ),
        ([1, 0, 1], r"matrix of samples × 3 classes; found shape \(3,\)"),
        (
            [[1, 0, 1], [0, 2, 0]],
            "a candidate matrix holds 1 for a candidate and 0 otherwise; sample 1 has 2 for the "
            'class "lynx"',
        ),
        ([[0.5, 0.5, 0]], 'sample 0 has 0.5 for the class "cat"'),
        ([[1, np.nan, 0]], 'sample 0 has nan for the class "lynx"'),
        (torch.zeros(0, 3), "the candidate matrix has no rows; it needs one per sample"),
        (
            [[1, 0, 0], [0, 0, 0], [0, 0, 0]],
            r"the candidate set of sample 1 is empty \(2 in all\); every sample needs at least one "
            r"candidate \(mark all classes for a sample nothing is known about\)",
        ),
        (sparse.csr_matrix((2, 3)), r"the candidate set of sample 0 is empty \(2 in all\)"),
        (["cat|dog"], "the candidate matrix: numbers are needed, without text"),
        ([["cat"], ["cat", "dog"]], "the candidate matrix: the rows have different lengths"),
    ],
)
def test_wrong_candidate_matrices_are_refused(sets: object, message: str) -> None:
    refused(message, lambda: candidates(ANIMALS, sets))


@pytest.mark.parametrize(
    ("joined", "message"),
    [
        (
            ["cat", "", "cat"],
            r"the candidate set of sample 1 is empty; every sample needs at least one candidate "
            r"\(list all classes for a sample nothing is known about\)",
        ),
        (["cat", " | "], "the candidate set of sample 1 is empty"),
        (["cat|linx"], 'unknown label "linx"; did you mean "lynx"\\?'),
        (
            [["cat"], ["dog"]],
            r'candidate sets must be one text per sample, such as "a\|b", not an array of shape',
        ),
        ([["cat"], ["cat", "dog"]], "the candidate sets: the rows have different lengths"),
    ],
)
def test_wrong_joined_names_are_refused(joined: list[str], message: str) -> None:
    refused(message, lambda: candidate_mask(ANIMALS, joined))


def test_class_names_that_contain_the_separator_are_refused() -> None:
    space = LabelSpace(("cat|lynx", "cat", "lynx"))
    message = r'the class name "cat\|lynx" contains "\|", which stands between the names'
    refused(message, lambda: candidates(space, np.eye(3)))
    refused(message, lambda: candidate_mask(space, ["cat|lynx"]))
    assert candidate_mask(space, ["cat|lynx;cat"], ";").tolist() == [[True, True, False]]


# ---------------------------------------------------------------- class subsets


@pytest.mark.parametrize("make", [subset, private_subset])
@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], "the class set of the site is empty; name the classes that occur there"),
        (["cat", "cat"], 'names "cat" more than once; names must be distinct'),
        (["cat", "linx"], 'unknown label "linx"; did you mean "lynx"\\?'),
        ("cat", r'the class set of the site is the text "cat"; give a list: \["cat"\]'),
    ],
)
def test_wrong_class_sets_are_refused(make: Callable, classes: object, message: str) -> None:
    refused(message, lambda: make(ANIMALS, classes))


# ---------------------------------------------------------------- observations


def test_labels_must_be_as_many_as_samples() -> None:
    message = "there are 3 samples but 2 labels; give one label per sample"
    refused(message, lambda: exact(ANIMALS).observe(["cat", "dog"], 3))
    refused("there are 3 samples but 1 labels", lambda: exact(ANIMALS).observe("cat", 3))


@pytest.mark.parametrize(
    "view",
    [exact(ANIMALS), bags(ANIMALS, PRIORS), subset(ANIMALS, ["cat", "dog"])],
    ids=lambda view: view.kind,
)
def test_missing_labels_are_refused(view) -> None:
    refused(
        f"its {view.kind} view needs one label per sample, and none were given; a site without "
        "labels has the view unlabeled",
        lambda: view.observe(None, 3),
    )


def test_a_class_outside_the_site_s_subset_is_refused() -> None:
    refused('unknown label "lynx"', lambda: subset(ANIMALS, ["cat", "dog"]).observe(["lynx"], 1))


def test_candidate_rows_that_the_view_was_not_made_with_are_refused() -> None:
    view = candidates(ANIMALS, [[1, 1, 0]])
    refused(
        "the label row of sample 1 is none of those that the view was made with; make the view "
        "from the same rows",
        lambda: view.observe([[1, 1, 0], [0, 1, 1]], 2),
    )
    refused("matrix of samples × 3 classes", lambda: view.observe([[1, 1]], 1))
    refused(
        "the candidate matrix: numbers are needed", lambda: view.observe([["cat", "a", "b"]], 1)
    )


def test_rows_of_marks_do_not_match_rows_of_other_likelihoods() -> None:
    """Half a chance of a label is not a mark, and must not be taken for its absence."""
    half = coarse(ANIMALS, [[1, 0.5, 0], [0, 0.5, 1]])
    refused("the label row of sample 0 is none", lambda: half.observe([[1, 0, 0]], 1))
    refused("the label row of sample 0 is none", lambda: half.observe([[1, 1, 0]], 1))


def test_a_label_that_by_the_matrix_never_occurs_is_refused() -> None:
    view = noisy(ANIMALS, [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert view.observe(["cat", "dog"], 2).tolist() == [0, 2]
    refused(
        'sample 1 has the label "lynx", which by the declared matrix never occurs '
        r"\(2 such samples\)\. Correct the matrix or the label",
        lambda: view.observe(["cat", "lynx", "lynx"], 3),
    )
