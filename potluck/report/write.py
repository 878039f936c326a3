"""Write the report of a run folder: one HTML file, and figures as files on request."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from potluck.report.contents import contents
from potluck.report.figures import FIGURES
from potluck.report.picture import Picture
from potluck.report.run import Run, read_run
from potluck.report.style import Format, house_style, save
from potluck.study.files import check_writable, writing


def write_report(run: Path, out: Path | None = None, formats: Sequence[Format] = ()) -> list[Path]:
    """Write the report of a run.

    Args:
      run:     the run folder; the run may still be going on.
      out:     the HTML file; `report.html` in the run folder when left out.
      formats: further formats in which each figure is written, to `figures` beside the report.

    Returns:
      the files that were written, the report first.
    """
    loaded = read_run(run)
    page = out or run / "report.html"
    check_writable(page, "an HTML file")
    with house_style(), _nothing_collected():
        pictures = draw(loaded)
        text = contents(loaded, pictures).html()
        with writing(page):
            page.write_text(text, encoding="utf-8")
        return [page, *write_figures(pictures, page.parent / "figures", formats)]


def draw(run: Run) -> dict[str, Picture]:
    """All figures that a run has something for, by name; within `house_style`."""
    drawn = {name: figure(run) for name, figure in FIGURES.items()}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def write_figures(
    pictures: dict[str, Picture], folder: Path, formats: Sequence[Format]
) -> list[Path]:
    """Write figures to a folder, each in each format; the paths they got."""
    paths = []
    for kind in formats:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            path = folder / f"{name}.{kind}"
            with writing(path):
                save(picture.figure, path, kind)
            paths.append(path)
    return paths


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """No search for garbage: among figures, which live to the end, it takes a tenth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
