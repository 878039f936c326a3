"""The site file: where one site's data is, and what its labels mean."""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from torch import Tensor

from potluck.data.readers._npz import npz_names
from potluck.data.readers.images import read_images
from potluck.data.readers.npz import read_arrays
from potluck.data.readers.tables import read_table
from potluck.errors import PotluckError
from potluck.federation import Site
from potluck.labels import LabelSpace
from potluck.study.explain import about, explain
from potluck.study.views import DeclaredView, Subset

# Keys that only studies have.
_OF_STUDIES = {"rounds", "simulation", "federation"}


class Loaded(NamedTuple):
    """Samples as a source holds them.

    Args:
      inputs:  (N, ...) samples.
      labels:  what is written about each, or None.
      columns: names of the input columns of a table; None for images and arrays.
      files:   names of the images' files; None for tables and arrays.
    """

    inputs: Tensor
    labels: Any
    columns: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None


class Source(BaseModel):
    """What every source of samples has in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TableSource(Source):
    """A CSV or Parquet file: `label` names the label column, `features` the input columns.

    With image = [channels, height, width], the columns are the pixels (0 to 255) of an image, row
    after row.
    """

    kind: Literal["table"]
    path: str
    label: str | None = None
    features: list[str] | None = None
    separator: str | None = None
    image: tuple[PositiveInt, PositiveInt, PositiveInt] | None = None

    def read(self, folder: Path) -> Loaded:
        """Read the table; paths are relative to `folder`."""
        table = read_table(folder / self.path, self.features, self.label, self.separator)
        if self.image is not None:
            return Loaded(_as_images(table.features, self.image), table.labels)
        return Loaded(table.features, table.labels, table.columns)


class ImageSource(Source):
    """A folder of images: one sub-folder per label, or a table with file and label columns."""

    kind: Literal["images"]
    path: str
    table: str | None = None
    file: str = "file"
    label: str | None = "label"
    size: tuple[int, int] | None = None
    mode: Literal["L", "RGB"] = "RGB"

    def read(self, folder: Path) -> Loaded:
        """Read the images; paths are relative to `folder`."""
        table = None if self.table is None else folder / self.table
        samples = read_images(
            folder / self.path,
            table=table,
            file=self.file,
            label=self.label,
            size=self.size,
            mode=self.mode,
        )
        return Loaded(samples.inputs, samples.labels, files=samples.files)


class ArraySource(Source):
    """An NPZ file with an array of inputs and one of labels: "y", if there is one, or `labels`."""

    kind: Literal["arrays"]
    path: str
    inputs: str = "x"
    labels: str | None = None

    def read(self, folder: Path) -> Loaded:
        """Read the arrays; paths are relative to `folder`."""
        path = folder / self.path
        labels = self.labels or ("y" if "y" in npz_names(path) else None)
        samples = read_arrays(path, self.inputs, labels)
        return Loaded(samples.inputs, samples.labels)


DataSource = Annotated[TableSource | ImageSource | ArraySource, Field(discriminator="kind")]


class SiteFile(BaseModel):
    """One site: its name, its data and its view.

    `classes` are the target classes of the study that the site takes part in, so that the file can
    be checked without the study (`potluck join`). Where both are there, they must agree. A private
    site leaves them out: it knows its own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    classes: list[str] | None = Field(default=None, min_length=2)
    data: DataSource
    view: DeclaredView

    def space(self) -> LabelSpace | None:
        """The target classes as far as the site knows them itself; None where only a study does."""
        if isinstance(self.view, Subset) and self.view.private:
            return LabelSpace(tuple(self.view.classes))
        return None if self.classes is None else LabelSpace(tuple(self.classes))


def read_site_file(path: Path) -> SiteFile:
    """Read and check a site file (not yet the data it points to)."""
    if path.suffix in (".csv", ".tsv", ".parquet", ".npz"):
        raise PotluckError(
            f"{path} is data; give a site file (TOML), which says where the data is, which column "
            "is the label and what the labels mean. potluck new NAME --kind tables writes some."
        )
    table = read_toml(path)
    if table.keys() & _OF_STUDIES:
        raise PotluckError(
            f"{path} is a study, not a site file; a site file has a name, [data] and [view]."
        )
    try:
        return SiteFile.model_validate(table)
    except ValidationError as error:
        raise PotluckError(explain(error, SiteFile, str(path))) from None


def is_site_file(path: Path) -> bool:
    """Whether a TOML file describes a site (it has data and a view), not a study."""
    return path.suffix == ".toml" and describes_site(read_toml(path))


def describes_site(table: Mapping[str, Any]) -> bool:
    """Whether a file's content is that of a site file."""
    return bool(table.keys() & {"data", "view"}) and not table.keys() & _OF_STUDIES


def load_site(path: Path, space: LabelSpace) -> tuple[Site, tuple[str, ...] | None]:
    """The site that a site file describes, over the target classes, and its input columns.

    Args:
      path:  the site file; paths in it are relative to its folder.
      space: the target classes.
    """
    declared = read_site_file(path)
    with about(f'{path}: site "{declared.name}"'):
        if declared.classes is not None and tuple(declared.classes) != space.names:
            raise PotluckError(
                f"classes are {', '.join(declared.classes)}, but those of the study are "
                f"{', '.join(space.names)}; write the same ones in the same order."
            )
        loaded = declared.data.read(path.parent)
        if loaded.labels is None and declared.view.reads_labels:
            raise PotluckError(
                f'view.kind is "{declared.view.kind}", but the site names no labels: say '
                "in data.label (for arrays: data.labels) where they are, or use the kind unlabeled."
            )
        view, observed = declared.view.view(space, loaded.labels, path.parent)
    with about(path):
        return Site.of(declared.name, loaded.inputs, view, observed), loaded.columns


def _as_images(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """(N, C·H·W) numbers → (N, C, H, W) uint8 images."""
    if pixels.shape[1] != math.prod(shape):
        raise PotluckError(
            f"data.image is {' × '.join(map(str, shape))}, {math.prod(shape)} pixels, but the "
            f"table has {pixels.shape[1]} input columns; correct it, or list the columns in "
            "data.features."
        )
    images = pixels.to(torch.uint8)
    if not torch.equal(images.to(pixels.dtype), pixels):
        raise PotluckError("data.image: pixels must be whole numbers from 0 to 255.")
    return images.view(-1, *shape)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a table, or an error that names the file and the line."""
    return read_toml_text(read_text(path), str(path))


def read_text(path: Path) -> str:
    """A text file, or an error that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PotluckError(f"{path}: there is no such file; check its name and folder.") from None
    except IsADirectoryError:
        raise PotluckError(f"{path} is a folder; give the file itself.") from None
    except UnicodeDecodeError:
        raise PotluckError(f"{path} is not a text file; save it as plain text (UTF-8).") from None
    except OSError as error:
        raise PotluckError(f"{path} cannot be read: {error.strerror}.") from None


def read_toml_text(text: str, where: str) -> dict[str, Any]:
    """TOML text as a table; `where` says in messages where it came from."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = " Write paths with / instead of \\." if "\\" in str(error) else ""
        raise PotluckError(f"{where} is not valid TOML: {error}.{hint}") from None
