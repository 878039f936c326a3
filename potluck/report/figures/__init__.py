"""The figures of a report: each is a function of a run, and None where the run has no such thing.

`FIGURES` has them all, by the names that their files get.
"""

from collections.abc import Callable

from potluck.report.figures.brought import brought
from potluck.report.figures.calibration import calibration
from potluck.report.figures.classes import classes
from potluck.report.figures.confusion import confusion
from potluck.report.figures.correspondence import correspondence, correspondence_error
from potluck.report.figures.cost import cost
from potluck.report.figures.evidence import evidence
from potluck.report.figures.losses import losses
from potluck.report.figures.numbers import method_numbers, pseudo_labels
from potluck.report.figures.progress import progress
from potluck.report.figures.sites import sites
from potluck.report.picture import Picture
from potluck.report.run import Run

FIGURES: dict[str, Callable[[Run], Picture | None]] = {
    "progress": progress,
    "classes": classes,
    "confusion": confusion,
    "calibration": calibration,
    "brought": brought,
    "evidence": evidence,
    "losses": losses,
    "sites": sites,
    "correspondence": correspondence,
    "correspondence-error": correspondence_error,
    "pseudo-labels": pseudo_labels,
    "method-numbers": method_numbers,
    "cost": cost,
}

__all__ = ["FIGURES"]
