"""Accuracy and loss over the rounds."""

from typing import Any

from potluck.history import best_round
from potluck.report.figures.lines import median
from potluck.report.picture import Picture
from potluck.report.run import Numbers, Run
from potluck.report.style import (
    BLUE,
    GREEN,
    MUTED,
    VERMILLION,
    legend_below,
    new_figure,
    round_axis,
)


def progress(run: Run) -> Picture | None:
    """Test and validation accuracy, test loss and the sites' training loss, over the rounds."""
    rounds, accuracy = run.tested("accuracy")
    validated, validation = run.validated
    if len(rounds) == 0 and len(validated) == 0:
        return None
    figure = new_figure(3.2)
    left, right = figure.subplots(1, 2)
    if len(rounds):
        left.plot(rounds, 100 * accuracy, color=BLUE, label="test", **_marked(rounds))
    if len(validated):
        left.plot(
            validated,
            100 * validation,
            color=GREEN,
            linestyle="--",
            label="validation",
            **_marked(validated),
        )
    best = best_round(run.history)
    if best is not None:
        left.axvline(best["round"], color=MUTED, linestyle=":", label="best in validation")
    left.set(title="Accuracy", ylabel="accuracy in %")
    round_axis(left)
    tested, loss = run.tested("loss")
    if len(tested):
        right.plot(tested, loss, color=BLUE, label="test", **_marked(tested))
    if "loss" in run.metrics:
        own = median(run.metrics["loss"])
        right.plot(run.rounds, own, color=VERMILLION, linestyle="--", label="sites' own (median)")
    right.set(title="Loss", ylabel="loss")
    round_axis(right)
    for axes in (left, right):
        legend_below(axes, columns=3)
        axes.set_xlim(0.5 if len(run.rounds) == 1 else run.rounds[0], run.rounds[-1])
    return Picture(
        "Accuracy and loss over the rounds",
        figure,
        "Left: the share of samples whose class the global model predicts. Right: its mean "
        "cross-entropy on the test set, and the losses that the sites report from their training, "
        "which are about their own kinds of labels and need not be alike.",
        _told(accuracy, rounds, validation, validated),
    )


def _marked(rounds: Numbers) -> dict[str, Any]:
    """Dots where a model was tested, while they are few enough to see."""
    return {"marker": "o", "markersize": 3.5} if len(rounds) <= 25 else {}


def _told(accuracy: Numbers, rounds: Numbers, validation: Numbers, validated: Numbers) -> str:
    said = []
    for what, where, values in (
        ("test", rounds, accuracy),
        ("validation", validated, validation),
    ):
        if len(values):
            said.append(
                f"{what} accuracy goes from {values[0]:.1%} in round {where[0]:.0f} to "
                f"{values[-1]:.1%} in round {where[-1]:.0f}, at most {values.max():.1%}"
            )
    return f"Line chart: {'; '.join(said)}."
