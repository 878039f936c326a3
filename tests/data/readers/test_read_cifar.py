import pickle
from pathlib import Path

import numpy as np
import pytest

from potluck.data.readers import read_dataset
from potluck.data.readers.cifar import CIFAR10, CIFAR100
from potluck.data.readers.pickles import read_pickle
from potluck.errors import PotluckError

BATCHES = [f"data_batch_{index}" for index in range(1, 6)] + ["test_batch"]
# apple is a fruit (superclass 4), worm an invertebrate (13), beaver an aquatic mammal (0).
FINE, COARSE = [0, 99, 4], [4, 13, 0]


def pixels(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), np.uint8)


def write_pickles10(folder: Path, protocol: int = 2) -> None:
    folder.mkdir()
    for seed, name in enumerate(BATCHES):
        batch = {"data": pixels(seed, 2), "labels": [seed, 9 - seed], "batch_label": name}
        (folder / name).write_bytes(pickle.dumps(batch, protocol))


def write_binary10(folder: Path) -> None:
    folder.mkdir()
    for seed, name in enumerate(BATCHES):
        labels = np.array([[seed], [9 - seed]], np.uint8)
        (folder / f"{name}.bin").write_bytes(np.hstack([labels, pixels(seed, 2)]).tobytes())


def write_pickles100(folder: Path, coarse: list[int] = COARSE) -> None:
    folder.mkdir()
    for seed, name in enumerate(("train", "test")):
        batch = {"data": pixels(seed, 3), "fine_labels": FINE, "coarse_labels": coarse}
        (folder / name).write_bytes(pickle.dumps(batch))


def write_binary100(folder: Path, coarse: list[int] = COARSE) -> None:
    folder.mkdir()
    for seed, name in enumerate(("train.bin", "test.bin")):
        labels = np.array([coarse, FINE], np.uint8).T
        (folder / name).write_bytes(np.hstack([labels, pixels(seed, 3)]).tobytes())


@pytest.mark.parametrize("protocol", range(6))
def test_cifar10_pickles_of_every_protocol_are_read(tmp_path, protocol):
    write_pickles10(tmp_path / "cifar-10-batches-py", protocol)
    train, test = read_dataset("cifar10", tmp_path)
    assert train.classes.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert test.classes.tolist() == [5, 4]
    assert train.inputs.shape == (10, 3, 32, 32)
    # Planes are stored one after the other, each row by row.
    assert train.inputs[3, 2, 5, 7] == pixels(1, 2)[1, 2 * 1024 + 5 * 32 + 7]
    assert train.names == CIFAR10


def test_a_pickle_as_python_2_wrote_it_is_read(tmp_path):
    # Protocol 0 with byte strings (S'…'), which Python 3 itself never writes.
    file = tmp_path / "meta"
    file.write_bytes(b"(dp0\nS'label_names'\np1\n(lp2\nS'caf\\xe9'\np3\nas.")
    assert read_pickle(file) == {"label_names": ["café"]}


def test_the_binary_release_is_the_same_data_as_the_pickles(tmp_path):
    write_pickles10(tmp_path / "a")
    write_binary10(tmp_path / "b")
    pickled, binary = (
        read_dataset("cifar10", tmp_path / "a"),
        read_dataset("cifar10", tmp_path / "b"),
    )
    for one, other in zip(pickled, binary, strict=True):
        assert one.inputs.equal(other.inputs)
        assert one.classes.equal(other.classes)


@pytest.mark.parametrize("write", [write_pickles100, write_binary100])
def test_cifar100_has_fine_classes_in_twenty_superclasses(tmp_path, write):
    write(tmp_path / "cifar100")
    train, test = read_dataset("cifar100", tmp_path / "cifar100")
    assert [train.names[k] for k in train.classes] == ["apple", "worm", "beaver"]
    assert train.inputs.flatten(1).numpy().tolist() == pixels(0, 3).tolist()
    assert test.inputs.flatten(1).numpy().tolist() == pixels(1, 3).tolist()
    superclasses = train.groupings["superclass"]
    assert len(superclasses) == 20
    assert all(len(group) == 5 for group in superclasses.values())
    assert superclasses["people"] == ("baby", "boy", "girl", "man", "woman")


