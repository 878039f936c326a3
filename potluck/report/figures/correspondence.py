"""The estimated meaning of labels beside the declared one, and its error over the rounds."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from potluck.report.figures.confusion import name_ticks
from potluck.report.figures.lines import draw_sites, shortened
from potluck.report.picture import Picture
from potluck.report.run import Numbers, Run
from potluck.report.style import SEQUENTIAL, heat_axes, new_figure, round_axis

MOST = 4
ALL_NUMBERS = 80


@dataclass(frozen=True, eq=False)
class Space:
    """Sites that label in the same space, with what they declared and what they estimated.

    Args:
      symbols:   names of the Z labels.
      declared:  (Z, K) P(label | class) as declared.
      estimates: (Z, K) as estimated, by site.
    """

    symbols: tuple[str, ...]
    declared: Numbers
    estimates: dict[str, Numbers]

    @property
    def informative(self) -> bool:
        """Whether the declared meaning says anything: its rows are not all the same."""
        return len(self.declared) < 2 or bool((self.declared != self.declared[0]).any())

    def errors(self) -> dict[str, float]:
        """How far each site's estimate is from what was declared (Frobenius norm)."""
        return {
            site: float(np.linalg.norm(estimate - self.declared))
            for site, estimate in self.estimates.items()
        }


def spaces(run: Run) -> list[Space]:
    """The label spaces in which sites have estimated what their labels mean."""
    if run.outcome is None:
        return []
    found: dict[tuple[tuple[str, ...], bytes], Space] = {}
    for site, estimate in run.outcome.correspondence.items():
        own = run.brought.get(site)
        if own is None or own.declared is None or own.facts.symbols is None:
            continue
        declared, symbols = own.declared.astype(np.float64), tuple(own.facts.symbols)
        space = found.setdefault((symbols, declared.tobytes()), Space(symbols, declared, {}))
        space.estimates[site] = estimate.astype(np.float64)
    return [
        space
        for space in found.values()
        if not all(np.allclose(one, space.declared) for one in space.estimates.values())
    ]


def correspondence(run: Run) -> Picture | None:
    """Heat maps of M̂ beside the declared meaning."""
    found = spaces(run)
    if not found:
        return None
    shown = found[:MOST]
    cell = 0.28 if max(len(s.symbols) for s in shown) <= 20 else 0.12
    heights = [max(1.6, 0.9 + cell * len(space.symbols)) for space in shown]
    figure = new_figure(sum(heights) + 0.4)
    grid = figure.subplots(len(shown), 3, squeeze=False, height_ratios=heights)
    for row, space in zip(grid, shown, strict=True):
        for axes, (title, matrix) in zip(row, _panels(space), strict=False):
            image = _heat(axes, space, run.classes, matrix, title)
        for axes in row[len(_panels(space)) :]:
            axes.set_visible(False)
        name_ticks(row[0], "y", space.symbols, most=40)
        row[0].set_ylabel("label of the site")
    figure.colorbar(image, ax=grid, label="% of the class", shrink=0.6, aspect=30)
    errors = {site: error for space in found for site, error in space.errors().items()}
    worst = max(errors, key=lambda site: errors[site])
    return Picture(
        "What labels mean: estimated and declared",
        figure,
        "Each column is a target class: how often its samples get each label of the site. A label "
        "that the estimate gives to classes for which it was not declared deserves a second look "
        "at the declared mapping. Nothing here was shared with other sites unless the method "
        "averages it."
        + (f" {len(found) - MOST} more label spaces are not shown." if len(found) > MOST else ""),
        f"Heat maps of the estimated correspondence in {len(found)} label spaces. The estimate "
        f"farthest from what was declared is that of {worst}, at a distance of "
        f"{errors[worst]:.2f} (Frobenius norm).",
    )


def correspondence_error(run: Run) -> Picture | None:
    """The distance of M̂ from the true correspondence, which only a simulation knows."""
    table = run.metrics.get("correspondence_error")
    if table is None:
        return None
    figure = new_figure(3.0, 6.5)
    axes = figure.subplots()
    draw_sites(axes, run.rounds, table, run.everyone)
    axes.set(ylabel="‖M̂ − M‖")
    round_axis(axes)
    axes.set_ylim(bottom=0)
    last = table[:, np.isfinite(table).any(0)][:, -1]
    return Picture(
        "Error of the estimated meaning",
        figure,
        "The Frobenius distance between the estimated and the true correspondence at the start of "
        "each round; only a simulation knows the truth.",
        f"Line chart; in the last round the median error is {np.nanmedian(last):.2f}.",
    )


def _panels(space: Space) -> list[tuple[str, Numbers]]:
    """What to show of a label space: declared, the mean estimate, and the estimate farthest off."""
    panels = [("declared" if space.informative else "declared: nothing", space.declared)]
    estimates = list(space.estimates.values())
    if len(estimates) == 1:
        (site,) = space.estimates
        return [*panels, (f"estimated: {shortened(site, 18)}", estimates[0])]
    mean = np.mean(estimates, axis=0)
    away = {site: float(np.linalg.norm(one - mean)) for site, one in space.estimates.items()}
    errors = space.errors() if space.informative else away
    worst = max(errors, key=lambda site: errors[site])
    return [
        *panels,
        (f"estimated: mean of {len(estimates)} sites", mean),
        (f"farthest off: {shortened(worst, 16)}", space.estimates[worst]),
    ]


def _heat(
    axes: Axes, space: Space, classes: tuple[str, ...], matrix: Numbers, title: str
) -> AxesImage:
    heat_axes(axes)
    image = axes.imshow(
        100 * matrix, cmap=SEQUENTIAL, vmin=0, vmax=100, aspect="auto", interpolation="none"
    )
    if matrix.size <= ALL_NUMBERS:
        for (row, column), value in np.ndenumerate(matrix):
            axes.text(
                column,
                row,
                f"{100 * value:.0f}",
                ha="center",
                va="center",
                fontsize=7,
                color="black" if value > 0.55 else "white",
            )
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("target class")
    name_ticks(axes, "x", classes, most=12)
    return image
