"""Use a finished run: predict for new samples, or compare with known labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from torch import Tensor

from potluck.data.readers.images import read_images
from potluck.data.readers.npz import read_arrays
from potluck.data.readers.tables import read_table
from potluck.engines import Evaluation
from potluck.errors import PotluckError
from potluck.labels import LabelSpace, LabelView
from potluck.study.build import load_test
from potluck.study.execute import open_run
from potluck.study.explain import about
from potluck.study.files import check_writable
from potluck.study.model_files import load_model, model_facts
from potluck.study.runfolder import RunFolder
from potluck.study.sitefile import is_site_file, load_site, read_site_file
from potluck.training import Trained

TABLES = {".csv", ".tsv", ".parquet", ".pq"}


def predict_file(
    run: Path, data: Path, site: Path | None, out: Path
) -> tuple[int, tuple[str, ...]]:
    """Predict for the samples of a file and write a CSV: label, then every label's probability.

    Where each sample is an image file of its own, the first column has the file's name.

    Args:
      run:  a finished run folder.
      data: a table, an NPZ file, a folder of images, or a site file.
      site: a site file whose labels to predict in; the target classes when left out.
      out:  the CSV file to write.

    Returns:
      the number of predictions, and the names of the labels.
    """
    check_writable(out, "a CSV file")
    folder = RunFolder.open(run)
    trained = load_model(folder)
    inputs, files = read_inputs(folder, data)
    names, probabilities = trained.space, trained.probabilities(inputs)
    if site is not None:
        view = site_view(site, trained.space)
        names, probabilities = view.symbols, view.project(probabilities)
    best = [names.names[k] for k in probabilities.argmax(1).tolist()]
    columns = {} if files is None else {"file": pa.array(files)}
    columns["prediction"] = pa.array(best)
    for name, column in zip(names, probabilities.T.numpy(), strict=True):
        columns[f"p({name})"] = pa.array(np.round(column.astype(np.float64), 6))
    try:
        pyarrow.csv.write_csv(pa.table(columns), out)
    except OSError as error:
        raise PotluckError(f"{out}: cannot be written: {error.strerror or error}.") from None
    return len(best), names.names


def evaluate_run(run: Path, site: Path | None) -> tuple[Evaluation, tuple[str, ...]]:
    """Compare a finished run's predictions with known labels.

    Args:
      run:  the run folder.
      site: a site file with labels, in whatever view; the study's own test set when left out.

    Returns:
      the evaluation, and the names of the labels it is in.
    """
    study, folder = open_run(run)
    trained = load_model(folder)
    if site is None:
        test = load_test(study)
        if test is None:
            raise PotluckError(
                f"{run}: the study has no test set; give a site file with labels: --data site.toml"
            )
        return trained.evaluate(*test), trained.space.names
    kind = read_site_file(site).view.kind
    if kind in ("unlabeled", "candidates"):
        raise PotluckError(
            f'{site}: view.kind is "{kind}", which does not say what is right; give a site file '
            "whose labels do."
        )
    loaded, columns = load_site(site, trained.space)
    _check_inputs(folder, loaded.inputs, columns, site)
    return _in_symbols(
        trained, loaded.inputs, loaded.view, loaded.symbols
    ), loaded.view.symbols.names


def _in_symbols(trained: Trained, inputs: Tensor, view: LabelView, symbols: Tensor) -> Evaluation:
    """The evaluation of predictions in a view's own labels."""
    probabilities = view.project(trained.probabilities(inputs))
    count = len(view.symbols)
    hit = (probabilities.argmax(1) == symbols).double()
    hits = torch.bincount(symbols, weights=hit, minlength=count)
    likelihood = probabilities.gather(1, symbols.unsqueeze(1)).clamp_min(1e-12)
    return Evaluation(
        accuracy=float(hit.mean()),
        loss=float(-likelihood.log().mean()),
        per_class=tuple((hits / torch.bincount(symbols, minlength=count)).tolist()),
    )


def site_view(site: Path, space: LabelSpace) -> LabelView:
    """The view of a site file, for predictions in its labels."""
    kind = read_site_file(site).view.kind
    if kind in ("unlabeled", "candidates"):
        raise PotluckError(
            f'{site}: view.kind is "{kind}", which has no labels of its own to predict; leave '
            "--site out to predict the target classes."
        )
    loaded, _ = load_site(site, space)
    return loaded.view


def read_inputs(folder: RunFolder, data: Path) -> tuple[Tensor, tuple[str, ...] | None]:
    """The samples of a file, checked against what the run's model takes.

    Args:
      folder: the run.
      data:   a table, an NPZ file, a folder of images, or a site file.

    Returns:
      (N, ...) samples, and the name of each one's own file; None where all lie in one.
    """
    facts = model_facts(folder)
    shape, wanted = facts["input_shape"], facts["made"]["columns"]
    columns = files = None
    if data.suffix.lower() in TABLES:
        with about(f"the model takes {_listed(wanted)}"):
            table = read_table(data, features=wanted)
        inputs, columns = table.features, table.columns
    elif data.suffix.lower() == ".npz":
        inputs = read_arrays(data, labels=None).inputs
    elif data.is_dir():
        size = (shape[1], shape[2]) if len(shape) == 3 else None
        mode: Literal["L", "RGB"] = "L" if shape[0] == 1 else "RGB"
        images = read_images(data, label=None, size=size, mode=mode)
        inputs, files = images.inputs, images.files
    elif data.suffix == ".toml" and is_site_file(data):
        inputs, _, columns, files = read_site_file(data).data.read(data.parent)
    elif not data.exists():
        raise PotluckError(f"{data}: there is no such file or folder.")
    else:
        raise PotluckError(
            f"{data}: give a table (.csv, .parquet), an .npz file, a folder of images, or a site "
            "file (.toml)."
        )
    _check_inputs(folder, inputs, columns, data)
    return inputs, files


def _check_inputs(
    folder: RunFolder, inputs: Tensor, columns: tuple[str, ...] | None, where: Path
) -> None:
    facts = model_facts(folder)
    shape, wanted = tuple(facts["input_shape"]), facts["made"]["columns"]
    if tuple(inputs.shape[1:]) != shape:
        raise PotluckError(
            f"{where}: samples have the size {_times(inputs.shape[1:])}, but the model of "
            f"{folder.path} was trained on {_times(shape)}; give it the same kind of samples."
        )
    if wanted is not None and columns is not None and list(columns) != wanted:
        raise PotluckError(
            f"{where}: the input columns are {', '.join(columns)}, but the model of {folder.path} "
            f"was trained on {', '.join(wanted)}, in this order."
        )


def _listed(columns: Sequence[str] | None) -> str:
    return "numbers" if columns is None else f"the columns {', '.join(columns)}"


def _times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
