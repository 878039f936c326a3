"""How much of a round's average update comes from each site, as the server sees it.

With u_s the update of a site times its weights, W_p the total weight of the sites that hold entry
p of θ, and the average Δ_p = Σ_s u_s,p / W_p,

    contribution_s = Σ_p u_s,p Δ_p / W_p / ‖Δ‖²      these sum to 1 over the sites
    agreement_s    = cos(u_s, Δ), over the entries that the site holds

A site that pulls against the others has a negative contribution. Neither number says whether the
common direction is a good one: that is what the test set is for.

Updates are folded into a mean one at a time. Those of small models and cohorts are kept until the
mean is known, up to `KEPT` numbers; of others a sketch, so that memory does not grow with the
number of sites: random signs, then sums over every `WIDTH`-th entry. Scalar products of sketches
estimate those of the vectors with a relative error of about 1 / √WIDTH.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.linalg import vector_norm

from potluck.streams import stream

WIDTH = 8191  # a prime, so that no layer's columns fall into the same sums

KEPT = 16_000_000  # numbers, 64 MB

Keep = Callable[[Tensor], Tensor]
"""What is kept of a vector like θ, so that scalar products of these are those of the vectors."""

_DIGITS = 6  # of the numbers in the history


@dataclass(frozen=True, eq=False)
class Part:
    """What is kept of one update until the round's average is known.

    Args:
      weight:  how much the site counts.
      entries: (P_s,) positions in θ of what the site holds; None for all of θ.
      norm:    0-d, the length of u_s / scale.
      kept:    what is kept of u_s / scale.
      scale:   of both.
    """

    weight: float
    entries: Tensor | None
    norm: Tensor
    kept: Tensor
    scale: float


def keeper(size: int, sites: int) -> Keep:
    """How to keep the updates of some sites.

    Args:
      size:  P, the number of entries of θ.
      sites: how many there are.
    """
    return _all if size * sites <= KEPT else sketch


def part(
    delta: Tensor,
    weight: float,
    entry_weights: Tensor | None,
    entries: Tensor | None,
    size: int,
    keep: Keep,
) -> Part:
    """What to keep of an update.

    Args:
      delta:         (P_s,) the site's update.
      weight:        how much the site counts.
      entry_weights: (P_s,) how much each entry counts, where they differ.
      entries:       (P_s,) positions in θ of what the site holds; None for all of θ.
      size:          P, the number of entries of θ.
      keep:          what is kept of a vector.
    """
    own = delta if entry_weights is None else delta * entry_weights
    whole = own if entries is None else own.new_zeros(size).index_copy(0, entries, own)
    scale = weight if entry_weights is None else 1.0  # of the results: shorter than the vector
    return Part(weight, entries, vector_norm(own), keep(whole), scale)


def contributions(
    parts: Mapping[str, Part], average: Tensor, holders: Tensor, keep: Keep
) -> dict[str, dict[str, float]]:
    """What each site was of a round's average update.

    Args:
      parts:   what was kept of the updates, by site.
      average: (P,) the round's average update Δ; 0 where nobody holds an entry.
      holders: (P,) or 0-d, the total weight W of the sites that hold each entry.
      keep:    what was kept of vectors.

    Returns:
      for each site its `weight` (as a share of all sites'), `contribution` and `agreement`.
    """
    tiny = torch.finfo(average.dtype).tiny
    kept = list(parts.values())

    def along(direction: Tensor) -> Tensor:
        own = keep(direction)
        return torch.stack([part.kept.dot(own) for part in kept])

    scales = average.new_tensor([part.scale for part in kept])
    whole = vector_norm(average)
    lengths = torch.stack(
        [
            part.norm * (whole if part.entries is None else vector_norm(average[part.entries]))
            for part in kept
        ]
    )
    products = along(average)
    weighted = holders.clamp_min(tiny)
    # W is the same for all entries where all sites hold all of them.
    shares = along(average / weighted) if holders.ndim else products / weighted
    total = sum(part.weight for part in kept)
    # A round in which nobody moved has no direction to agree with: 0 / 0 becomes 0.
    found = torch.stack([scales * shares / whole**2, (products / lengths).clamp(-1, 1)], 1)
    numbers = found.nan_to_num(0.0, 0.0, 0.0).tolist()
    return {
        name: {
            "weight": round(part.weight / total, _DIGITS),
            "contribution": round(share, _DIGITS),
            "agreement": round(cosine, _DIGITS),
        }
        for (name, part), (share, cosine) in zip(parts.items(), numbers, strict=True)
    }


def _all(vector: Tensor) -> Tensor:
    return vector


def sketch(vector: Tensor) -> Tensor:
    """(P,) → (WIDTH,): signed sums whose scalar products estimate those of the vectors."""
    signed = vector * _signs(len(vector), vector.device, vector.dtype)
    whole = len(vector) // WIDTH * WIDTH
    sums = signed[:whole].view(-1, WIDTH).sum(0)
    sums[: len(vector) - whole] += signed[whole:]
    return sums


@lru_cache(maxsize=4)
def _signs(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(P,) −1 or 1: the same in every round and on every machine."""
    drawn = torch.randint(0, 2, (size,), generator=stream(0, "sketch"), dtype=torch.int8)
    return (2 * drawn - 1).to(device, dtype)
