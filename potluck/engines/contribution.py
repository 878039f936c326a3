"""How much of a round's average update comes from each site, as the server sees it.

With u_s the update of a site times its weights, W_p the total weight of the sites that hold entry
p of θ, and the average Δ_p = Σ_s u_s,p / W_p,

    contribution_s = Σ_p u_s,p Δ_p / W_p / ‖Δ‖²      these sum to 1 over the sites
    agreement_s    = cos(u_s, Δ), over the entries that the site holds

A site that pulls against the others has a negative contribution. Neither number says whether the
common direction is a good one: that is what the test set is for.

Updates are folded into a mean one at a time and not kept, so that memory does not grow with the
number of sites. What is kept of each is a sketch: random signs, then sums over every `WIDTH`-th
entry; the signs of `BLOCK` successive rows of WIDTH entries are those of the first or all their
opposite, so that most of the sum is one product of matrices. Scalar products of sketches estimate
those of the vectors with a relative error of about 1 / √WIDTH, and are exact for models of up to
WIDTH parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from potluck.streams import stream

WIDTH = 8191  # a prime, so that no layer's columns fall into the same sums

BLOCK = 4

_DIGITS = 6  # of the numbers in the history


@dataclass(frozen=True, eq=False)
class Part:
    """What is kept of one update until the round's average is known.

    Args:
      weight:  how much the site counts.
      entries: (P_s,) positions in θ of what the site holds; None for all of θ.
      norm:    0-d, the length of u_s.
      sketch:  (WIDTH,) the sketch of u_s.
    """

    weight: float
    entries: Tensor | None
    norm: Tensor
    sketch: Tensor


def part(
    delta: Tensor, weight: float, entry_weights: Tensor | None, entries: Tensor | None, size: int
) -> Part:
    """What to keep of an update.

    Args:
      delta:         (P_s,) the site's update.
      weight:        how much the site counts.
      entry_weights: (P_s,) how much each entry counts, where they differ.
      entries:       (P_s,) positions in θ of what the site holds; None for all of θ.
      size:          P, the number of entries of θ.
    """
    own = delta if entry_weights is None else delta * entry_weights
    whole = own if entries is None else own.new_zeros(size).index_copy(0, entries, own)
    scale = weight if entry_weights is None else 1.0  # of the results: shorter than the vector
    return Part(weight, entries, scale * own.norm(), scale * sketch(whole))


def contributions(
    parts: Mapping[str, Part], average: Tensor, holders: Tensor
) -> dict[str, dict[str, float]]:
    """What each site was of a round's average update.

    Args:
      parts:   what was kept of the updates, by site.
      average: (P,) the round's average update Δ; 0 where nobody holds an entry.
      holders: (P,) or 0-d, the total weight W of the sites that hold each entry.

    Returns:
      for each site its `weight` (as a share of all sites'), `contribution` and `agreement`.
    """
    tiny = torch.finfo(average.dtype).tiny
    kept = list(parts.values())
    sketches = torch.stack([part.sketch for part in kept])
    whole = average.norm()
    lengths = torch.stack(
        [
            part.norm * (whole if part.entries is None else average[part.entries].norm())
            for part in kept
        ]
    )
    shares = sketches @ sketch(average / holders.clamp_min(tiny)) / average.dot(average)
    cosines = sketches @ sketch(average) / lengths
    total = sum(part.weight for part in kept)
    # A round in which nobody moved has no direction to agree with: 0 / 0 becomes 0.
    numbers = torch.stack([shares, cosines.clamp(-1, 1)], 1).nan_to_num(0.0, 0.0, 0.0).tolist()
    return {
        name: {
            "weight": round(part.weight / total, _DIGITS),
            "contribution": round(share, _DIGITS),
            "agreement": round(cosine, _DIGITS),
        }
        for (name, part), (share, cosine) in zip(parts.items(), numbers, strict=True)
    }


def sketch(vector: Tensor) -> Tensor:
    """(P,) → (WIDTH,): signed sums whose scalar products estimate those of the vectors."""
    blocks = -(-len(vector) // (WIDTH * BLOCK))
    whole = len(vector) // (WIDTH * BLOCK)
    rows, columns = _signs(blocks, vector.device, vector.dtype)
    ends = vector.new_zeros(BLOCK * WIDTH)
    ends[: len(vector) - whole * BLOCK * WIDTH] = vector[whole * BLOCK * WIDTH :]
    sums = columns[-1] * (rows[-1] @ ends.view(BLOCK, WIDTH)).squeeze(0)
    if whole:
        full = vector[: whole * BLOCK * WIDTH].view(whole, BLOCK, WIDTH)
        sums = sums + (torch.bmm(rows[:whole], full).squeeze(1) * columns[:whole]).sum(0)
    return sums


@lru_cache(maxsize=4)
def _signs(blocks: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(B, 1, BLOCK) and (B, WIDTH), −1 or 1: the same in every round and on every machine."""
    generator = stream(0, "sketch")
    rows, columns = (
        2 * torch.randint(0, 2, shape, generator=generator, dtype=torch.int8) - 1
        for shape in ((blocks, 1, BLOCK), (blocks, WIDTH))
    )
    return rows.to(device, dtype), columns.to(device, dtype)
