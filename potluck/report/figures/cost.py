"""Time and bytes of each round."""

import numpy as np

from potluck.report.picture import Picture
from potluck.report.run import Run
from potluck.report.style import BLUE, GREEN, ORANGE, new_figure, round_axis

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def cost(run: Run) -> Picture | None:
    """Seconds and bytes of each round."""
    timed = bool(np.isfinite(run.seconds).any())
    if not timed and not run.traffic:
        return None
    figure = new_figure(2.8)
    panels = list(np.atleast_1d(figure.subplots(1, int(timed) + bool(run.traffic))))
    said = []
    if timed:
        axes = panels.pop(0)
        axes.plot(run.rounds, run.seconds, color=BLUE, linewidth=1)
        axes.set(title="Time", ylabel="seconds")
        round_axis(axes)
        axes.set_ylim(0, 1.1 * np.nanmax(run.seconds))
        said.append(f"{np.nansum(run.seconds):.1f} seconds in all")
    if run.traffic:
        axes = panels.pop(0)
        totals = {way: np.nansum(table, axis=0) for way, table in run.traffic.items()}
        size, unit = scale(max(float(total.max()) for total in totals.values()))
        for way, colour, style in (("down", GREEN, "-"), ("up", ORANGE, "--")):
            label = {"down": "server to sites", "up": "sites to server"}[way]
            axes.plot(run.rounds, totals[way] / size, color=colour, linestyle=style, label=label)
            said.append(f"{told(float(totals[way].sum()))} {label}")
        axes.set(title="Traffic", ylabel=f"{unit} a round, all sites")
        round_axis(axes)
        axes.set_ylim(0, 1.3 * max(total.max() for total in totals.values()) / size)
        axes.legend(loc="upper right", ncols=2)
    return Picture(
        "Time and traffic",
        figure,
        "Time includes evaluation. Traffic counts the tensors of all messages; in a run on one "
        "machine it is what would have been sent.",
        f"Line charts over the rounds: {'; '.join(said)}.",
    )


def scale(largest: float) -> tuple[float, str]:
    """A unit in which a number of bytes is easy to read."""
    return next((unit for unit in UNITS if largest >= unit[0]), UNITS[-1])


def told(count: float) -> str:
    """A number of bytes for people."""
    size, unit = scale(count)
    return f"{count / size:.0f} {unit}" if unit == "bytes" else f"{count / size:.1f} {unit}"
