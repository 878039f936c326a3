"""What deserves a second look, found by simple rules that each remark states."""

from collections.abc import Iterator

import numpy as np

from potluck.report.figures.classes import class_accuracy
from potluck.report.figures.correspondence import spaces
from potluck.report.figures.evidence import class_evidence
from potluck.report.run import ABSENT, SAT_OUT, TOOK_PART, Numbers, Run
from potluck.study.inventory import Brought

# Where a rule becomes true; chosen so that healthy runs of the examples stay quiet.
FALL = 0.05
LOW_CLASS = 0.5
THIN = 0.05
FAR = 4.0
RISE = 1.5
SHORT = 0.5
AGAINST = -0.05
SURE = 0.6
LEAST_MISPLACED = 0.05
ERRORS = 3.0


def remarks(run: Run) -> list[str]:
    """Sentences about what looks wrong; empty when nothing does."""
    return [
        *_accuracy(run),
        *_classes(run),
        *_evidence(run),
        *_participation(run),
        *_pull(run),
        *_drift(run),
        *_losses(run),
        *_meaning(run),
        *_declared(run),
        *_proportions(run),
    ]


def _accuracy(run: Run) -> Iterator[str]:
    rounds, accuracy = run.tested("accuracy")
    if len(accuracy) and accuracy.max() - accuracy[-1] > FALL:
        best = int(accuracy.argmax())
        yield (
            f"Test accuracy was {accuracy[best]:.1%} after round {rounds[best]:.0f} and is "
            f"{accuracy[-1]:.1%} at the end. Fewer rounds, a lower or falling learning rate "
            "(local.schedule), or samples kept aside for validation may help."
        )


def _classes(run: Run) -> Iterator[str]:
    if run.outcome is not None and run.outcome.test is not None:
        counts = run.outcome.test.confusion
        never = np.flatnonzero((counts.sum(0) == 0) & (counts.sum(1) > 0))
        if len(never):
            yield f"Never predicted: {_listed([run.classes[k] for k in never])}."
    accuracy = class_accuracy(run)
    if accuracy is not None and np.isfinite(accuracy).any():
        mean = float(np.nanmean(accuracy))
        low = np.flatnonzero((accuracy < LOW_CLASS * mean) & (accuracy > 0))
        if len(low):
            yield (
                f"Less than half as accurate as the mean class ({mean:.0%}): "
                f"{_listed([f'{run.classes[k]} ({accuracy[k]:.0%})' for k in low])}."
            )


def _evidence(run: Run) -> Iterator[str]:
    found = class_evidence(run)
    if found is None or found.untold:  # who does not tell may have just these classes
        return
    mean = float(found.total.mean())
    thin = np.flatnonzero(found.total < THIN * mean)
    if len(thin):
        yield (
            f"Less than {THIN:.0%} of the evidence that sites bring about the mean class (worth "
            f"{mean:,.0f} exact labels): "
            f"{_listed([f'{run.classes[k]} ({found.total[k]:,.1f})' for k in thin])}. A few exact "
            "labels of these classes would help most."
        )


def _participation(run: Run) -> Iterator[str]:
    took = (run.participation == TOOK_PART).sum(1)
    out = (run.participation == SAT_OUT).sum(1)
    absent = (run.participation == ABSENT).sum(1)
    silent = [run.sites[s] for s in np.flatnonzero((took == 0) & (out > 0))]
    if silent:
        yield (
            "Sat out every round they were chosen for, since the method has no use for their "
            f"labels: {_listed(silent)}."
        )
    seldom = np.flatnonzero((took > 0) & (out > took))
    if len(seldom):
        yield f"Sat out most of their rounds: {_listed([run.sites[s] for s in seldom])}."
    away = np.flatnonzero(absent > SHORT * len(run.history))
    if len(away):
        yield f"Absent in most rounds: {_listed([run.sites[s] for s in away])}."


def _pull(run: Run) -> Iterator[str]:
    table = run.updates.get("agreement")
    if table is None:
        return
    against = [name for name, value in _means(run, table).items() if value < AGAINST]
    if against:
        yield (
            f"Pulled against the other sites (a mean agreement below {AGAINST} in the second half "
            f"of the run): {_listed(against)}. Their labels, or the meaning declared for them, may "
            "be wrong, or their data very different."
        )


def _drift(run: Run) -> Iterator[str]:
    table = run.metrics.get("drift")
    if table is None:
        return
    typical = _means(run, table)
    middle = float(np.median(list(typical.values()))) if typical else 0.0
    far = [name for name, value in typical.items() if value > FAR * middle > 0]
    if far:
        yield f"Drift more than {FAR:.0f} times as far as the median site: {_listed(far)}."


