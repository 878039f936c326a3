"""Where the evidence about each class comes from."""

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from numpy.typing import NDArray

from potluck.report.figures.lines import shortened
from potluck.report.picture import Picture
from potluck.report.run import Numbers, Run
from potluck.report.style import GRID, INK, KINDS, MUTED, PAPER, name_rows, new_figure

FEW = 10
ROWS = 25
MOST = 100


@dataclass(frozen=True, eq=False)
class Evidence:
    """How many exact labels of each class the labels of the sites are worth.

    Args:
      sources: who brought it: sites where they are few, else kinds of labels.
      kinds:   the kind of each source's labels.
      amounts: (sources, K) in exact labels.
      untold:  how many sites told nothing about their labels, and are left out.
    """

    sources: tuple[str, ...]
    kinds: tuple[str, ...]
    amounts: Numbers
    untold: int

    @property
    def total(self) -> Numbers:
        """(K,) of all sources together."""
        return self.amounts.sum(0)


def class_evidence(run: Run) -> Evidence | None:
    """The evidence about each class by where it comes from; None where a run does not say."""
    told = {
        name: site.evidence.astype(float)
        for name, site in run.brought.items()
        if site.evidence is not None
    }
    if not told:
        return None
    names, amounts = tuple(told), np.stack(list(told.values()))
    kinds = tuple(map(run.kind, names))
    if len(names) > FEW:
        sources = tuple(dict.fromkeys(kinds))
        own = np.array([[kind == source for kind in kinds] for source in sources], dtype=float)
        names, kinds, amounts = sources, sources, own @ amounts
    return Evidence(names, kinds, amounts, len(run.brought) - len(told))


def evidence(run: Run) -> Picture | None:
    """A bar for each class, most evidence first, with a segment for each source."""
    found = class_evidence(run)
    if found is None or not found.total.any():
        return None
    total = found.total
    order = np.argsort(-total, kind="stable")
    shown = order[-MOST:]
    across = math.ceil(len(shown) / ROWS)
    rows = math.ceil(len(shown) / across)
    figure = new_figure(1.3 + 0.19 * rows)
    mean = float(total.mean())
    for column, axes in enumerate(np.atleast_1d(figure.subplots(1, across))):
        part = shown[column * rows : (column + 1) * rows]
        _bars(axes, found, part)
        axes.axvline(mean, color=INK, linewidth=0.9, linestyle="--")
        name_rows(axes, [shortened(run.classes[k], 18) for k in part])
        top = 1.03 * max(float(total[shown].max()), mean)
        axes.set(xlim=(0, top), ylim=(rows - 0.4, -0.6), xlabel="exact labels")
        axes.spines["left"].set_color(GRID)
    bringing = dict.fromkeys(
        kind for kind, own in zip(found.kinds, found.amounts, strict=True) if own.any()
    )
    handles = [Patch(color=KINDS.get(kind, MUTED), label=kind) for kind in bringing]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles))
    most, least = order[0], order[-1]
    return Picture(
        "Where the evidence about each class comes from",
        figure,
        _reading(found, len(order) - len(shown)),
        f"Stacked bars of {len(shown)} classes. Most evidence: {run.classes[most]}, worth "
        f"{total[most]:,.0f} exact labels, the largest part from {_largest(found, most)}. Least: "
        f"{run.classes[least]}, worth {total[least]:,.1f}. Mean over classes: {mean:,.0f}. The "
        "table below has the numbers.",
    )


def _bars(axes: Axes, found: Evidence, classes: NDArray[np.int64]) -> None:
    """Stacked horizontal bars; one artist per source, since rectangles by the hundred are slow."""
    ends = found.amounts[:, classes].cumsum(0)
    starts = np.vstack([np.zeros(len(classes)), ends[:-1]])
    places = np.arange(len(classes))
    low, high = places - 0.38, places + 0.38
    for kind, left, right in zip(found.kinds, starts, ends, strict=True):
        corners = np.stack([[left, low], [right, low], [right, high], [left, high]])
        bars = PolyCollection(
            list(corners.transpose(2, 0, 1)),
            facecolors=KINDS.get(kind, MUTED),
            edgecolors=PAPER,  # tells sites of one kind apart
            linewidths=0.5,
        )
        axes.add_collection(bars)


def _reading(found: Evidence, left_out: int) -> str:
    """How to read the picture."""
    sentences = [
        "How many exact labels of each class the sites' labels are worth before training, most "
        "first: the samples of the class, as the labels tell, times what one label says about it "
        "(1 for an exact label, 0 for none). The dashed line is the mean over classes. A class "
        "with a short bar must be learned from little, whatever the method."
    ]
    if found.untold:
        sentences.append(f"Sites whose labels are not told, and left out: {found.untold}.")
    if left_out:
        sentences.append(f"The {left_out} classes with most evidence are left out.")
    return " ".join(sentences)


def _largest(found: Evidence, k: int) -> str:
    source = int(found.amounts[:, k].argmax())
    name, kind = found.sources[source], found.kinds[source]
    return f"{kind} labels" if name == kind else f"{name} ({kind} labels)"
