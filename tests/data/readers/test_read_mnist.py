import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from potluck.data.readers import read_dataset
from potluck.data.readers.idx import read_idx
from potluck.errors import PotluckError

IMAGES = np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2)
LABELS = np.array([9, 0, 8], np.uint8)


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def write_idx(folder: Path, labels: np.ndarray = LABELS, mark: str = "-", gz: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for prefix in ("train", "t10k"):
        for name, array in (("images", IMAGES), ("labels", labels)):
            file = folder / f"{prefix}-{name}{mark}idx{array.ndim}-ubyte"
            if gz:
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(idx(array)))
            else:
                file.write_bytes(idx(array))


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("place", [".", "raw", "MNIST/raw"])
def test_mnist_is_found_in_each_usual_layout(tmp_path, place, mark, gz):
    write_idx(tmp_path / place, mark=mark, gz=gz)
    for dataset in read_dataset("mnist", tmp_path):
        assert dataset.inputs.shape == (3, 1, 2, 2)
        assert np.array_equal(dataset.inputs[:, 0], IMAGES)
        assert dataset.classes.tolist() == [9, 0, 8]
        assert dataset.names == tuple("0123456789")
        assert not dataset.groupings


def test_fashion_mnist_has_garments_in_four_groups(tmp_path):
    write_idx(tmp_path / "FashionMNIST" / "raw")
    train = read_dataset("fashion-mnist", tmp_path).train
    assert [train.names[k] for k in train.classes] == ["Ankle boot", "T-shirt/top", "Bag"]
    assert train.groupings["group"]["footwear"] == ("Sandal", "Sneaker", "Ankle boot")
    assert len(train.groupings["group"]) == 4


def test_mnist_as_npz_is_found_by_folder_and_by_file(tmp_path):
    file = tmp_path / "mnist.npz"
    np.savez(file, x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS)
    for path in (tmp_path, file):
        assert read_dataset("mnist", path).test.classes.tolist() == [9, 0, 8]


def test_an_error_lists_what_was_looked_for_and_where(tmp_path):
    with pytest.raises(PotluckError) as caught:
        read_dataset("mnist", tmp_path)
    for part in (str(tmp_path / "MNIST" / "raw"), "idx3-ubyte", "train*.mxz", "mnist.npz"):
        assert part in str(caught.value)


def test_a_path_that_is_missing_or_not_given_is_said(tmp_path):
    with pytest.raises(PotluckError, match=r'nowhere" of data set "mnist" does not exist'):
        read_dataset("mnist", tmp_path / "nowhere")
    with pytest.raises(PotluckError, match='data set "mnist" needs a path'):
        read_dataset("mnist")


def test_a_missing_companion_file_is_named(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(PotluckError, match="has none of t10k-labels-idx1-ubyte"):
        read_dataset("mnist", tmp_path)


def test_labels_in_place_of_images_are_noticed_by_their_magic_number(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(idx(LABELS))
    with pytest.raises(PotluckError, match=r"starts with 00 00 08 01, .* start with 00 00 08 03"):
        read_idx(file, 3)


@pytest.mark.parametrize(
    ("keep", "message"), [(10, "cut off within its header"), (-1, r"= 12 bytes .* but has 11")]
)
def test_a_truncated_idx_file_is_noticed(tmp_path, keep, message):
    file = tmp_path / "file"
    file.write_bytes(idx(IMAGES)[:keep])
    with pytest.raises(PotluckError, match=message):
        read_idx(file, 3)


def test_a_truncated_gzip_file_is_noticed(tmp_path):
    file = tmp_path / "file.gz"
    file.write_bytes(gzip.compress(idx(IMAGES))[:-9])
    with pytest.raises(PotluckError, match="cannot be unpacked"):
        read_idx(file, 3)


def test_different_counts_of_images_and_labels_are_noticed(tmp_path):
    write_idx(tmp_path, labels=LABELS[:2])
    with pytest.raises(PotluckError, match="train files: there are 3 inputs but 2 classes"):
        read_dataset("mnist", tmp_path)


def test_labels_out_of_range_are_noticed(tmp_path):
    write_idx(tmp_path, labels=np.array([1, 10, 2], np.uint8))
    with pytest.raises(PotluckError, match=r"0 to 9.*sample 1 .*has 10"):
        read_dataset("mnist", tmp_path)
