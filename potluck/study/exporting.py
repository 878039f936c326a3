"""Export the model of a finished run."""

from pathlib import Path

import torch

from potluck import __version__
from potluck.errors import PotluckError, one_of
from potluck.export import FORMATS, INPUT, PREDICTION, PROBABILITIES, Deployed, Exportable
from potluck.study.files import check_writable, writing
from potluck.study.model_files import load_model, model_facts
from potluck.study.predictions import site_view
from potluck.study.runfolder import RunFolder


def export_run(run: Path, out: Path | None, form: str, site: Path | None) -> Path:
    """Write the model of a run as one file for other software.

    Args:
      run:  a finished run folder.
      out:  the file to write; `model.onnx` or `model.pt2` in the run folder when left out.
      form: a key of `FORMATS`.
      site: a site file whose labels to predict in; the target classes when left out.

    Returns:
      the file.
    """
    if form not in FORMATS:
        raise PotluckError(one_of("format", form, FORMATS))
    folder = RunFolder.open(run)
    path = out or run / f"model.{form}"
    check_writable(path, "a file")
    trained = load_model(folder)
    facts = model_facts(folder)
    view = None if site is None else site_view(site, trained.space)
    names = trained.space if view is None else view.symbols
    shape, made = facts["input_shape"], facts["made"]
    # Runs from before this was written: images rest as uint8, tables are numbers.
    kind = made.get("inputs", "uint8" if len(shape) == 3 else "float32")
    ready = Exportable(
        Deployed(trained.module(), view),
        torch.zeros(2, *shape, dtype=getattr(torch, kind)),
        {
            "labels": list(names),
            "inputs": f"{INPUT}: {kind} of shape (batch, {', '.join(map(str, shape))})"
            + ("; pixels from 0 to 255" if kind == "uint8" else ""),
            "outputs": f"{PROBABILITIES}: (batch, labels), in the order of labels; "
            f"{PREDICTION}: (batch,), the number of the most probable label",
            "columns": made["columns"],
            "preprocessing": "inside the graph: scaling to [0, 1] of uint8 inputs, and the "
            "normalisation of the training",
            "study": made["study"],
            "study_hash": facts["study_hash"],
            "potluck": __version__,
        },
    )
    with writing(path):
        ready.write(path, form)
    return path
