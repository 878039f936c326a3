"""Use a trained model: predict, evaluate, export."""

from pathlib import Path
from typing import Annotated

import typer


def predict(
    folder: Path,
    data: Path,
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("predictions.csv"),
    site: Annotated[
        Path | None, typer.Option(help="Predict the labels of this site file instead of classes.")
    ] = None,
) -> None:
    """Predict classes for new samples: one row each, with the probability of every class.

    FOLDER is the folder of a finished run. DATA is a table (CSV, Parquet), an NPZ file, a folder
    of images, or a site file, whose labels are then not looked at. Rows are written in the order
    in which they are read; images in alphabetical order, with their file names.

    With --site, predictions are in that site's own labels (its coarse codes, its bags).

    Example: potluck predict runs/irises-1a2b3c4d new.csv --out new-predictions.csv
    """
    from potluck import console
    from potluck.study.predictions import predict_file

    count, names = predict_file(folder, data, site, out)
    console.out.print(
        f"{count:,} predictions over {len(names)} labels: {out}", markup=False, soft_wrap=True
    )


def evaluate(
    folder: Path,
    data: Annotated[
        Path | None,
        typer.Option(help="A site file with labels to compare with; the study's test set if none."),
    ] = None,
) -> None:
    """Evaluate a finished run on its test set, or on a site file's labelled samples.

    FOLDER is the folder of a finished run.

    A site file may use any view that says what is right: predictions are compared in its own
    labels (its coarse codes, its bags).

    Example: potluck evaluate runs/irises-1a2b3c4d --data sites/station.toml
    """
    from potluck import console
    from potluck.study.predictions import evaluate_run

    evaluation, names = evaluate_run(folder, data)
    console.show_evaluation(evaluation, names)


def export(
    folder: Path,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write; model.onnx in the run folder when left out."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="onnx, or pt2 for PyTorch without Potluck.")
    ] = "onnx",
    site: Annotated[
        Path | None, typer.Option(help="Predict the labels of this site file instead of classes.")
    ] = None,
) -> None:
    r"""Write the model as one file for other software: ONNX, or PyTorch's pt2.

    FOLDER is the folder of a finished run.

    The file takes samples as they are stored (images as uint8, tables as numbers) and gives the
    probability of every label and the number of the most probable one; scaling and normalisation
    are inside, and the names of the labels are in its metadata. ONNX needs an extra: pip install
    "potluck\[export]". There is no TorchScript: PyTorch has deprecated it in favour of pt2, which
    torch.export.load reads.

    Example: potluck export runs/irises-1a2b3c4d --out irises.onnx
    """
    from potluck.study.exporting import export_run

    typer.echo(f"model: {export_run(folder, out, form, site)}")
