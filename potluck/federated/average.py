"""The weighted mean of the sites' updates, one running sum in a fixed order.

Sites may hold different entries of θ: a `subset` site holds the encoder and the head rows of
its own classes (Private label sets, Alg. 1). Each entry is averaged over its holders,

    mean_p = Σ_{s holds p} w_s δ_s,p / Σ_{s holds p} w_s,

and an entry that nobody held this round does not change.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.messages import Tensors, Update


@dataclass(frozen=True, eq=False)
class Mean:
    """The averaged updates of a round.

    Args:
      delta:   (P,) mean change of θ; 0 where nobody held an entry.
      aligned: further vectors (P,), averaged alike.
      extras:  small tensors, each averaged over the sites that sent it.
      buffers: batch-norm statistics, averaged over all sites (counters: the largest).
      holders: (P,) the total weight of the sites that held each entry; 0-d where all sites hold
               all entries and count alike for each.
    """

    delta: Tensor
    aligned: Tensors
    extras: Tensors
    buffers: Tensors
    holders: Tensor

    @property
    def covered(self) -> Tensor:
        """(P,) or 0-d bool, the entries that somebody held."""
        return self.holders > 0


@dataclass(frozen=True, eq=False)
class Weighed:
    """An update, and how much it counts.

    Args:
      update:  what a site sent.
      weight:  how much it counts.
      entries: (P_s,) positions in θ of the entries it holds; None for all of θ. The update's
               vectors hold these entries only.
      entry_weights: (P_s,) the weight of each of these entries, where they differ.
    """

    update: Update
    weight: float
    entries: Tensor | None = None
    entry_weights: Tensor | None = None

    @property
    def everywhere(self) -> bool:
        """Whether it counts for all of θ alike."""
        return self.entries is None and self.entry_weights is None


@dataclass
class RunningMean:
    """Folds updates into their weighted mean; memory does not grow with their number.

    Args:
      size:       P, the number of entries of θ.
      total:      weight of all updates.
      vectors:    (P,) weighted sums, by name.
      everywhere: weight of the updates that count alike for all of θ.
      cover:      (P,) weight of the others, by entry.
    """

    size: int
    total: float = 0.0
    vectors: Tensors = field(default_factory=dict)
    everywhere: float = 0.0
    cover: Tensor | None = None
    extras: Tensors = field(default_factory=dict)
    extras_total: dict[str, float] = field(default_factory=dict)
    buffers: Tensors = field(default_factory=dict)

    def add(self, weighed: Weighed) -> None:
        """Add one update."""
        update, weight = weighed.update, weighed.weight
        entries, entry_weights = weighed.entries, weighed.entry_weights
        delta = update.delta
        self.total += weight
        alpha = weight if entry_weights is None else 1.0
        if weighed.everywhere:
            self.everywhere += weight  # one number: a vector would be one more to write and read
        else:
            if self.cover is None:
                self.cover = delta.new_zeros(self.size)
            each = torch.ones_like(delta) if entry_weights is None else entry_weights
            _add(self.cover, each, alpha, entries)
        for name, vector in {"delta": delta, **update.aligned}.items():
            if name not in self.vectors:
                self.vectors[name] = delta.new_zeros(self.size)
            values = vector if entry_weights is None else entry_weights * vector
            _add(self.vectors[name], values, alpha, entries)
        for name, value in update.extras.items():
            known = self.extras.get(name, torch.zeros_like(value))
            if known.shape != value.shape:
                raise PotluckError(
                    f'site "{update.site}" sends "{name}" of shape {tuple(value.shape)}, another '
                    f"site of shape {tuple(known.shape)}: the method averages what has a row for "
                    "each label, so that all sites need the same labels. Use another method, or "
                    "the same labels everywhere (private sites know their own only)."
                )
            self.extras[name] = known + weight * value
            self.extras_total[name] = self.extras_total.get(name, 0.0) + weight
        self._blend(update.buffers, weight / self.total)

    def _blend(self, buffers: Tensors, share: float) -> None:
        """Move the mean of the buffers towards one more site's; counters keep the largest."""
        known = {name: self.buffers.get(name, value) for name, value in buffers.items()}
        floats = [name for name, value in buffers.items() if value.is_floating_point()]
        self.buffers = {
            name: value if value.is_floating_point() else torch.maximum(known[name], value)
            for name, value in buffers.items()
        }
        if floats:
            # In this form a buffer that all sites share (an input scale) stays exactly the same.
            before, new = [known[name] for name in floats], [buffers[name] for name in floats]
            self.buffers.update(zip(floats, torch._foreach_lerp(before, new, share), strict=True))

    def mean(self) -> Mean:
        """The mean of what was added."""
        assert self.vectors, "a round without updates has no mean"
        holders = self.vectors["delta"].new_tensor(self.everywhere)
        if self.cover is not None:
            holders = self.cover + holders
        divisor = torch.where(holders > 0, holders, torch.ones_like(holders))
        vectors = {name: vector / divisor for name, vector in self.vectors.items()}
        return Mean(
            delta=vectors.pop("delta"),
            aligned=vectors,
            extras={name: value / self.extras_total[name] for name, value in self.extras.items()},
            buffers=self.buffers,
            holders=holders,
        )


def _add(target: Tensor, values: Tensor, weight: float, entries: Tensor | None) -> None:
    if entries is None:
        target.add_(values, alpha=weight)
    else:
        target.index_add_(0, entries, values, alpha=weight)
