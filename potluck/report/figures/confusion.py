"""What the final model takes for what."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from potluck.report.figures.lines import shortened
from potluck.report.picture import Picture
from potluck.report.run import Run
from potluck.report.style import SEQUENTIAL, heat_axes, new_figure

ALL_NAMES = 40
ALL_NUMBERS = 15


def confusion(run: Run) -> Picture | None:
    """A heat map of the predicted classes of each true class."""
    if run.outcome is None or run.outcome.test is None:
        return None
    counts = run.outcome.test.confusion
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = len(counts)
    side = 7.0 if size > ALL_NUMBERS else 2.2 + 0.38 * size
    figure = new_figure(side - 0.4, side + 0.6)
    axes = figure.subplots()
    heat_axes(axes)
    # Most confusions are small: a square-root scale makes them visible.
    scale = PowerNorm(0.5, vmin=0, vmax=100)
    image = axes.imshow(100 * shares, cmap=SEQUENTIAL, norm=scale, interpolation="none")
    if size <= ALL_NUMBERS:
        for row, column in zip(*np.nonzero(counts), strict=True):
            colour = "black" if shares[row, column] > 0.3 else "white"
            axes.text(
                column, row, counts[row, column], ha="center", va="center", color=colour, fontsize=7
            )
    name_ticks(axes, "x", run.classes)
    name_ticks(axes, "y", run.classes)
    axes.set(xlabel="predicted class", ylabel="true class")
    figure.colorbar(image, ax=axes, label="% of the true class", shrink=0.7)
    right = counts.trace() / max(counts.sum(), 1)
    return Picture(
        "Confusion matrix",
        figure,
        f"Of the test samples of each class (row), the share predicted as each class (column), "
        f"after round {run.outcome.rounds}."
        + (" Numbers are counts." if size <= ALL_NUMBERS else "")
        + " The largest confusions are listed below.",
        f"Heat map of a {size} by {size} confusion matrix; {right:.1%} lies on the diagonal.",
    )


def name_ticks(axes: Axes, axis: str, names: tuple[str, ...], most: int = ALL_NAMES) -> None:
    """Name the rows or columns of a heat map, as many of them as can be read.

    Args:
      axes:  the heat map.
      axis:  "x" or "y".
      names: of all rows or columns.
      most:  how many names there is room for.
    """
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, len(names)) if len(names) <= most * s)
    places = range(0, len(names), step)
    shown = [shortened(names[i], 16) for i in places]
    if axis == "x":
        steep = max(map(len, shown)) * len(shown) > 60
        axes.set_xticks(places, shown, rotation=90 if steep else 0)
    else:
        axes.set_yticks(places, shown)