@pytest.mark.parametrize("write", [write_pickles100, write_binary100])
def test_a_coarse_label_that_contradicts_the_fine_one_is_refused(tmp_path, write):
    write(tmp_path / "cifar100", coarse=[4, 5, 0])
    with pytest.raises(PotluckError, match=r"sample 1 .*class 99.*is 13, but 5 is stored"):
        read_dataset("cifar100", tmp_path)


def test_names_come_from_the_meta_files_when_there_are_any(tmp_path):
    folder = tmp_path / "python"
    write_pickles100(folder)
    fine = [name.upper() for name in CIFAR100]
    coarse = [f"group {index}" for index in range(20)]
    meta = {"fine_label_names": fine, "coarse_label_names": coarse}
    (folder / "meta").write_bytes(pickle.dumps(meta))
    train = read_dataset("cifar100", folder).train
    assert train.names == tuple(fine)
    assert train.groupings["superclass"]["group 14"] == ("BABY", "BOY", "GIRL", "MAN", "WOMAN")

    folder = tmp_path / "binary"
    write_binary10(folder)
    (folder / "batches.meta.txt").write_text("\n".join("ABCDEFGHIJ") + "\n\n")
    assert read_dataset("cifar10", folder).train.names == tuple("ABCDEFGHIJ")
    (folder / "batches.meta.txt").write_text("A\nB\n")
    with pytest.raises(PotluckError, match="names 2 labels; there must be 10"):
        read_dataset("cifar10", folder)


class Evil:
    def __reduce__(self):
        return (print, ("this ran",))


def test_a_pickle_that_would_run_code_is_refused_and_does_not(tmp_path, capsys):
    write_pickles10(tmp_path / "cifar10")
    batch = {"data": Evil(), "labels": [0]}
    (tmp_path / "cifar10" / "data_batch_2").write_bytes(pickle.dumps(batch))
    with pytest.raises(PotluckError, match=r"data_batch_2.*asks for builtins\.print"):
        read_dataset("cifar10", tmp_path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("keep", [0, 1, 30, 200, -1])
def test_a_truncated_pickle_is_refused(tmp_path, keep):
    file = tmp_path / "batch"
    file.write_bytes(pickle.dumps({"data": pixels(0, 1), "labels": [0]})[:keep])
    with pytest.raises(PotluckError, match=r'batch" cannot be unpickled'):
        read_pickle(file)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"data": pixels(0, 2)}, "needs data, labels"),
        ({"data": np.zeros((2, 5), np.uint8), "labels": [0, 1]}, r"must be uint8 \(N, 3072\)"),
        ({"data": pixels(0, 2), "labels": [0, 10]}, r"0 to 9.*has 10"),
        ({"data": pixels(0, 2), "labels": [0]}, "inputs but"),
    ],
)
def test_a_batch_that_is_not_one_is_refused(tmp_path, batch, message):
    write_pickles10(tmp_path / "cifar10")
    (tmp_path / "cifar10" / "test_batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(PotluckError, match=message):
        read_dataset("cifar10", tmp_path)


def test_a_truncated_binary_file_is_refused(tmp_path):
    write_binary100(tmp_path / "cifar100")
    file = tmp_path / "cifar100" / "test.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(PotluckError, match="9221 bytes, which is no multiple of a record's 3074"):
        read_dataset("cifar100", tmp_path)


def test_a_missing_batch_is_named(tmp_path):
    write_pickles10(tmp_path / "cifar10")
    (tmp_path / "cifar10" / "data_batch_3").unlink()
    with pytest.raises(PotluckError, match=r'data_batch_3" does not exist'):
        read_dataset("cifar10", tmp_path)
