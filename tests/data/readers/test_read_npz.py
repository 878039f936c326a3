import numpy as np
import pytest
import torch

from potluck.data.readers import read_dataset
from potluck.data.readers.npz import read_arrays, read_npz, read_whole_npz
from potluck.errors import PotluckError

PIXELS = np.arange(4 * 5 * 6, dtype=np.uint8)


def test_a_file_with_its_own_test_data_keeps_it(tmp_path):
    file = tmp_path / "data.npz"
    x, y = np.eye(3), np.array([2, 0, 1])
    np.savez(file, x_train=x, y_train=y, x_test=x[:1], y_test=y[:1], x=x, y=y)
    train, test = read_dataset("npz", file)
    assert train.inputs.dtype == torch.float32
    assert train.inputs.tolist() == x.tolist()
    assert train.classes.tolist() == [2, 0, 1]
    assert test.classes.tolist() == [2]
    assert train.names == test.names == ("0", "1", "2")


def test_a_file_without_test_data_is_divided_the_same_way_every_time(tmp_path):
    file = tmp_path / "data.npz"
    np.savez(file, x=np.arange(40.0)[:, None], y=np.arange(40) % 2)
    first, again = read_dataset("npz", file), read_dataset("npz", file)
    assert torch.bincount(first.test.classes).tolist() == [4, 4]
    assert first.test.inputs.equal(again.test.inputs)


def test_arrays_may_have_other_names_and_labels_may_be_words(tmp_path):
    file = tmp_path / "data.npz"
    np.savez(file, a=np.eye(2), b=["dog", "cat"], c=np.eye(2)[:1], d=["eel"])
    train, test = read_npz(file, ("a", "b"), ("c", "d"))
    assert train.names == ("cat", "dog", "eel")
    assert train.classes.tolist() == [1, 0]
    assert test.classes.tolist() == [2]
    assert read_whole_npz(file, ("a", "b")).names == ("cat", "dog")


def test_the_array_names_gives_the_order_of_classes(tmp_path):
    file = tmp_path / "data.npz"
    np.savez(file, x=np.eye(2), y=["dog", "cat"], names=["dog", "cat", "eel"])
    assert read_whole_npz(file).classes.tolist() == [0, 1]
    np.savez(file, x=np.eye(2), y=["dog", "fox"], names=["dog", "cat", "eel"])
    with pytest.raises(PotluckError, match='label "fox" is none of the class names'):
        read_whole_npz(file)


@pytest.mark.parametrize(
    ("stored", "shape", "pixel"),
    [
        ((4, 5, 6), (4, 1, 5, 6), (1, 0, 2, 3)),
        ((2, 3, 4, 5), (2, 3, 4, 5), (1, 2, 2, 3)),
        ((2, 4, 5, 3), (2, 3, 4, 5), (1, 2, 2, 3)),
        ((2, 3, 20, 1), (2, 3, 20, 1), (1, 2, 2, 0)),
    ],
)
def test_images_get_their_channel_second(tmp_path, stored, shape, pixel):
    images = PIXELS.reshape(stored)
    np.savez(tmp_path / "data.npz", x=images)
    inputs = read_arrays(tmp_path / "data.npz", labels=None).inputs
    assert inputs.shape == shape
    n, c, h, w = pixel
    where = {(4, 5, 6): (n, h, w), (2, 4, 5, 3): (n, h, w, c)}.get(stored, pixel)
    assert inputs[pixel] == images[where]


def test_a_missing_array_is_named_and_those_there_are_listed(tmp_path):
    file = tmp_path / "data.npz"
    np.savez(file, images=PIXELS, label=PIXELS)
    with pytest.raises(PotluckError, match=r'unknown array "labels"; did you mean "label".*images'):
        read_arrays(file, "images", "labels")
    with pytest.raises(PotluckError, match=r"needs the arrays x_train.*it has images, label"):
        read_dataset("npz", file)
    with pytest.raises(PotluckError, match='"npz" needs a path'):
        read_dataset("npz")


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.array([[1.0, np.nan], [0, 0]]), [0, 1], "row 0, column 1 .*is nan"),
        (np.array([[1.0, 2], [0, 1e300]]), [0, 1], r"row 1, column 1 .*is 1e\+300"),
        (np.zeros((2, 3, 4, 4)), [0, 1], "must be images, uint8"),
        (np.array([["a"], ["b"]]), [0, 1], "inputs are <U1"),
        (np.zeros((0, 3)), np.zeros(0, int), "no samples"),
        (np.eye(2), [0, -1], "sample 1 .*has -1"),
        (np.eye(2), [0.5, 1], "labels are float64"),
        (np.eye(2), [[0, 1], [1, 0]], r"labels are int64 of shape \(2, 2\)"),
        (np.eye(2), [0], "2 inputs but 1 classes"),
    ],
)
def test_arrays_that_are_no_data_set_are_refused(tmp_path, x, y, message):
    file = tmp_path / "data.npz"
    np.savez(file, x=x, y=y)
    with pytest.raises(PotluckError, match=rf"data\.npz.*{message}"):
        read_whole_npz(file)


def test_names_on_one_side_and_numbers_on_the_other_are_refused(tmp_path):
    file = tmp_path / "data.npz"
    np.savez(file, x_train=np.eye(2), y_train=["a", "b"], x_test=np.eye(2), y_test=[0, 1])
    with pytest.raises(PotluckError, match="one of y_train and y_test has names"):
        read_npz(file)


def test_a_site_keeps_its_labels_as_they_are_stored(tmp_path):
    file = tmp_path / "site.npz"
    candidates = np.array([[True, False], [True, True]])
    np.savez(file, x=np.eye(2), y=["flu", "cold"], candidates=candidates, short=[1])
    assert read_arrays(file).labels.tolist() == ["flu", "cold"]
    assert np.array_equal(read_arrays(file, labels="candidates").labels, candidates)
    assert read_arrays(file, labels=None).labels is None
    with pytest.raises(
        PotluckError, match=r'"x" has 2 samples, but array "short" has shape \(1,\)'
    ):
        read_arrays(file, labels="short")


def test_files_that_are_no_npz_are_refused(tmp_path):
    file = tmp_path / "data.npz"
    with pytest.raises(PotluckError, match=r'data\.npz" does not exist'):
        read_arrays(file)
    with pytest.raises(PotluckError, match="is a folder"):
        read_arrays(tmp_path)
    file.write_bytes(b"x,y\n1,2\n")
    with pytest.raises(PotluckError, match="is not an NPZ file"):
        read_arrays(file)


def test_pickled_objects_in_an_npz_are_refused(tmp_path):
    file = tmp_path / "data.npz"
    np.savez(file, x=np.eye(1), y=np.array([{"a": 1}], dtype=object))
    with pytest.raises(PotluckError, match=r'array "y" cannot be read .*not Python objects'):
        read_arrays(file)


@pytest.mark.parametrize("place", [60, -70])
def test_a_damaged_npz_is_refused(tmp_path, place):
    file = tmp_path / "data.npz"
    np.savez(file, x=np.eye(9), y=np.arange(9))
    content = bytearray(file.read_bytes())
    content[place] ^= 255
    file.write_bytes(content)
    with pytest.raises(PotluckError, match=r"data\.npz.*(damaged|cannot be read)"):
        read_arrays(file)
