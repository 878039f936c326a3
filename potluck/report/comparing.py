"""Write a comparison: a page, tables for papers, and figures."""

from pathlib import Path

from potluck import __version__
from potluck.report.compare import Comparison, short, shown
from potluck.report.figures.comparison import against, learning_curves, side_by_side
from potluck.report.page import Block, Folded, Page, Section
from potluck.report.picture import Picture
from potluck.report.style import house_style
from potluck.report.tables import Table
from potluck.report.write import write_figures
from potluck.study.files import writing


def write_comparison(comparison: Comparison, out: Path) -> list[Path]:
    """Write a comparison into a folder, which is made where it is missing.

    Args:
      comparison: what to write.
      out:        the folder. It gets comparison.html, .md, .tex and .csv, and a folder figures.

    Returns:
      the files that were written, the page first.
    """
    table, full = comparison.table(), comparison.full_table()
    texts = {
        "md": f"{table.markdown()}\n{table.caption}\n",
        "tex": f"% {table.caption}\n{table.latex()}",
        "csv": full.csv(),
    }
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    paths = [out / "comparison.html", *(out / f"comparison.{kind}" for kind in texts)]
    with house_style():
        pictures = _pictures(comparison)
        for path, text in zip(
            paths, [_page(comparison, pictures, full).html(), *texts.values()], strict=True
        ):
            with writing(path):
                path.write_text(text, encoding="utf-8")
        return [*paths, *write_figures(pictures, out / "figures", ("pdf", "png", "svg"))]


def _pictures(comparison: Comparison) -> dict[str, Picture]:
    drawn = {
        "against-x": against(comparison),
        "settings": side_by_side(comparison),
        "learning-curves": learning_curves(comparison),
    }
    return {name: picture for name, picture in drawn.items() if picture is not None}


def _headline(comparison: Comparison) -> list[tuple[str, str]]:
    """The best of all settings."""
    choose = max if comparison.metric.rising else min
    best = choose(comparison.rows, key=lambda row: row.mean)
    named = zip(comparison.keys, best.setting.values, strict=True)
    setting = ", ".join(f"{short(key)} {shown(value)}" for key, value in named)
    digits = comparison.metric.digits
    value = f"{best.mean:.{digits}f} ± {best.deviation:.{digits}f}"
    return [("best setting", setting or "all runs"), (comparison.metric.title, value)]


def _page(comparison: Comparison, pictures: dict[str, Picture], full: Table) -> Page:
    runs = [run for setting in comparison.settings for run in setting.runs.values()]
    blocks: list[Block] = [comparison.table(), *pictures.values()]
    blocks.append(Folded("All settings in plain numbers", full))
    every = Table(
        ["run", "seed", comparison.metric.title],
        [
            [str(row.setting.runs[seed].path), f"{seed}", f"{score:.{comparison.metric.digits}f}"]
            for row in comparison.rows
            for seed, score in row.scores.items()
        ],
    )
    return Page(
        title="Comparison",
        subtitle=f"{len(comparison.settings)} settings, {len(runs)} runs",
        headline=_headline(comparison),
        notes=[],
        sections=[Section("Settings", blocks), Section("Runs", [Folded("Every run", every)])],
        footer=f"Written by potluck {__version__}. This page is complete in itself: it loads "
        "nothing from elsewhere.",
    )
