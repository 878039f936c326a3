"""Accuracy of each class."""

import math

import numpy as np

from potluck.report.figures.lines import shortened
from potluck.report.picture import Picture
from potluck.report.run import Numbers, Run
from potluck.report.style import BLUE, GRID, INK, name_rows, new_figure

ROWS = 25
MOST = 100


def class_accuracy(run: Run) -> Numbers | None:
    """(K,) the final model's accuracy on the test samples of each class; NaN without samples."""
    tested = [record["test"] for record in run.history if "test" in record]
    return np.array(tested[-1]["per_class"], dtype=float) if tested else None


def classes(run: Run) -> Picture | None:
    """A bar for each class, best first."""
    accuracy = class_accuracy(run)
    if accuracy is None or not np.isfinite(accuracy).any():
        return None
    order = np.argsort(-np.nan_to_num(accuracy, nan=-1.0), kind="stable")
    shown = order[-MOST:]
    across = math.ceil(len(shown) / ROWS)
    rows = math.ceil(len(shown) / across)
    figure = new_figure(0.9 + 0.19 * rows)
    mean = float(np.nanmean(accuracy))
    for column, axes in enumerate(np.atleast_1d(figure.subplots(1, across))):
        part = shown[column * rows : (column + 1) * rows]
        places = np.arange(len(part))
        axes.barh(places, 100 * accuracy[part], color=BLUE, height=0.7)
        axes.axvline(100 * mean, color=INK, linewidth=0.9, linestyle="--")
        names = [
            shortened(run.classes[k], 18) + ("" if np.isfinite(accuracy[k]) else " (no samples)")
            for k in part
        ]
        name_rows(axes, names)
        axes.set(xlim=(0, 100), ylim=(rows - 0.4, -0.6), xlabel="accuracy in %")
        axes.spines["left"].set_color(GRID)
    best, worst = order[0], order[np.isfinite(accuracy[order])][-1]
    left_out = len(order) - len(shown)
    return Picture(
        "Accuracy of each class",
        figure,
        "The share of each class's test samples that are predicted right, best class first; the "
        "dashed line is the mean over classes."
        + (f" The {left_out} best classes are left out." if left_out else ""),
        f"Bar chart of {len(shown)} classes. Best: {run.classes[best]}, {accuracy[best]:.1%}. "
        f"Worst: {run.classes[worst]}, {accuracy[worst]:.1%}. Mean over classes: {mean:.1%}.",
    )
