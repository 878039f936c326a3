import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.data.dataset import Dataset, Labelling, check, split
from potluck.errors import PotluckError


def table(classes: list[int], names: tuple[str, ...] = ("a", "b", "c")) -> Dataset:
    n = len(classes)
    return Dataset(
        torch.arange(2.0 * n).reshape(n, 2),
        torch.tensor(classes),
        names,
        labellings={"doctor": Labelling(torch.arange(n) % 2, ("x", "y"))},
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_subset_keeps_inputs_classes_and_labellings_together():
    part = table([0, 1, 2, 1]).subset(torch.tensor([3, 0]))
    assert len(part) == 2
    assert part.inputs.tolist() == [[6, 7], [0, 1]]
    assert part.classes.tolist() == [1, 0]
    assert part.labellings["doctor"].symbols.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (table([0, 1, 3]), r"classes must lie in 0 to 2.*sample 2 .*has 3"),
        (table([0, -1, 2]), r"sample 1 .*has -1"),
        (Dataset(torch.zeros(3, 2), torch.zeros(2).long(), ("a",)), "3 inputs but 2 classes"),
        (Dataset(torch.zeros(2, 2), torch.zeros(2), ("a",)), "classes must be int64"),
        (Dataset(torch.zeros(0, 2), torch.zeros(0).long(), ("a",)), "no samples"),
        (Dataset(torch.zeros(2, 2, 2), torch.zeros(2).long(), ("a",)), "uint8 images"),
        (table([0, 1], ("a", "a")), 'two classes have the name "a"'),
        (
            Dataset(torch.tensor([[0.0, 1.0], [2.0, torch.nan]]), torch.zeros(2).long(), ("a",)),
            "feature 1 of sample 1 .*is nan",
        ),
        (
            Dataset(
                torch.zeros(1, 2),
                torch.zeros(1).long(),
                ("a",),
                labellings={"doctor": Labelling(torch.tensor([2]), ("x", "y"))},
            ),
            'labels of "doctor" must lie in 0 to 1',
        ),
        (
            Dataset(
                torch.zeros(1, 2), torch.zeros(1).long(), ("a", "b"), {"space": {"all": ("a",)}}
            ),
            'grouping "space" must have every class',
        ),
    ],
)
def test_a_broken_data_set_is_named_with_its_origin(dataset, message):
    with pytest.raises(PotluckError, match=r"file\.npz: .*" + message):
        check(dataset, "file.npz")


def test_a_sound_data_set_passes_unchanged():
    dataset = table([0, 1, 2])
    assert check(dataset, "here") is dataset


@given(
    counts=st.lists(st.integers(2, 30), min_size=1, max_size=4),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 99),
)
def test_split_divides_every_class_as_near_the_fraction_as_whole_samples_allow(
    counts, fraction, seed
):
    classes = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    dataset = Dataset(torch.arange(float(len(classes)))[:, None], classes, tuple("abcd"))
    train, test = split(dataset, fraction, seeded(seed))
    together = torch.cat([train.inputs, test.inputs])[:, 0]
    assert together.sort().values.tolist() == list(range(len(classes)))
    for k, count in enumerate(counts):
        held = int((test.classes == k).sum())
        assert 1 <= held <= count - 1
        allowed = torch.arange(1, count)
        best = (allowed - fraction * count).abs().min()
        assert abs(held - fraction * count) <= best + 1e-4


def test_split_is_decided_by_the_generator_alone():
    dataset = table([0] * 20 + [1] * 20)
    first, again, other = (split(dataset, 0.3, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.test.inputs, again.test.inputs)
    assert not torch.equal(first.test.inputs, other.test.inputs)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    fraction=st.floats(0.1, 0.9),
    seed=st.integers(0, 99),
)
def test_split_never_cuts_a_group(sizes, fraction, seed):
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    dataset = Dataset(groups[:, None].float(), torch.zeros(len(groups)).long(), ("a",))
    train, test = split(dataset, fraction, seeded(seed), groups)
    in_train, in_test = set(train.inputs[:, 0].tolist()), set(test.inputs[:, 0].tolist())
    assert in_train
    assert in_test
    assert not in_train & in_test


def test_a_group_larger_than_the_test_part_is_not_chosen_while_smaller_ones_do():
    sizes = torch.tensor([205, 15, 28, 22])  # a fifth is 54: 28 + 22 or all the small ones
    groups = torch.arange(4).repeat_interleave(sizes)
    dataset = Dataset(groups[:, None].float(), torch.zeros(270).long(), ("a",))
    for seed in range(10):
        assert 43 <= len(split(dataset, 0.2, seeded(seed), groups).test) <= 65


def test_split_refuses_what_it_cannot_divide():
    with pytest.raises(PotluckError, match='class "b" cannot be divided'):
        split(table([0, 0, 1]), 0.5, seeded())
    with pytest.raises(PotluckError, match="more than one class"):
        split(table([0, 0, 1, 1]), 0.5, seeded(), torch.tensor([0, 1, 1, 2]))
    with pytest.raises(PotluckError, match=r"between 0 and 1, but is 1\.5"):
        split(table([0, 0]), 1.5, seeded())
