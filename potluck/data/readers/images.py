"""A site's images: a folder for each label, or one folder and a table that lists the files."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from potluck.data.readers._files import require_folder
from potluck.data.readers.samples import Samples
from potluck.data.readers.tables import read_text_columns
from potluck.errors import PotluckError, one_of

Mode = Literal["L", "RGB"]

_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def read_images(
    folder: Path | str,
    table: Path | str | None = None,
    file: str = "file",
    label: str | None = "label",
    separator: str | None = None,
    size: tuple[int, int] | None = None,
    mode: Mode = "RGB",
) -> Samples:
    """Read a site's images.

    Without a table, each sub-folder is a label and has that label's images; with `label=None`,
    all images in the folder and below are read, without labels. With a table, each of its rows
    is an image.

    Args:
      folder:    where the images are.
      table:     a CSV or Parquet file that lists them.
      file:      the table's column with file names, relative to the folder.
      label:     the table's column with labels; None for a site without labels.
      separator: what stands between a CSV's values, if not a comma.
      size:      (H, W) to resize all images to; without it they must be of one size.
      mode:      "L" for grey images, "RGB" for colours.

    Returns:
      Images (N, C, H, W), labels (N,) as text, and the files' names in the folder; in
      alphabetical order, or the table's.
    """
    folder = require_folder(folder)
    if mode not in get_args(Mode):
        raise PotluckError(one_of("image mode", mode, get_args(Mode)))
    if size is not None and min(size) < 1:
        raise PotluckError(f"images cannot be resized to {size}: height and width start at 1.")
    labels: NDArray[np.str_] | None = None
    if table is not None:
        columns = read_text_columns(table, [file] + ([label] if label else []), separator)
        paths = [folder / name for name in columns[0].tolist()]
        _require_listed(paths, table)
        labels = columns[1] if label else None
    elif label is None:
        paths = _image_files(folder)
    else:
        paths, labels = _labelled_files(folder)
    names = tuple(path.relative_to(folder).as_posix() for path in paths)
    return Samples(torch.from_numpy(_pixels(paths, size, mode)), labels, names)


def _image_files(folder: Path) -> list[Path]:
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in _SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not files:
        raise PotluckError(f'folder "{folder}" has no images ({", ".join(_SUFFIXES)}).')
    return files


def _labelled_files(folder: Path) -> tuple[list[Path], NDArray[np.str_]]:
    subfolders = sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
    if not subfolders:
        raise PotluckError(
            f'folder "{folder}" has no sub-folders. Put the images of each label into a '
            "sub-folder of that name, or give a table that lists files and labels."
        )
    files = [_image_files(subfolder) for subfolder in subfolders]
    labels = np.repeat([path.name for path in subfolders], [len(group) for group in files])
    return list(chain.from_iterable(files)), labels


def _require_listed(paths: Sequence[Path], table: Path | str) -> None:
    absent = [path for path in paths if not path.is_file()]
    if absent:
        raise PotluckError(
            f'"{table}" lists {len(absent)} of {len(paths)} images that are not there, '
            f'first "{absent[0]}".'
        )


def _pixels(paths: Sequence[Path], size: tuple[int, int] | None, mode: Mode) -> NDArray[np.uint8]:
    first = _image(paths[0], size, mode)
    images = np.empty((len(paths), *first.shape), np.uint8)
    images[0] = first
    for index, path in enumerate(paths[1:], 1):
        image = _image(path, size, mode)
        if image.shape != first.shape:
            raise PotluckError(
                f'"{paths[0]}" has {first.shape[1]} × {first.shape[2]} pixels (height × width) '
                f'but "{path}" has {image.shape[1]} × {image.shape[2]}; '
                "give a size to resize all images to."
            )
        images[index] = image
    return images


def _image(path: Path, size: tuple[int, int] | None, mode: Mode) -> NDArray[np.uint8]:
    """One image (C, H, W), upright."""
    try:
        with Image.open(path) as stored:
            if stored.mode.startswith(("I", "F")):
                raise PotluckError(
                    f'"{path}" has more than 8 bits a pixel (mode {stored.mode}), of which a '
                    "conversion would lose some: choose the range you need and save 8 bits."
                )
            image = ImageOps.exif_transpose(stored).convert(mode)
    except (
        Image.DecompressionBombError,
        OSError,
        SyntaxError,
        ValueError,
    ) as error:
        raise PotluckError(f'"{path}" cannot be read as an image: {error}') from error
    if size is not None:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)
