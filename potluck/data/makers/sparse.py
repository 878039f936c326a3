"""Few labels: only some samples keep theirs."""

import torch
from torch import Tensor

from potluck.data.partitions import deal
from potluck.errors import PotluckError


def keep_labels(
    samples: int,
    generator: torch.Generator,
    *,
    fraction: float | None = None,
    count: int | None = None,
) -> Tensor:
    """Choose which samples keep their labels.

    Args:
      samples:   number of samples N.
      generator: source of the choice.
      fraction:  share of the samples that keep their label, rounded to a whole number of them.
      count:     number of samples that keep their label; give this or `fraction`.

    Returns:
      (N,) bool.
    """
    kept = _quota(torch.tensor([samples]), fraction, count)
    if int(kept) > samples:
        raise PotluckError(f"labels: cannot keep {count} labels of {samples} samples.")
    return torch.randperm(samples, generator=generator) < kept


def keep_labels_per_class(
    classes: Tensor,
    generator: torch.Generator,
    *,
    fraction: float | None = None,
    count: int | None = None,
) -> Tensor:
    """Choose which samples of each class keep their labels.

    Args:
      classes:   (N,) class of each sample.
      generator: source of the choice.
      fraction:  share of each class that keeps its label, rounded to a whole number of samples,
                 but at least one of each class that has any.
      count:     number of samples of each class that keep their label; give this or `fraction`.

    Returns:
      (N,) bool.
    """
    totals = torch.bincount(classes)
    kept = _quota(totals, fraction, count)
    if fraction:
        kept = torch.maximum(kept, totals.clamp(max=1))
    short = (kept > totals).nonzero().flatten().tolist()
    if short:
        raise PotluckError(
            f"labels: cannot keep {count} labels of class {short[0]}, "
            f"which has {int(totals[short[0]])} samples."
        )
    return deal(classes, kept.unsqueeze(0), generator) == 0


def _quota(totals: Tensor, fraction: float | None, count: int | None) -> Tensor:
    """Labels to keep out of each total."""
    if fraction is not None and count is None:
        if not 0 <= fraction <= 1:
            raise PotluckError(f"labels: the fraction kept must be from 0 to 1, not {fraction}.")
        return (totals.double() * fraction).round().long()
    if count is not None and fraction is None:
        if count < 0:
            raise PotluckError(f"labels: the number kept must be at least 0, not {count}.")
        return torch.full_like(totals, count)
    raise PotluckError("labels: say how many to keep, as a fraction or as a count (not both).")