def _losses(run: Run) -> Iterator[str]:
    table = run.metrics.get("loss")
    if table is None or len(run.history) < 8:
        return
    quarter = len(run.history) // 4
    parts = table[:, :quarter], table[:, -quarter:]
    both = np.flatnonzero(np.all([np.isfinite(part).any(1) for part in parts], axis=0))
    first, last = (np.nanmedian(part[both], axis=1) for part in parts)
    rising = both[(last > RISE * first) & (first > 0)]
    if len(rising):
        yield (
            "Training loss rose by half or more from the first to the last quarter of the run: "
            f"{_listed([run.everyone[s] for s in rising])}."
        )


def _meaning(run: Run) -> Iterator[str]:
    for space in spaces(run):
        if not space.informative:
            continue
        allowed = space.declared > 0
        for site, estimate in space.estimates.items():
            top = estimate.argmax(0)
            column = np.arange(estimate.shape[1])
            wrong = np.flatnonzero((estimate.max(0) > SURE) & ~allowed[top, column])
            if len(wrong):
                k = wrong[0]
                more = f" (and {len(wrong) - 1} more classes)" if len(wrong) > 1 else ""
                yield (
                    f'"{site}": samples of class "{run.classes[k]}" mostly have the label '
                    f'"{space.symbols[top[k]]}" by the estimate ({estimate[top[k], k]:.0%}), but '
                    f"the declared mapping does not allow it{more}. Check the mapping."
                )


def _declared(run: Run) -> Iterator[str]:
    """Sites whose declared view the method `potluck` refuted."""
    for name, what in (
        ("refuted", "what their labels or sets mean was refuted in part by the others' labels"),
        ("rate_gap", "labels are right more or less often than declared"),
    ):
        table = run.metrics.get(name)
        if table is None:
            continue
        least = 0.0 if name == "refuted" else FAR
        wrong = [site for site, value in _lasts(run, table).items() if abs(value) > least]
        if wrong:
            yield f"Declared perhaps wrongly ({what}): {_listed(wrong)}. Check their views."


def _proportions(run: Run) -> Iterator[str]:
    """Sites whose bags seem to have other classes than declared, beyond the model's mistakes.

    If what was declared is right, each misplaced sample is a mistake of the model, so that there
    are no more of them than mistakes: as in the test, but for a few standard errors of both.
    """
    table = run.metrics.get("misplaced")
    _, accuracy = run.tested("accuracy")
    if table is None or run.inventory is None or not len(accuracy):
        return
    mistakes = 1 - float(accuracy[-1])
    surely: list[str] = []
    perhaps: list[str] = []
    last = _lasts(run, table)
    for name, site in run.brought.items():
        share = last.get(name, 0.0)
        draws = 1 / site.facts.samples + 1 / run.inventory.test
        error = np.sqrt(mistakes * (1 - mistakes) * draws)
        if share > max(LEAST_MISPLACED, mistakes + ERRORS * error):
            enough = share > _by_chance(site) + mistakes
            (surely if enough else perhaps).append(f"{name} ({share:.0%})")
    rule = (
        "more samples would have to be of another class than predicted than the model's mistakes "
        f"in the test, {mistakes:.0%}, explain"
    )
    if surely:
        yield f"Declared perhaps wrongly (proportions: {rule}): {_listed(surely)}. Check them."
    if perhaps:
        yield (
            f"Bags that seem not to have the declared proportions ({rule}): {_listed(perhaps)}. "
            "Check them, if they are meant for just these samples. Bags of this size that are "
            "drawn from a population with the declared proportions may differ as much by chance."
        )


def _by_chance(site: Brought) -> float:
    """The expected share of misplaced samples in bags drawn at random; inf where nobody knows."""
    if site.counts is None or site.declared is None:
        return float("inf")
    sizes, shares = site.counts[:, None].astype(float), site.declared.astype(float)
    # The mean absolute deviation of a normal variable is √(2/π) of its standard deviation.
    away = np.sqrt(2 / np.pi * sizes * shares * (1 - shares))
    return float(away.sum() / (2 * sizes.sum()))


def _lasts(run: Run, table: Numbers) -> dict[str, float]:
    """Each site's last value, where it has any."""
    rows = {name: table[run.everyone.index(name)] for name in run.sites}
    return {name: float(r[np.isfinite(r)][-1]) for name, r in rows.items() if np.isfinite(r).any()}


def _means(run: Run, table: Numbers) -> dict[str, float]:
    """Each site's mean over the second half of the run, where it took part in it."""
    half = table[:, table.shape[1] // 2 :]
    rows = {name: half[run.everyone.index(name)] for name in run.sites}
    return {name: float(np.nanmean(r)) for name, r in rows.items() if np.isfinite(r).any()}


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
