"""What each site brought: its samples, and what its labels say about the classes."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from potluck.report.figures.confusion import name_ticks
from potluck.report.figures.lines import shortened
from potluck.report.picture import Picture
from potluck.report.run import Numbers, Run
from potluck.report.style import GRID, KINDS, MUTED, SEQUENTIAL, heat_axes, name_rows, new_figure

MOST = 200


def brought(run: Run) -> Picture | None:
    """Samples of each site, and their classes as labels tell them and, if known, in truth."""
    sites = list(run.brought.values())[:MOST]
    if not sites:
        return None
    told = np.stack([_shares(site.classes, len(run.classes)) for site in sites])
    truth = np.stack([_shares(site.truth, len(run.classes)) for site in sites])
    heats = [
        (title, heat)
        for title, heat in (
            ("Classes, as the labels tell", told),
            ("True classes (simulation)", truth),
        )
        if np.isfinite(heat).any()
    ]
    row = 0.26 if len(sites) <= 30 else 0.155
    figure = new_figure(1.5 + row * len(sites))
    widths = [1, *[1.3] * len(heats)]
    panels = figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    _samples(panels[0], run, row)
    top = max((float(np.nanmax(heat)) for _, heat in heats), default=1.0)
    for axes, (title, heat) in zip(panels[1:], heats, strict=True):
        heat_axes(axes)
        axes.set_facecolor(GRID)
        image = axes.imshow(
            100 * heat, cmap=SEQUENTIAL, vmin=0, vmax=100 * top, aspect="auto", interpolation="none"
        )
        axes.set(title=title, xlabel="class")
        name_ticks(axes, "x", run.classes, most=12)
    if heats:
        label = "% of the site's samples"
        shrink = 0.5 if len(sites) > 12 else 1.0
        figure.colorbar(image, ax=panels[1:], label=label, shrink=shrink, aspect=30)
    kinds = dict.fromkeys(site.facts.kind for site in sites)
    handles = [Patch(color=KINDS.get(kind, MUTED), label=kind) for kind in kinds]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles))
    total = sum(site.facts.samples for site in sites)
    left_out = len(run.brought) - len(sites)
    return Picture(
        "What each site brought",
        figure,
        " ".join(_reading(heats, left_out)),
        f"{len(sites)} parties with {total:,} samples in all; kinds of labels: {', '.join(kinds)}. "
        "The table below has the numbers.",
    )


def _reading(heats: list[tuple[str, Numbers]], left_out: int) -> Iterator[str]:
    """How to read the picture, in sentences."""
    yield "How many samples each site has, coloured by the kind of label."
    if heats:
        yield (
            "Middle: to which classes the labels point; a label that allows several classes counts "
            "for each by its share, so coarse labels, bags and unlabelled samples are spread out."
        )
    if len(heats) > 1:
        yield "Right: the true classes, which only a simulation knows."
    if any(np.isnan(heat).any() for _, heat in heats):
        yield "Grey: the server was not told."
    if left_out:
        yield f"{left_out} more sites are only in the table."


def _samples(axes: Axes, run: Run, row: float) -> None:
    sites = list(run.brought.values())[:MOST]
    places = np.arange(len(sites))
    colours = [KINDS.get(site.facts.kind, MUTED) for site in sites]
    axes.barh(places, [site.facts.samples for site in sites], color=colours, height=0.75)
    names = [
        shortened(site.facts.name) + (" (private)" if site.facts.private else "") for site in sites
    ]
    name_rows(axes, names, 8 if row > 0.2 else 7)
    axes.set(title="Samples", xlabel="samples", ylim=(len(sites) - 0.5, -0.5))


def _shares(counts: object, size: int) -> Numbers:
    """(K,) counts as shares; NaN where there are none."""
    if counts is None:
        return np.full(size, np.nan)
    values = np.asarray(counts, dtype=float)
    return values / max(values.sum(), 1)
