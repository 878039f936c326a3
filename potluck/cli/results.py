"""See what came of runs: report, compare, sweep."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Path,
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file to write; report.html in the run folder when left out."),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Also write each figure as PDF.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Also write each figure as PNG.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Also write each figure as SVG.")] = False,
) -> None:
    """Write a report of a run: one HTML file that opens offline.

    FOLDER is a run folder; the run may still be going on.

    Accuracy and loss, classes and confusions, what each site brought, what labels turned out to
    mean, each site's participation, drift and contribution, time and traffic, and the command to
    do it again. Figures go to a folder named figures beside the report.

    Example: potluck report runs/irises-1a2b3c4d --pdf
    """
    from potluck import console
    from potluck.report.write import write_report

    wanted = {"pdf": pdf, "png": png, "svg": svg}
    page, *figures = write_report(folder, out, [kind for kind, asked in wanted.items() if asked])
    console.out.print(f"report: {page}", markup=False, soft_wrap=True)
    if figures:
        console.out.print(
            f"{len(figures)} figures: {figures[0].parent}", markup=False, soft_wrap=True
        )
