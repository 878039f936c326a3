"""Each site's own training loss over the rounds, sites with the same kind of label together."""

import math

import numpy as np

from potluck.report.figures.lines import draw_sites
from potluck.report.picture import Picture
from potluck.report.run import Run
from potluck.report.style import new_figure, panels, round_axis

ACROSS = 3


def losses(run: Run) -> Picture | None:
    """A panel for each kind of label, with a curve for each site."""
    table = run.metrics.get("loss")
    if table is None:
        return None
    kinds: dict[str, list[int]] = {}
    for index, name in enumerate(run.everyone):
        if np.isfinite(table[index]).any():
            own = name not in run.sites
            kinds.setdefault("the server's own data" if own else run.kind(name), []).append(index)
    down = math.ceil(len(kinds) / ACROSS)
    figure = new_figure(0.3 + 2.5 * down)
    for axes, (kind, rows) in zip(panels(figure, len(kinds), ACROSS), kinds.items(), strict=True):
        draw_sites(axes, run.rounds, table[rows], [run.everyone[i] for i in rows])
        title = kind if len(rows) == 1 else f"{kind}: {len(rows)} sites"
        axes.set(title=title, ylabel="loss")
        round_axis(axes)
    return Picture(
        "What the sites' training reports",
        figure,
        "The mean loss of each site's steps in each round. Losses of different kinds of labels are "
        "about different things, so compare within a panel. A site whose loss stays high, or "
        "rises while others fall, may have wrong labels or declare a wrong meaning for them.",
        f"Line charts of the training loss of {len(run.sites)} sites, one for each kind of label: "
        f"{', '.join(kinds)}. The table of sites has the last values.",
    )
