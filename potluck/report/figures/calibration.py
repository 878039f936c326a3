"""Whether the model's probabilities mean what they say."""

import numpy as np

from potluck.report.picture import Picture
from potluck.report.run import Run
from potluck.report.style import BLUE, INK, MUTED, SKY, new_figure


def calibration(run: Run) -> Picture | None:
    """Accuracy against confidence, and how often each confidence occurs."""
    if run.outcome is None or run.outcome.test is None:
        return None
    bins = run.outcome.test.calibration
    used = bins[:, 0] > 0
    counts = bins[used, 0]
    confidence, accuracy = bins[used, 1] / counts, bins[used, 2] / counts
    error = float((counts * np.abs(accuracy - confidence)).sum() / counts.sum())
    figure = new_figure(3.3)
    left, right = figure.subplots(1, 2)
    left.plot([0, 100], [0, 100], color=MUTED, linestyle="--", linewidth=1, label="perfect")
    left.plot(100 * confidence, 100 * accuracy, color=BLUE, marker="o", markersize=4, label="model")
    left.set(
        title="Reliability",
        xlabel="confidence in %",
        ylabel="accuracy in %",
        xlim=(0, 101),
        ylim=(0, 101),
    )
    left.legend(loc="best")
    width = 100 / len(bins)
    middles = width * (np.arange(len(bins)) + 0.5)
    right.bar(middles, 100 * bins[:, 0] / counts.sum(), width=0.9 * width, color=SKY)
    mean = float((counts * confidence).sum() / counts.sum())
    right.axvline(100 * mean, color=INK, linestyle="--", linewidth=1, label="mean confidence")
    right.set(
        title="How sure it is", xlabel="confidence in %", ylabel="% of samples", xlim=(0, 101)
    )
    right.legend(loc="best")
    return Picture(
        "Calibration",
        figure,
        "Left: among test samples whose predicted class got a certain probability (confidence), "
        "how many are right; below the dashed line the model is surer than it should be. Right: "
        f"how often each confidence occurs. Expected calibration error: {error:.1%}, the mean "
        f"distance to the dashed line over {len(bins)} bins.",
        f"Reliability diagram. Expected calibration error {error:.1%}; mean confidence {mean:.1%}.",
    )
