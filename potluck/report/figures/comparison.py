"""Settings side by side, against a variable that was swept, and over the rounds."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from potluck.report.compare import Comparison, Row, Value, short, shown
from potluck.report.figures.lines import shortened
from potluck.report.picture import Picture
from potluck.report.run import Numbers
from potluck.report.style import BLUE, COLOURS, MUTED, name_rows, new_figure, round_axis

MOST_CURVES = 6
WIDE = 30.0  # largest to smallest value of x from which the axis is logarithmic
ASIDE = 0.01  # of the width of the axis

_MARKERS, _DASHES = "osD^vP", ("-", "--", ":")


def against(comparison: Comparison) -> Picture | None:
    """The metric against x, with a line for each other setting and error bars over seeds."""
    if comparison.x is None:
        return None
    lines: dict[str, list[Row]] = {}
    for row in comparison.rows:
        label = comparison.label(row.setting) if comparison.crossed else "all runs"
        lines.setdefault(label, []).append(row)
    position = _positions([comparison.at(setting) for setting in comparison.settings])
    figure = new_figure(3.8, 7.0)
    axes = figure.subplots()
    low, high = min(position.values()), max(position.values())
    wide = low > 0 and high / low >= WIDE
    if wide:
        axes.set_xscale("log")
        axes.minorticks_off()

    def aside(place: float, line: int) -> float:
        """A little to the left or right, so that the bars of lines do not hide each other."""
        shift = ASIDE * (line - (len(lines) - 1) / 2)
        return place * (high / low) ** shift if wide else place + shift * (high - low)

    for i, ((label, rows), style) in enumerate(zip(lines.items(), _styles(), strict=False)):
        ordered = sorted(rows, key=lambda row: position[comparison.at(row.setting)])
        axes.errorbar(
            [aside(position[comparison.at(row.setting)], i) for row in ordered],
            [row.mean for row in ordered],
            yerr=[row.deviation for row in ordered],
            label=shortened(label, 40),
            capsize=3,
            markersize=5,
            **style,
        )
    axes.set_xticks(list(position.values()), list(map(shown, position)))
    axes.set(xlabel=comparison.x, ylabel=comparison.metric.title)
    if len(lines) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    return Picture(
        f"Against {comparison.x}",
        figure,
        "Means over seeds; bars are one standard deviation to each side.",
        f"Line chart with {len(lines)} lines over {len(position)} values of {comparison.x}; the "
        "table has the numbers.",
    )


def side_by_side(comparison: Comparison) -> Picture:
    """A row for each setting, best first, with mean, deviation and the single seeds."""
    sign = -1 if comparison.metric.rising else 1
    rows = sorted(comparison.rows, key=lambda row: sign * row.mean)
    whole = [", ".join(_facts(comparison, row)) for row in rows]
    figure = new_figure(0.9 + 0.3 * len(rows), 7.5)
    axes = figure.subplots()
    for place, row in enumerate(rows):
        values = list(row.scores.values())
        axes.plot(values, [place] * len(values), "o", color=MUTED, markersize=3, alpha=0.7)
        axes.errorbar(
            [row.mean], [place], xerr=[row.deviation], fmt="D", color=BLUE, capsize=3, markersize=5
        )
    name_rows(axes, [shortened(text, 45) for text in whole])
    axes.set(xlabel=comparison.metric.title, ylim=(len(rows) - 0.5, -0.5))
    return Picture(
        "Settings side by side",
        figure,
        "Best first. Diamonds are means over seeds with one standard deviation to each side; dots "
        "are single seeds.",
        f"{len(rows)} settings. Best: {whole[0]}, {rows[0].mean:.{comparison.metric.digits}f}.",
    )


def learning_curves(comparison: Comparison) -> Picture | None:
    """Test accuracy over the rounds, mean and deviation over seeds, for the best settings."""
    sign = -1 if comparison.metric.rising else 1
    rows = sorted(comparison.rows, key=lambda row: sign * row.mean)[:MOST_CURVES]
    figure = new_figure(3.6, 7.5)
    axes = figure.subplots()
    drawn = 0
    for row, style in zip(rows, _styles(), strict=False):
        rounds, values = _curves(row)
        if len(rounds) < 2:
            continue
        drawn += 1
        middle, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else 0 * rounds
        label = shortened(", ".join(_facts(comparison, row)), 40)
        style.pop("marker")
        axes.plot(rounds, middle, label=label, **style)
        axes.fill_between(
            rounds, middle - spread, middle + spread, color=style["color"], alpha=0.15, linewidth=0
        )
    if not drawn:
        return None
    axes.set(ylabel="test accuracy in %")
    round_axis(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    left_out = len(comparison.rows) - len(rows)
    return Picture(
        "Accuracy over the rounds",
        figure,
        "Means over seeds; bands are one standard deviation to each side."
        + (f" The {len(rows)} best of {len(comparison.rows)} settings." if left_out else ""),
        f"Line chart of the test accuracy of {drawn} settings over the rounds.",
    )


def _positions(values: Sequence[Value]) -> dict[Value, float]:
    """Where each value lies on the x axis: numbers where they are, words side by side."""
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        return {value: float(value) for value in sorted(set(numbers))}
    return {value: float(i) for i, value in enumerate(dict.fromkeys(values))}


def _styles() -> Iterator[dict[str, Any]]:
    """Line styles that can be told apart by colour, and by marker and dashes too."""
    for i, (colour, marker) in enumerate(zip(cycle(COLOURS), cycle(_MARKERS), strict=False)):
        dashes = _DASHES[(i // len(COLOURS)) % len(_DASHES)]
        yield {"color": colour, "marker": marker, "linestyle": dashes}


def _facts(comparison: Comparison, row: Row) -> Sequence[str]:
    named = zip(comparison.keys, row.setting.values, strict=True)
    return [
        shown(value) if key.endswith("name") else f"{short(key)} {shown(value)}"
        for key, value in named
    ] or ["all runs"]


def _curves(row: Row) -> tuple[Numbers, Numbers]:
    """Rounds that every seed was tested in, and (seeds, rounds) accuracies in %."""
    tested = [
        {record["round"]: record["test"]["accuracy"] for record in run.history if "test" in record}
        for run in row.setting.runs.values()
    ]
    common = sorted(set.intersection(*map(set, tested)))
    values = [[100 * one[number] for number in common] for one in tested]
    return np.array(common, dtype=float), np.array(values, dtype=float)
