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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.linalg import vector_norm

from potluck.engines.rows import as_rows
from potluck.federated import Weighed
from potluck.streams import stream

WIDTH = 8191  # a prime, so that no layer's columns fall into the same sums

KEPT = 16_000_000  # numbers, 64 MB

Keep = Callable[[Tensor], Tensor]
"""(S, P) → (S, W): what is kept of vectors like θ; its scalar products are theirs."""

_DIGITS = 6  # of the numbers in the history


@dataclass(frozen=True, eq=False)
class Part:
    """What is kept of some updates until the round's average is known.

    Args:
      sites:   whose they are.
      weights: how much each of these sites counts.
      entries: (P_s,) positions in θ of what these sites hold; None for all of θ.
      norms:   (S,) the length of each u_s / scale.
      kept:    (S, W) what is kept of each u_s / scale.
      scales:  of both.
    """

    sites: Sequence[str]
    weights: Sequence[float]
    entries: Tensor | None
    norms: Tensor
    kept: Tensor
    scales: Sequence[float]


def keeper(size: int, sites: int) -> Keep:
    """How to keep the updates of some sites.

    Args:
      size:  P, the number of entries of θ.
      sites: how many there are.
    """
    return _all if size * sites <= KEPT else sketch


def part(alike: Sequence[Weighed], size: int, keep: Keep) -> Part:
    """What to keep of one update, or of several that count for all of θ alike.

    Args:
      alike: the updates.
      size:  P, the number of entries of θ.
      keep:  what is kept of vectors.
    """
    first = alike[0]
    own = as_rows([one.update.delta for one in alike])
    weights = [one.weight for one in alike]
    scales = weights  # of the results: shorter than the vectors
    if first.entry_weights is not None:
        own, scales = own * first.entry_weights, [1.0]
    whole = own
    if first.entries is not None:
        whole = own.new_zeros(1, size).index_copy(1, first.entries, own)
    sites = [one.update.site for one in alike]
    return Part(sites, weights, first.entries, vector_norm(own, dim=1), keep(whole), scales)


def contributions(
    parts: Sequence[Part], average: Tensor, holders: Tensor, keep: Keep
) -> dict[str, dict[str, float]]:
    """What each site was of a round's average update.

    Args:
      parts:   what was kept of the updates.
      average: (P,) the round's average update Δ; 0 where nobody holds an entry.
      holders: (P,) or 0-d, the total weight W of the sites that hold each entry.
      keep:    what was kept of vectors.

    Returns:
      for each site its `weight` (as a share of all sites'), `contribution` and `agreement`.
    """
    tiny = torch.finfo(average.dtype).tiny

    def along(direction: Tensor) -> Tensor:
        (own,) = keep(direction.unsqueeze(0))
        return torch.cat([part.kept @ own for part in parts])

    scales = average.new_tensor([scale for part in parts for scale in part.scales])
    whole = vector_norm(average)
    lengths = torch.cat(
        [
            part.norms * (whole if part.entries is None else vector_norm(average[part.entries]))
            for part in parts
        ]
    )
    products = along(average)
    weighted = holders.clamp_min(tiny)
    # W is the same for all entries where all sites hold all of them.
    shares = along(average / weighted) if holders.ndim else products / weighted
    # A round in which nobody moved has no direction to agree with: 0 / 0 becomes 0.
    found = torch.stack([scales * shares / whole**2, (products / lengths).clamp(-1, 1)], 1)
    numbers = found.nan_to_num(0.0, 0.0, 0.0).tolist()
    sites = [site for part in parts for site in part.sites]
    weights = [weight for part in parts for weight in part.weights]
    total = sum(weights)
    return {
        name: {
            "weight": round(weight / total, _DIGITS),
            "contribution": round(share, _DIGITS),
            "agreement": round(cosine, _DIGITS),
        }
        for name, weight, (share, cosine) in zip(sites, weights, numbers, strict=True)
    }


def _all(vectors: Tensor) -> Tensor:
    return vectors


def sketch(vectors: Tensor) -> Tensor:
    """(S, P) → (S, WIDTH): signed sums whose scalar products estimate those of the vectors."""
    count, size = vectors.shape
    signed = vectors * _signs(size, vectors.device, vectors.dtype)
    whole = size // WIDTH * WIDTH
    sums = signed[:, :whole].view(count, -1, WIDTH).sum(1)
    sums[:, : size - whole] += signed[:, whole:]
    return sums


@lru_cache(maxsize=4)
def _signs(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(P,) −1 or 1: the same in every round and on every machine."""
    drawn = torch.randint(0, 2, (size,), generator=stream(0, "sketch"), dtype=torch.int8)
    return (2 * drawn - 1).to(device, dtype)
