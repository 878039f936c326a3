"""A site's table: CSV, TSV or Parquet, one row a sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.data.readers._files import require_file
from potluck.errors import PotluckError, one_of

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_NUMERIC = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
)
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


@dataclass(frozen=True, eq=False)
class Table:
    """A site's features and labels.

    Args:
      features: (N, D) float32, all finite.
      columns:  names of the D features.
      labels:   (N,) text; None for a site without labels.
    """

    features: Tensor
    columns: tuple[str, ...]
    labels: NDArray[np.str_] | None


def read_table(
    path: Path | str,
    features: Sequence[str] | None = None,
    label: str | None = None,
    separator: str | None = None,
) -> Table:
    """Read a site's features and labels from a table.

    Args:
      path:      a `.csv`, `.tsv`, `.parquet` or `.pq` file; the first two with a line of names.
      features:  columns with numbers; by default all but the label.
      label:     column with the label, read as text ("01" stays "01"); None for no labels.
      separator: what stands between a CSV's values, if not a comma (or a tab, in `.tsv`).

    Returns:
      The table, without missing values.

    Raises:
      PotluckError: naming the file, the column and the first rows that cannot be used.
    """
    table = _read(path, separator, text=[label] if label else [])
    columns = [name for name in table.column_names if name != label]
    columns = list(columns if features is None else features)
    if not columns:
        raise PotluckError(f'"{path}": no column is left for the features.')
    if label in columns:
        raise PotluckError(
            f'"{path}": column "{label}" is the label and cannot be a feature too: '
            "the model would only learn to copy it. Take it out of the features."
        )
    # The label first: where its name is misspelt, the real label column is no feature.
    labels = _text(table, label, path) if label else None
    numbers = [_numbers(table, name, path) for name in columns]
    return Table(torch.from_numpy(np.stack(numbers, 1)), tuple(columns), labels)


def read_text_columns(
    path: Path | str, columns: Sequence[str], separator: str | None = None
) -> list[NDArray[np.str_]]:
    """Read some columns of a table as text.

    Args:
      path:      the file, as in `read_table`.
      columns:   names of the columns.
      separator: as in `read_table`.

    Returns:
      The columns (N,), in the order asked for, without missing values.
    """
    table = _read(path, separator, text=columns)
    return [_text(table, name, path) for name in columns]


def _read(path: Path | str, separator: str | None, text: Sequence[str]) -> pa.Table:
    path = require_file(path)
    suffix = path.suffix.lower()
    try:
        if suffix in _PARQUET:
            table = pyarrow.parquet.read_table(path)
        elif suffix in _SEPARATORS:
            table = pyarrow.csv.read_csv(
                path,
                parse_options=pyarrow.csv.ParseOptions(delimiter=separator or _SEPARATORS[suffix]),
                # Left to itself, pyarrow would read a label "01" as the number 1.
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types={name: pa.string() for name in text}
                ),
            )
        else:
            known = ", ".join([*_SEPARATORS, *_PARQUET])
            raise PotluckError(f'"{path}" is no table known here: its name must end in {known}.')
        names = table.column_names
    except (ValueError, OSError) as error:  # pyarrow's own are of these kinds
        raise PotluckError(f'"{path}" cannot be read as a table: {error}') from error
    if len(names) == 1 and ";" in names[0]:
        raise PotluckError(
            f'"{path}" has the single column "{names[0]}"; '
            'are its values separated by semicolons? Then say separator = ";".'
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PotluckError(f'"{path}" has more than one column called "{twice[0]}"; rename them.')
    if table.num_rows == 0:
        raise PotluckError(f'"{path}" has no rows, only the column names {", ".join(names)}.')
    return table


def _column(table: pa.Table, name: str, path: Path | str) -> pa.Array:
    if name not in table.column_names:
        raise PotluckError(f'"{path}": {one_of("column", name, table.column_names)}')
    column = table[name].combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _numbers(table: pa.Table, name: str, path: Path | str) -> NDArray[np.float32]:
    column = _column(table, name, path)
    kind = column.type
    if pa.types.is_null(kind):
        raise PotluckError(f'"{path}": column "{name}" is empty; leave it out of the features.')
    if not any(accepts(kind) for accepts in _NUMERIC):
        raise PotluckError(
            f'"{path}": column "{name}" has {_example(column)}, but features must be numbers. '
            "Write numbers for it, or leave it out of the features."
        )
    values = column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    missing = pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    _refuse(missing, "has no value", name, path)
    _refuse(~np.isfinite(values), "is infinite or too large for float32", name, path)
    return values


def _text(table: pa.Table, name: str, path: Path | str) -> NDArray[np.str_]:
    column = _column(table, name, path)
    try:
        column = column.cast(pa.string())
        missing = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PotluckError(f'"{path}": column "{name}" is not text: {error}') from error
    _refuse(missing.to_numpy(zero_copy_only=False), "has no value", name, path)
    return np.array(column.to_pylist(), dtype=np.str_)


def _refuse(bad: NDArray[np.bool_], what: str, name: str, path: Path | str) -> None:
    rows = np.flatnonzero(bad) + 1
    if len(rows):
        shown = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
        raise PotluckError(
            f'"{path}": column "{name}" {what} in {len(rows)} of {len(bad)} rows: {shown} '
            "(the first row under the column names is 1). Fill them in, or remove these rows."
        )


def _example(column: pa.Array) -> str:
    """What a column that is not numbers has, by its first value that is none."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return f'values of the kind "{column.type}"'
    number = pc.fill_null(pc.match_substring_regex(column, _NUMBER), True)
    row = max(pc.index(number, False).as_py(), 0)  # −1 where it is all numbers stored as text
    return f'text (row {row + 1}: "{column[row]}")'
