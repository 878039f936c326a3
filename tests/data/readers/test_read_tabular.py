import numpy as np
import pytest
import torch

from potluck.data.readers import DATASETS, read_dataset
from potluck.data.readers.digits import digits, digits_split
from potluck.data.readers.tabular import frogs
from potluck.errors import PotluckError


def write_frogs(folder, genus=(0, 0, 1)):
    """Three species with four recordings each, of five calls."""
    record = np.arange(60) // 5
    species = record // 4
    np.savez(
        folder / "frogs_mfcc.npz",
        X=np.random.default_rng(0).normal(size=(60, 22)),
        record=(record + 1).astype(np.uint8),
        species=species.astype(np.uint8),
        genus=np.array(genus, np.uint8)[species],
        family=np.zeros(60, np.uint8),
        species_names=["a", "b", "c"],
        genus_names=["A", "B"],
        family_names=["F"],
    )


def test_frogs_are_divided_by_recording_and_grouped_twice(tmp_path):
    write_frogs(tmp_path)
    train, test = read_dataset("frogs", tmp_path)
    assert torch.bincount(test.classes).tolist() == [5, 5, 5]
    recordings = [set(part.labellings["record"].symbols.tolist()) for part in (train, test)]
    assert not recordings[0] & recordings[1]
    assert train.groupings == {
        "genus": {"A": ("a", "b"), "B": ("c",)},
        "family": {"F": ("a", "b", "c")},
    }
    assert list(train.labellings) == ["record"]
    assert train.labellings["record"].names[0] == "1"


def test_another_seed_takes_other_recordings(tmp_path):
    write_frogs(tmp_path)
    file = tmp_path / "frogs_mfcc.npz"
    tests = [frogs(file, seed).test.labellings["record"].symbols for seed in range(4)]
    assert any(not tests[0].equal(other) for other in tests[1:])


def test_ranks_that_do_not_follow_from_the_species_are_refused(tmp_path):
    write_frogs(tmp_path)
    file = tmp_path / "frogs_mfcc.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    arrays["genus"][7] = 1
    np.savez(file, **arrays)
    with pytest.raises(PotluckError, match=r"sample 7 .*class 0.*is 0, but 1 is stored"):
        read_dataset("frogs", file)


def test_cardiotocography_keeps_the_second_opinion_beside_the_first(tmp_path):
    pattern = np.arange(40) % 4
    nsp = np.where(np.arange(40) == 3, 0, pattern // 2)  # once they disagree
    np.savez(
        tmp_path / "cardiotocography.npz",
        X=np.arange(80.0).reshape(40, 2),
        pattern=pattern.astype(np.uint8),
        nsp=nsp.astype(np.uint8),
        pattern_names=list("abcd"),
        nsp_names=["normal", "suspect"],
    )
    train, test = read_dataset("cardiotocography", tmp_path)
    assert torch.bincount(test.classes).tolist() == [2, 2, 2, 2]
    for part in (train, test):
        rows = (part.inputs[:, 0] / 2).long().numpy()
        assert part.labellings["nsp"].symbols.tolist() == nsp[rows].tolist()
        assert not part.groupings


def test_nan_in_a_table_is_refused(tmp_path):
    write_frogs(tmp_path)
    file = tmp_path / "frogs_mfcc.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    arrays["X"][2, 3] = np.nan
    np.savez(file, **arrays)
    with pytest.raises(PotluckError, match=r"row 2, column 3 .*is nan"):
        read_dataset("frogs", file)


def test_digits_are_always_there_with_their_17_grey_levels_spread_out():
    dataset = digits()
    assert dataset.inputs.shape == (1797, 1, 8, 8)
    levels = sorted({round(level * 255 / 16) for level in range(17)})
    assert torch.unique(dataset.inputs).tolist() == levels
    train, test = read_dataset("digits")
    assert len(train) + len(test) == 1797
    assert abs(len(test) - 0.2 * 1797) < 6
    assert not digits_split(seed=1).test.inputs.equal(test.inputs)


def test_digits_have_no_path(tmp_path):
    with pytest.raises(PotluckError, match="come with scikit-learn: leave out the path"):
        read_dataset("digits", tmp_path)


def test_an_unknown_data_set_is_answered_with_the_likely_one():
    with pytest.raises(PotluckError, match='unknown data set "cifar-100"; did you mean "cifar100"'):
        read_dataset("cifar-100")


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("digits", "semg-like")])
def test_every_data_set_says_when_its_path_is_missing(tmp_path, name):
    with pytest.raises(PotluckError, match="needs a path"):
        read_dataset(name)
    with pytest.raises(PotluckError, match=r'nowhere".* does not exist'):
        read_dataset(name, tmp_path / "nowhere")
