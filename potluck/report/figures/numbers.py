"""Pseudo-label quality, and whatever else a method reports from the sites."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from potluck.report.figures.lines import draw_sites
from potluck.report.picture import Picture
from potluck.report.run import Numbers, Run
from potluck.report.style import new_figure, panels, round_axis

ACROSS = 2

PSEUDO_LABELS = {
    "pseudo_label_accuracy": "pseudo-labels that are right, %",
    "pseudo_accuracy": "pseudo-labels that are right, %",
    "confident": "samples with a confident pseudo-label, %",
    "sure": "samples with a sure pseudo-label, %",
    "symbol_accuracy": "own labels that the model predicts, %",
}
"""Shares that say how good a method's guesses at the sites are."""

_ELSEWHERE = ("correspondence_error",)


def pseudo_labels(run: Run) -> Picture | None:
    """How good the guesses are that a method trains on."""
    tables = {
        title: 100 * run.metrics[name]
        for name, title in PSEUDO_LABELS.items()
        if name in run.metrics
    }
    if not tables:
        return None
    last = [
        f"{title}: median {np.nanmedian(_ends(table)):.1f} in the end"
        for title, table in tables.items()
    ]
    return Picture(
        "Pseudo-labels",
        _panels(run, tables, share=True),
        "The guesses at the sites that training uses in place of labels, at the start of each "
        "round. How many are right is known in simulations only.",
        f"Line charts over the rounds. {'; '.join(last)}.",
    )


def method_numbers(run: Run) -> Picture | None:
    """Every other number that the method reports."""
    tables = {
        name.replace("_", " "): table
        for name, table in run.method_metrics.items()
        if name not in PSEUDO_LABELS and name not in _ELSEWHERE and _varies(table)
    }
    if not tables:
        return None
    return Picture(
        f"Further numbers of the method {run.study['method']['name']}",
        _panels(run, tables, share=False),
        "As the sites report them; potluck list methods and the method's own documentation say "
        "what they are.",
        f"Line charts over the rounds: {', '.join(tables)}.",
    )


def _panels(run: Run, tables: Mapping[str, Numbers], share: bool) -> Figure:
    down = math.ceil(len(tables) / ACROSS)
    figure = new_figure(0.3 + 2.6 * down)
    places = panels(figure, len(tables), ACROSS)
    for axes, (title, table) in zip(places, tables.items(), strict=True):
        draw_sites(axes, run.rounds, table, run.everyone)
        axes.set(title=title)
        round_axis(axes)
        if share:
            axes.set_ylim(-3, 103)
    return figure


def _varies(table: Numbers) -> bool:
    """Whether there is anything to see: values that differ by more than rounding."""
    there = table[np.isfinite(table)]
    return len(there) > 0 and not np.allclose(there, there[0], rtol=1e-6, atol=1e-6)


def _ends(table: Numbers) -> Numbers:
    """The last value of every site that has one."""
    return np.array([row[np.isfinite(row)][-1] for row in table if np.isfinite(row).any()])
