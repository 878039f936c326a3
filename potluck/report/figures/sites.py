"""Participation, drift and contribution of each site in each round."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from potluck.report.figures.lines import shortened
from potluck.report.picture import Picture
from potluck.report.run import ABSENT, NOT_CHOSEN, SAT_OUT, TOOK_PART, Numbers, Run
from potluck.report.style import (
    BLUE,
    DIVERGING,
    GRID,
    ORANGE,
    SEQUENTIAL,
    VERMILLION,
    heat_axes,
    name_rows,
    new_figure,
    round_axis,
)

MOST = 200

_STATES = {
    TOOK_PART: ("took part", BLUE),
    SAT_OUT: ("sat out", ORANGE),
    ABSENT: ("absent", VERMILLION),
    NOT_CHOSEN: ("not chosen", GRID),
}


def sites(run: Run) -> Picture | None:
    """Three heat maps, sites by rounds."""
    names = run.sites[:MOST]
    count = len(names)
    if count == 0:
        return None
    row = 0.26 if count <= 30 else 0.155
    figure = new_figure(1.9 + row * count)
    rows = [run.everyone.index(name) for name in names]
    drift = run.metrics.get("drift")
    contribution = run.updates.get("contribution")
    heats = [] if drift is None else [("Drift", drift[rows])]
    if contribution is not None:
        heats.append(("Contribution in %", 100 * contribution[rows]))
    panels = np.atleast_1d(figure.subplots(1, 1 + len(heats)))
    _participation(panels[0], run, count)
    name_rows(panels[0], list(map(shortened, names)), 8 if row > 0.2 else 7)
    for axes, (title, table) in zip(panels[1:], heats, strict=True):
        signed = title.startswith("Contribution")
        top = _top(table)
        heat_axes(axes)
        axes.set_facecolor(GRID)
        image = axes.imshow(
            table,
            cmap=DIVERGING if signed else SEQUENTIAL,
            vmin=-top if signed else 0,
            vmax=top,
            aspect="auto",
            interpolation="none",
            extent=_extent(run, count),
        )
        axes.set(title=title)
        round_axis(axes)
        figure.colorbar(
            image,
            ax=axes,
            orientation="horizontal",
            aspect=25,
            extend="both" if signed else "max",
            pad=0.1 / figure.get_figheight(),
        )
    present = [state for state in _STATES if (run.participation == state).any()]
    handles = [Patch(color=_STATES[state][1], label=_STATES[state][0]) for state in present]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles))
    took = (run.participation == TOOK_PART).sum(1)
    left_out = len(run.sites) - count
    return Picture(
        "Sites in each round",
        figure,
        "Drift is the distance between the model that a site received and the one it ended with. "
        "Contribution is the part of the round's average update that comes from the site: its "
        "weighted update, projected on the average. Contributions of a round sum to 100%; a "
        "negative one (purple) pulled against the others. It says how much a site moved the "
        "model, not whether that made it better."
        + (f" {left_out} more sites are only in the table." if left_out else ""),
        f"Heat maps of {count} sites over {len(run.history)} rounds. Sites took part in "
        f"{took.min()} to {took.max()} rounds. The table below has each site's numbers.",
    )


def _participation(axes: Axes, run: Run, count: int) -> None:
    heat_axes(axes)
    colours = ListedColormap([_STATES[state][1] for state in range(len(_STATES))])
    axes.imshow(
        run.participation[:count],
        cmap=colours,
        vmin=-0.5,
        vmax=len(_STATES) - 0.5,
        aspect="auto",
        interpolation="none",
        extent=_extent(run, count),
    )
    axes.set(title="Participation")
    round_axis(axes)


def _extent(run: Run, count: int) -> tuple[float, float, float, float]:
    return (run.rounds[0] - 0.5, run.rounds[-1] + 0.5, count - 0.5, -0.5)


def _top(table: Numbers) -> float:
    """The end of the colour scale: nearly the largest size; a few outliers must not bleach all."""
    sizes = np.abs(table[np.isfinite(table)])
    return float(np.quantile(sizes, 0.98)) or 1.0 if len(sizes) else 1.0
