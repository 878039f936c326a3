import hashlib
import json
import lzma
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from potluck.data.readers import read_dataset
from potluck.data.readers.shards import read_stack
from potluck.errors import PotluckError

FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def residuals(plane: np.ndarray) -> bytes:
    """What is left of a plane (H, W) of signed numbers after prediction, pixel by pixel."""
    p, out = plane.astype(int), bytearray()
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            if i == 0 or j == 0:
                guess = p[i, j - 1] if j else p[i - 1, j] if i else 0
            else:
                w, n, nw = p[i, j - 1], p[i - 1, j], p[i - 1, j - 1]
                guess = sorted([w, n, w + n - nw])[1]
            out.append((p[i, j] - guess) % 256)
    return bytes(out)


def packed(images: np.ndarray, mode: str = "med", sha256: str | None = None) -> bytes:
    if images.ndim == 4 and images.shape[1] == 3:
        red, green, blue = images.transpose(1, 0, 2, 3)
        planes = [green, (red - green).view(np.int8), (blue - green).view(np.int8)]
    else:
        planes = [images.reshape(len(images), *images.shape[-2:])]
    body = images.tobytes()
    if mode == "med":
        body = b"".join(residuals(image) for plane in planes for image in plane)
    sha256 = sha256 or hashlib.sha256(images.tobytes()).hexdigest()
    head = json.dumps({"shape": images.shape, "mode": mode, "sha256": sha256}).encode()
    stream = lzma.compress(body, lzma.FORMAT_RAW, filters=FILTERS)
    return b"MXZ1" + struct.pack("<I", len(head)) + head + stream


shapes = st.one_of(
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 3), st.sampled_from([1, 3]), st.integers(1, 5), st.integers(1, 5)),
)


@given(images=arrays(np.uint8, shapes), mode=st.sampled_from(["med", "raw"]))
def test_unpacking_inverts_packing(tmp_path_factory, images, mode):
    file = tmp_path_factory.mktemp("shards") / "stack.mxz"
    file.write_bytes(packed(images, mode))
    assert np.array_equal(read_stack(file), images)


def colours(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 4, 4), np.uint8)


def write_shards(folder: Path, **labels: np.ndarray) -> None:
    for index in range(11):
        (folder / f"train_{index}.mxz").write_bytes(packed(colours(index, 1)))
    (folder / "test.mxz").write_bytes(packed(colours(99, 2)))
    standard = {
        "train_fine": np.arange(11, dtype=np.uint8) % 3,
        "test_fine": np.array([2, 0], np.uint8),
        "fine_names": np.array(["ant", "bee", "cow"]),
        "coarse_names": np.array(["insect", "mammal"]),
        "fine_to_coarse": np.array([0, 0, 1], np.uint8),
        "test_coarse": np.array([1, 0], np.uint8),
    }
    np.savez(folder / "labels.npz", **(standard | labels))


def test_a_folder_of_shards_is_read_in_the_order_of_their_numbers(tmp_path):
    write_shards(tmp_path)
    train, test = read_dataset("cifar100", tmp_path)
    assert np.array_equal(train.inputs, np.concatenate([colours(i, 1) for i in range(11)]))
    assert np.array_equal(test.inputs, colours(99, 2))
    assert train.classes.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    assert train.names == ("ant", "bee", "cow")
    assert test.groupings == {"superclass": {"insect": ("ant", "bee"), "mammal": ("cow",)}}


def test_grey_shards_get_a_channel(tmp_path):
    images = colours(0, 2)[:, 0]
    for name in ("train", "test"):
        (tmp_path / f"{name}.mxz").write_bytes(packed(images))
    labels = {"train_fine": [0, 1], "test_fine": [1, 1], "fine_names": ["0", "1"]}
    np.savez(tmp_path / "labels.npz", **labels)
    train, _ = read_dataset("mnist", tmp_path)
    assert train.inputs.shape == (2, 1, 4, 4)
    assert not train.groupings


def test_a_missing_shard_is_named(tmp_path):
    write_shards(tmp_path)
    (tmp_path / "train_4.mxz").rename(tmp_path / "train_12.mxz")
    with pytest.raises(PotluckError, match=r'train_4\.mxz" does not exist'):
        read_dataset("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"test_fine": np.array([0])}, "1 fine but 2 coarse"),
        ({"train_fine": np.array([0])}, "11 inputs but 1 classes"),
        ({"train_fine": np.full(11, 3)}, r"0 to 2.*has 3"),
        ({"test_coarse": np.array([0, 0])}, "sample 0 .*class 2.*is 1, but 0 is stored"),
        ({"fine_to_coarse": np.array([0, 1])}, "must have 3 entries"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, labels, message):
    write_shards(tmp_path, **labels)
    with pytest.raises(PotluckError, match=message):
        read_dataset("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed(colours(0, 1), sha256="0" * 64), "do not have the sha256"),
        (b"PK" + packed(colours(0, 1)), "does not start with MXZ1"),
        (packed(colours(0, 1))[:-20], "damaged"),
        (packed(colours(0, 1))[:30], "damaged"),
        (b"MXZ1", "damaged"),
        (packed(colours(0, 1)).replace(b"[1, 3, 4, 4]", b"[1, 3, 4, 5]"), "does not fit"),
        (packed(colours(0, 1)).replace(b'"med"', b'"dem"'), "does not fit"),
    ],
)
def test_a_corrupted_shard_is_refused(tmp_path, content, message):
    file = tmp_path / "stack.mxz"
    file.write_bytes(content)
    with pytest.raises(PotluckError, match=rf"stack\.mxz.*{message}"):
        read_stack(file)


def test_a_changed_pixel_is_noticed(tmp_path):
    images = colours(0, 1)
    stated = hashlib.sha256(images.tobytes()).hexdigest()
    images[0, 1, 2, 3] ^= 1
    (tmp_path / "stack.mxz").write_bytes(packed(images, sha256=stated))
    with pytest.raises(PotluckError, match="sha256"):
        read_stack(tmp_path / "stack.mxz")
