import numpy as np
import pytest
from PIL import Image

from potluck.data.readers.images import read_images
from potluck.errors import PotluckError


def picture(seed: int, height: int = 4, width: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def test_sub_folders_are_labels(tmp_path):
    save(tmp_path / "dog" / "b.png", picture(1))
    save(tmp_path / "dog" / "a.PNG", picture(0))
    save(tmp_path / "cat" / "deep" / "c.png", picture(2))
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    samples = read_images(tmp_path)
    assert samples.labels.tolist() == ["cat", "dog", "dog"]
    assert samples.inputs.shape == (3, 3, 4, 5)
    expected = np.stack([picture(2), picture(0), picture(1)]).transpose(0, 3, 1, 2)
    assert np.array_equal(samples.inputs, expected)


@pytest.mark.parametrize("label", ["finding", None])
def test_a_table_lists_files_and_labels_in_its_order(tmp_path, label):
    save(tmp_path / "images" / "a.png", picture(0))
    save(tmp_path / "images" / "b.png", picture(1))
    table = tmp_path / "list.csv"
    table.write_text("name;finding\nb.png;01\na.png;02\n")
    samples = read_images(tmp_path / "images", table, file="name", label=label, separator=";")
    assert np.array_equal(samples.inputs[0], picture(1).transpose(2, 0, 1))
    assert (samples.labels is None) if label is None else samples.labels.tolist() == ["01", "02"]


def test_a_site_without_labels_gives_all_its_images(tmp_path):
    save(tmp_path / "b.png", picture(1))
    save(tmp_path / "a" / "a.png", picture(0))
    save(tmp_path / ".thumbnails" / "a.png", picture(2))
    samples = read_images(tmp_path, label=None)
    assert samples.labels is None
    assert len(samples.inputs) == 2
    assert np.array_equal(samples.inputs[0], picture(0).transpose(2, 0, 1))


def test_grey_mode_has_one_channel(tmp_path):
    grey = picture(0)[:, :, 0]
    save(tmp_path / "a.png", grey)
    assert np.array_equal(read_images(tmp_path, label=None, mode="L").inputs[0, 0], grey)
    assert read_images(tmp_path, label=None, mode="RGB").inputs.shape == (1, 3, 4, 5)


def test_size_is_height_then_width(tmp_path):
    flat = np.full((10, 12, 3), 7, np.uint8)
    save(tmp_path / "a.png", flat)
    save(tmp_path / "b.png", flat[:5, :3])
    inputs = read_images(tmp_path, label=None, size=(6, 4)).inputs
    assert inputs.shape == (2, 3, 6, 4)
    assert (inputs == 7).all()


def test_images_of_different_sizes_need_a_size(tmp_path):
    save(tmp_path / "a.png", picture(0, 4, 5))
    save(tmp_path / "b.png", picture(0, 5, 4))
    with pytest.raises(PotluckError, match=r"a\.png.* 4 × 5 .*b\.png.* 5 × 4; give a size"):
        read_images(tmp_path, label=None)


def test_a_photo_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 90° clockwise
    Image.fromarray(picture(0)).save(tmp_path / "a.png", exif=exif)
    upright = np.rot90(picture(0), -1).transpose(2, 0, 1)
    assert np.array_equal(read_images(tmp_path, label=None).inputs[0], upright)


@pytest.mark.parametrize("keep", [0, 20, 90])
def test_an_unreadable_image_is_named(tmp_path, keep):
    save(tmp_path / "a.png", picture(0))
    save(tmp_path / "b.png", picture(0))
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:keep])
    with pytest.raises(PotluckError, match=r'b\.png" cannot be read as an image'):
        read_images(tmp_path, label=None)


def test_an_image_of_16_bits_is_refused_rather_than_cut(tmp_path):
    save(tmp_path / "a.png", np.full((2, 2), 40_000, np.uint16))
    with pytest.raises(PotluckError, match=r"a\.png.*more than 8 bits"):
        read_images(tmp_path, label=None, mode="L")


def test_empty_and_missing_folders_are_said(tmp_path):
    with pytest.raises(PotluckError, match='nowhere" does not exist'):
        read_images(tmp_path / "nowhere")
    with pytest.raises(PotluckError, match="has no images"):
        read_images(tmp_path, label=None)
    with pytest.raises(PotluckError, match=r"has no sub-folders.*or give a table"):
        read_images(tmp_path)
    save(tmp_path / "cat" / "a.png", picture(0))
    (tmp_path / "dog").mkdir()
    with pytest.raises(PotluckError, match='dog" has no images'):
        read_images(tmp_path)
    with pytest.raises(PotluckError, match="is a file"):
        read_images(tmp_path / "cat" / "a.png")


def test_images_a_table_lists_must_be_there(tmp_path):
    save(tmp_path / "a.png", picture(0))
    table = tmp_path / "list.csv"
    table.write_text("file,label\na.png,x\nb.png,y\nc.png,y\n")
    with pytest.raises(PotluckError, match=r'lists 2 of 3 images.* first ".*b\.png'):
        read_images(tmp_path, table)
    with pytest.raises(PotluckError, match='unknown column "lable"; did you mean "label"'):
        read_images(tmp_path, table, label="lable")


def test_an_impossible_size_or_mode_is_refused(tmp_path):
    with pytest.raises(PotluckError, match=r"resized to \(0, 4\)"):
        read_images(tmp_path, size=(0, 4))
    with pytest.raises(PotluckError, match='unknown image mode "rgb"'):
        read_images(tmp_path, mode="rgb")
