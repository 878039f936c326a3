"""Label spaces: names in, indices out, and words for what is wrong."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.errors import PotluckError
from potluck.labels import LabelSpace

ANIMALS = LabelSpace(("cat", "dog", "horse"))


@pytest.mark.parametrize(
    "labels",
    [
        ["dog", "cat", "dog", "horse"],
        ("dog", "cat", "dog", "horse"),
        np.array(["dog", "cat", "dog", "horse"]),
        np.array(["dog", "cat", "dog", "horse"], dtype=object),
        [1, 0, 1, 2],
        np.array([1, 0, 1, 2], dtype=np.uint8),
        np.array([1, 0, 1, 2], dtype=np.int32),
        torch.tensor([1, 0, 1, 2]),
        torch.tensor([1, 0, 1, 2], dtype=torch.int16),
    ],
    ids=lambda labels: f"{type(labels).__name__}-{type(labels[0]).__name__}",
)
def test_names_and_indices_of_every_type_encode_alike(labels: object) -> None:
    encoded = ANIMALS.encode(labels)
    assert encoded.dtype == torch.int64
    assert encoded.tolist() == [1, 0, 1, 2]


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, unique=True), st.data())
def test_encoding_names_inverts_indexing_them(names: list[str], data: st.DataObject) -> None:
    names = [name.replace("\0", "0") for name in names]  # NumPy's texts end at a null character
    names = list(dict.fromkeys(names))
    space = LabelSpace(tuple(names))
    indices = data.draw(st.lists(st.integers(0, len(names) - 1)))
    assert space.encode([names[i] for i in indices]).tolist() == indices
    assert [space.index(name) for name in names] == list(range(len(names)))


def test_no_labels_encode_to_an_empty_tensor() -> None:
    assert ANIMALS.encode([]).shape == (0,)
    assert ANIMALS.encode([]).dtype == torch.int64


def test_a_space_behaves_like_a_sequence_of_names() -> None:
    assert len(ANIMALS) == 3
    assert list(ANIMALS) == ["cat", "dog", "horse"]
    assert "dog" in ANIMALS
    assert "cow" not in ANIMALS
    assert ANIMALS.index("horse") == 2


def test_numbers_become_names() -> None:
    assert LabelSpace.numbered(3).names == ("0", "1", "2")
    assert LabelSpace((7, 9)).names == ("7", "9")
    assert LabelSpace.numbered(3).encode(["2", "0"]).tolist() == [2, 0]


def test_spaces_with_the_same_names_in_the_same_order_are_equal() -> None:
    assert LabelSpace(["cat", "dog", "horse"]) == ANIMALS
    assert LabelSpace(("dog", "cat", "horse")) != ANIMALS


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "a label space needs at least one name; none were given"),
        (("cat", " "), "name number 2 of the label space is empty; fill it in or remove it"),
        (("a", "b", "a", "b"), 'names "a", "b" more than once; names must be distinct'),
        ("cat", r'is a list of names, not the text "cat"; write \["cat"\]'),
    ],
)
def test_names_that_cannot_be_told_apart_are_refused(names: object, message: str) -> None:
    with pytest.raises(PotluckError, match=message):
        LabelSpace(names)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["cat", "dgo"], 'unknown label "dgo"; did you mean "dog"\\? Known: cat, dog, horse'),
        (["xylophone"], 'unknown label "xylophone". Known: cat, dog, horse'),
        (
            [0, 3],
            "label index 3 is outside 0…2: whole numbers are positions in the list of names, "
            r'counted from 0 \("cat", "dog", "horse"\)\. Write labels as text if they are names',
        ),
        ([0, -1], "label index -1 is outside 0…2"),
        ([0.0, 1.0], "labels are float64 numbers; give names, or whole numbers counted from 0"),
        ([1, None, 0], 'sample 1 has no label: its entry reads "None" \\(1 such samples\\)'),
        (torch.tensor([0.0]), "labels are float32 numbers"),
        ([np.nan, 1.0], "A column with blank cells is often read as such numbers"),
        ([True, False], "labels are bool numbers"),
        ([["cat"], ["dog"]], r"one value per sample, not an array of shape \(2, 1\)"),
        ([["cat"], ["dog", "cat"]], "the labels: the rows have different lengths"),
        (
            ["cat", "", "dog", ""],
            r'sample 1 has no label: its entry reads "" \(2 such samples\)\. Fill in the label or '
            "leave the sample out",
        ),
        (["cat", None], 'sample 1 has no label: its entry reads "None"'),
        (["cat", float("nan")], 'sample 1 has no label: its entry reads "nan"'),
    ],
)
def test_labels_that_mean_nothing_are_refused(labels: object, message: str) -> None:
    with pytest.raises(PotluckError, match=message):
        ANIMALS.encode(labels)


def test_a_class_may_be_called_none() -> None:
    assert LabelSpace(("none", "mild", "severe")).encode(["mild", "none"]).tolist() == [1, 0]


def test_a_long_space_is_not_listed_in_full() -> None:
    with pytest.raises(PotluckError, match=r'\("0", "1", "2", "3", "4", …\)'):
        LabelSpace.numbered(1000).encode([1000])
