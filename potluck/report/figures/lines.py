"""Curves of many sites in one panel: a colour each while they are few, else a crowd."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from potluck.report.run import Numbers
from potluck.report.style import BLUE, COLOURS, INK, MUTED, legend_below

FEW = len(COLOURS)


def draw_sites(
    axes: Axes, rounds: NDArray[np.int64], values: Numbers, names: Sequence[str]
) -> None:
    """Draw a curve for each site; sites without values are left out.

    Up to `FEW` sites get a colour and a legend. More are thin grey lines with their median, and
    the sites that end highest and lowest are named.

    Args:
      axes:   where to draw.
      rounds: (R,) the rounds.
      values: (S, R), NaN where a site has no value.
      names:  the S sites.
    """
    there = np.flatnonzero(np.isfinite(values).any(1)).tolist()
    if len(there) <= FEW:
        for colour, s in zip(COLOURS, there, strict=False):
            _curve(axes, rounds, values[s], color=colour, label=shortened(names[s]))
        if len(there) > 1:
            axes.legend(loc="best")
        return
    crowd = [np.column_stack([rounds, values[s]])[np.isfinite(values[s])] for s in there]
    axes.add_collection(LineCollection(crowd, colors=MUTED, linewidths=0.5, alpha=0.5))
    _curve(axes, rounds, median(values), color=BLUE, linewidth=2.2, label="median")
    last = np.array([_last(values[s]) for s in there])
    for word, style, s in (
        ("highest", "--", there[last.argmax()]),
        ("lowest", ":", there[last.argmin()]),
    ):
        label = f"{word} at the end: {shortened(names[s])}"
        _curve(axes, rounds, values[s], color=INK, linewidth=1.1, linestyle=style, label=label)
    legend_below(axes, size=7)


def median(values: Numbers) -> Numbers:
    """(S, R) → (R,) the median of the sites' latest values; NaN before the first.

    The latest, so that the curve does not jump with who happens to take part in a round.
    """
    there = np.isfinite(values)
    latest = np.maximum.accumulate(np.where(there, np.arange(values.shape[1]), -1), axis=1)
    known = np.where(latest >= 0, np.take_along_axis(values, np.maximum(latest, 0), 1), np.nan)
    result = np.full(values.shape[1], np.nan)
    some = np.isfinite(known).any(0)
    result[some] = np.nanmedian(known[:, some], axis=0)
    return result


def shortened(name: str, length: int = 24) -> str:
    """A name that fits into a figure."""
    return name if len(name) <= length else name[: length - 1] + "…"


def _curve(axes: Axes, rounds: NDArray[np.int64], values: Numbers, **style: object) -> None:
    """A line through the rounds that have a value; a marker where there is only one."""
    there = np.isfinite(values)
    marker = "o" if there.sum() == 1 else None
    axes.plot(rounds[there], values[there], marker=marker, markersize=3, **style)  # type: ignore[arg-type]


def _last(values: Numbers) -> float:
    return float(values[np.isfinite(values)][-1])
