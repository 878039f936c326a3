import numpy as np
import pytest
from scipy.io import savemat

from potluck.data.readers import read_dataset
from potluck.data.readers.svhn import read_mat
from potluck.errors import PotluckError


def images(n: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (32, 32, 3, n), np.uint8)


def test_svhn_has_ten_for_zero_and_the_sample_last(tmp_path):
    for part in ("train", "test"):
        labels = np.array([[10], [1], [9]], np.uint8)
        savemat(tmp_path / f"{part}_32x32.mat", {"X": images(), "y": labels})
    train, test = read_dataset("svhn", tmp_path)
    assert train.classes.tolist() == [0, 1, 9]
    assert test.inputs.shape == (3, 3, 32, 32)
    # A reading in some other order of dimensions would put this pixel elsewhere.
    assert train.inputs[2, 1, 4, 5] == images()[4, 5, 1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": images(), "y": np.array([[0], [1], [2]])}, "labels must be 1 to 10.*0 to 2 occur"),
        ({"X": images(), "y": np.array([[1], [2]])}, "3 inputs but 2 classes"),
        ({"X": images()}, "must have the variables X"),
        ({"X": np.zeros((8, 8, 3, 2)), "y": np.array([[1], [2]])}, r"must be \(32, 32, 3, N\)"),
    ],
)
def test_a_file_with_other_content_is_refused(tmp_path, content, message):
    file = tmp_path / "train_32x32.mat"
    savemat(file, content)
    with pytest.raises(PotluckError, match=message):
        read_mat(file)


@pytest.mark.parametrize("content", [b"", b"no MATLAB", b"MATLAB 5.0" + bytes(200)])
def test_a_file_that_is_not_matlabs_is_refused(tmp_path, content):
    file = tmp_path / "train_32x32.mat"
    file.write_bytes(content)
    with pytest.raises(PotluckError, match=r"train_32x32\.mat.*cannot be read as a MATLAB file"):
        read_mat(file)
