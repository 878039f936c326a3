"""How figures look, and how they become SVG, PDF and PNG.

The colours of Okabe and Ito and the maps viridis and PuOr can be told apart by people with any
common colour blindness. Ink, grid and paper are fixed colours in files, and variables of the
page's style in inline SVG, so that figures are legible on a dark page too.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

INK, MUTED, GRID, PAPER = "#1c1b1a", "#6e6d6b", "#dedddb", "#fefefe"
"""Text and axes; secondary lines; grids; background."""

BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)

KINDS = {
    "exact": BLUE,
    "coarse": ORANGE,
    "noisy": VERMILLION,
    "bags": GREEN,
    "candidates": PURPLE,
    "subset": SKY,
    "unlabeled": MUTED,
}
"""A colour for each kind of label."""

SEQUENTIAL, DIVERGING = "viridis", "PuOr_r"

WIDTH = 9.0
"""Inches; a page shows figures at about this size."""

Format = Literal["pdf", "png", "svg"]

_FONT = "'DejaVu Sans', Verdana, sans-serif"  # Verdana has the same widths
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper", BLUE: "--blue"}

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",  # text stays text: small, and can be searched
    "pdf.fonttype": 42,  # journals want fonts that can be edited
    "path.simplify_threshold": 0.5,
    "savefig.dpi": 300,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Figures that are made and saved within look alike; matplotlib's settings return after."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of a size in inches."""
    return Figure(figsize=(width, height))


def panels(figure: Figure, count: int, across: int) -> list[Axes]:
    """As many panels as wanted, row by row; the last row may have gaps."""
    down = -(-count // across)
    grid = figure.add_gridspec(down, min(across, count))
    return [figure.add_subplot(grid[divmod(i, across)]) for i in range(count)]


def round_axis(axes: Axes) -> None:
    """Rounds along the x axis: whole numbers."""
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def legend_below(axes: Axes, columns: int = 1, size: float = 8) -> None:
    """A legend below an axes and its x label.

    At a distance in points, not in parts of the axes: those would change with every step of the
    layout, which then needs many of them.

    Args:
      axes:    whose.
      columns: how many entries stand side by side.
      size:    of the text, in points.
    """
    below = ScaledTranslation(0, -27 / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.02, 0),
        bbox_transform=axes.transAxes + below,
        borderpad=0,
        ncols=columns,
        fontsize=size,
    )


def heat_axes(axes: Axes) -> None:
    """Axes for an image: no grid, no frame, and no ticks at its rows until they are named."""
    axes.set_yticks([])
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def name_rows(axes: Axes, names: Sequence[str], size: float = 8) -> None:
    """Write the names of rows 0, 1, … to the left of an axes.

    As texts, not ticks, of which only the widest counts for the layout: both are much faster
    where there are a hundred rows.

    Args:
      axes:  a heat map or horizontal bars.
      names: of its rows, top to bottom.
      size:  of the text, in points.
    """
    axes.set_yticks([])
    aside = ScaledTranslation(-4 / 72, 0, axes.figure.dpi_scale_trans)
    place = axes.get_yaxis_transform() + aside
    texts = [
        axes.text(0, row, name, transform=place, ha="right", va="center", fontsize=size)
        for row, name in enumerate(names)
    ]
    widest = max(range(len(names)), key=lambda row: sum(map(_advance, names[row])))
    for row, text in enumerate(texts):
        text.set_in_layout(row == widest)


def arranged(figure: Figure) -> Figure:
    """The figure with its layout settled: saving would otherwise settle it twice each time."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    return figure


def save(figure: Figure, path: Path, kind: Format) -> None:
    """Write a figure to a file, at a quality fit for print; equal figures give equal bytes."""
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        arranged(figure).savefig(path, format=kind, metadata=_undated(kind))


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """A figure as an `<svg>` element for a page that defines the colour variables.

    Args:
      figure: the figure.
      name:   unique on the page; makes the ids in the SVG unique.
      label:  what the figure shows, for those who cannot see it.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        # Not savefig, which draws everything twice.
        FigureCanvasSVG(arranged(figure)).print_svg(  # type: ignore[no-untyped-call]
            buffer, metadata=_undated("svg")
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # the same in every figure, and never used
    text = text.replace("'DejaVu Sans'", _FONT)
    for colour, variable in _VARIABLES.items():
        text = re.sub(rf"(fill|stroke): {colour.lower()}", rf"\1: var({variable})", text)
    opening = f'<svg role="img" aria-label="{_attribute(label)}" '
    return opening + text.removeprefix("<svg ").strip()


@cache
def _advance(character: str) -> float:
    """How wide a character is, to compare texts."""
    font = FontProperties(_STYLE["font.family"])
    width: float = text_to_path.get_text_width_height_descent(character, font, ismath=False)[0]
    return width


def _undated(kind: Format) -> dict[str, None]:
    return {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[kind]


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
