"""Two tables whose samples have labels in several spaces: frog calls and cardiotocograms."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from potluck.data.dataset import TEST_FRACTION, Dataset, Labelling, Split, check, split
from potluck.data.readers._files import Layout, read_layout
from potluck.data.readers._groups import check_coarse, grouped
from potluck.data.readers._npz import as_inputs, npz_arrays


def frogs(path: Path | str | None, seed: int = 0) -> Split:
    """Read the anuran calls (UCI 406): 22 features of a call, ten species, 60 recordings.

    The grouping "genus" puts the species into 8, "family" into 4; the labelling "record" is the
    recording. A fifth of each species, in whole recordings, is test data: calls of one recording
    are too alike to be on both sides.

    Args:
      path: `frogs_mfcc.npz`, or the folder with it.
      seed: decides which recordings are test data.

    Returns:
      Training and test features (N, 22).
    """
    file = "frogs_mfcc.npz"
    layout = Layout("NPZ", file, lambda folder: _frogs(folder / file, seed))
    return read_layout("frogs", path, ("tabular",), (layout,))


def cardiotocography(path: Path | str | None, seed: int = 0) -> Split:
    """Read the cardiotocograms (UCI 193): 21 features, ten patterns of the fetal heart rate.

    The labelling "nsp" is the obstetricians' other opinion: normal, suspect or pathologic. It
    nearly follows from the pattern, but not always. A fifth of each pattern is test data.

    Args:
      path: `cardiotocography.npz`, or the folder with it.
      seed: decides which samples are test data.

    Returns:
      Training and test features (N, 21).
    """
    file = "cardiotocography.npz"
    layout = Layout("NPZ", file, lambda folder: _cardiotocography(folder / file, seed))
    return read_layout("cardiotocography", path, ("tabular",), (layout,))


def _frogs(path: Path, seed: int) -> Split:
    (record,) = npz_arrays(path, ["record"])
    recordings, indices = np.unique(record, return_inverse=True)
    records = Labelling(torch.from_numpy(indices), tuple(map(str, recordings)))
    ranks = {space: _labelling(path, space) for space in ("genus", "family")}
    dataset = _dataset(path, "species", {"record": records, **ranks})
    dataset = replace(
        dataset,
        groupings={space: _nested(dataset, rank, path) for space, rank in ranks.items()},
        labellings={"record": records},
    )
    generator = torch.Generator().manual_seed(seed)
    return split(dataset, TEST_FRACTION, generator, groups=records.symbols)


def _cardiotocography(path: Path, seed: int) -> Split:
    dataset = _dataset(path, "pattern", {"nsp": _labelling(path, "nsp")})
    return split(dataset, TEST_FRACTION, torch.Generator().manual_seed(seed))


def _dataset(path: Path, space: str, others: Mapping[str, Labelling]) -> Dataset:
    (x,) = npz_arrays(path, ["X"])
    labels = _labelling(path, space)
    inputs = as_inputs(x, f'"{path}", array "X"')
    return check(Dataset(inputs, labels.symbols, labels.names, labellings=others), f'"{path}"')


def _labelling(path: Path, space: str) -> Labelling:
    symbols, names = npz_arrays(path, [space, f"{space}_names"])
    return Labelling(torch.from_numpy(symbols.astype(np.int64)), tuple(map(str, names)))


def _nested(dataset: Dataset, rank: Labelling, path: Path) -> dict[str, tuple[str, ...]]:
    fine, coarse = dataset.classes.numpy(), rank.symbols.numpy()
    parents = np.full(len(dataset.names), -1)
    parents[fine] = coarse
    check_coarse(fine, coarse, parents, f'"{path}"')
    return grouped(dataset.names, rank.names, parents)
