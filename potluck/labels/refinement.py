"""What a site declared about its labels, corrected where a model's predictions contradict it.

A view says how symbols come about: P(symbol | class), column by column, for coarse and noisy
labels; P(class | bag), row by row, for bags. Each of these distributions may be wrong, or unknown
(all symbols alike). Given the class posteriors η of a model, the distributions that explain the
symbols best, with what was declared as prior knowledge worth t samples each, are

    argmax_A  Σ_i log (A[z_i] · η_i) / (b · η_i)  +  t Σ declared · log A.

For fixed η this is concave, and expectation maximisation solves it:

    q_i  ∝ A[z_i] ⊙ η_i
    column k:  A[j, k] = (t A⁰[j, k] + Σ_{i: z_i = j} q_ik) / (t + Σ_i q_ik)
    row m:     Π[m, k] = (t Π⁰[m, k] + Σ_{i in m} q_ik) / (t + n_m)

A declaration stands until the evidence against it is strong: a distribution over d outcomes is
replaced only if the gain in log-likelihood of its n samples exceeds ½ (d − 1) log n, Schwarz's
price of its parameters. So noise does not move what was declared rightly. The mean gain per
sample, over all distributions, is the site's *surprise*: how badly its declaration fits. One number
is tested besides, since it may be off by little in every column: the *rate* at which classes get
their most likely symbol (one minus the noise rate, say), in standard errors from the declared one.
And for bags, small ones in particular, the samples that are *misplaced*: how many would have to be
of another class than the model says, for each bag to have the declared proportions. Each of them is
a mistake of the model, or of the declaration.

Symbols that say for certain what the class is, sets of candidates and missing labels have nothing
to refine.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Nobody's declaration is beyond slips: so often a label may be what it should never be.
SLIP = 0.01
# Steps of expectation maximisation; each costs one multiplication per sample and class.
STEPS = 20


@dataclass(frozen=True, eq=False)
class Refined:
    """A site's view after comparison with a model.

    Args:
      log_a:    (Z, K) log codebook.
      log_b:    (K,) log-normaliser.
      refuted:  (D,) bool, which of the declared distributions were replaced; empty where there is
                nothing to refine.
      surprise: () mean gain in log-likelihood per sample by replacing all of them.
      rate_gap: () by how many standard errors labels are the expected ones more often than
                declared; 0 where no rate is declared.
      misplaced: () share of the samples that would have to be of another class than predicted, for
                the bags to have the declared proportions; 0 where none are declared.
    """

    log_a: Tensor
    log_b: Tensor
    refuted: Tensor
    surprise: Tensor
    rate_gap: Tensor
    misplaced: Tensor

    @classmethod
    def none(cls, log_a: Tensor, log_b: Tensor) -> "Refined":
        """The view as it was declared, with nothing to refine."""
        nothing = torch.zeros(0, dtype=torch.bool, device=log_a.device)
        zero = log_a.new_zeros(())
        return cls(log_a, log_b, nothing, zero, zero, zero)


def refined(
    log_a: Tensor, log_b: Tensor, prior: Tensor, symbols: Tensor, log_eta: Tensor, trust: float
) -> Refined:
    """Compare a declared view with a model's predictions, and correct it where they refute it.

    Args:
      log_a:   (Z, K) declared log codebook.
      log_b:   (K,) declared log-normaliser.
      prior:   (K,) class prior of the target population.
      symbols: (N,) observed symbols.
      log_eta: (N, K) log class posteriors of a model.
      trust:   t, how many samples each declared distribution counts for.
    """
    book, held, eta = log_a.exp(), log_b.exp(), log_eta.exp()
    if uncertain_columns(book, held):
        found, refuted, gain, gap = _columns(book, symbols, eta, trust)
        log_found, log_held, misplaced = found.log(), log_b, torch.zeros_like(gain)
    elif uncertain_rows(book, held):
        found, refuted, gain, misplaced = _rows(book, prior, symbols, eta, trust)
        log_found, log_held, gap = found.log(), found.sum(0).log(), torch.zeros_like(gain)
    else:
        return Refined.none(log_a, log_b)
    return Refined(log_found, log_held, refuted, gain / len(symbols), gap, misplaced)


def uncertain_columns(book: Tensor, held: Tensor) -> bool:
    """Whether a codebook (Z, K) holds probabilities of symbols given the class, not all certain."""
    columns = torch.allclose(book.sum(0), torch.ones_like(held), atol=1e-4)
    return columns and bool((held == 1).all()) and not _certain(book) and len(book) > 1


def uncertain_rows(book: Tensor, held: Tensor) -> bool:
    """Whether a codebook (Z, K) holds class proportions of bags."""
    bags = torch.allclose(book.sum(0), held, rtol=1e-3, atol=1e-6)
    return bags and not bool((held == 1).all()) and not _certain(book) and len(book) > 1


def _certain(book: Tensor) -> bool:
    return bool(((book > 0).sum(1) == 1).all())


def _columns(
    book: Tensor, symbols: Tensor, eta: Tensor, trust: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(Z, K) P(symbol | class), (K,) which columns were replaced, () the gain of all, the gap."""
    declared = (1 - SLIP) * book + SLIP / len(book)
    estimate = declared
    for _ in range(STEPS):
        counts = _counts(estimate[symbols] * eta, symbols, len(book))
        estimate = trust * declared + counts
        estimate = estimate / estimate.sum(0)
    gain = (counts * (estimate / declared).log()).sum(0)
    refuted = gain > _price(len(book), counts.sum(0))
    return torch.where(refuted, estimate, book), refuted, gain.sum(), _rate_gap(counts, declared)


def _rate_gap(counts: Tensor, declared: Tensor) -> Tensor:
    """() standard errors by which classes get their most likely symbol too often."""
    rate, likely = declared.max(0)
    samples = counts.sum(0)
    surplus = (counts.gather(0, likely.unsqueeze(0)).squeeze(0) - rate * samples).sum()
    return surplus / (rate * (1 - rate) * samples).sum().sqrt().clamp_min(1e-6)


def _rows(
    book: Tensor, prior: Tensor, symbols: Tensor, eta: Tensor, trust: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(M, K) codebook of bags, (M,) which rows were replaced, () the gain, () share misplaced."""
    joint = book * prior
    shares = joint.sum(1, keepdim=True)
    given = joint / shares
    # A class that one bag is said to lack may turn up in it; one that all bags lack may not.
    possible = (given.sum(0) > 0).to(given)
    declared = (1 - SLIP) * given + SLIP * possible / possible.sum()
    estimate, ratios = declared, eta / prior
    for _ in range(STEPS):
        counts = _counts(estimate[symbols] * ratios, symbols, len(book))
        estimate = trust * declared + counts
        estimate = estimate / estimate.sum(1, keepdim=True)
    safe = declared.where(declared > 0, 1.0)
    gain = (counts * (estimate.where(declared > 0, 1.0) / safe).log()).sum(1)
    refuted = gain > _price(int(possible.sum()), counts.sum(1))
    priors = torch.where(refuted.unsqueeze(1), estimate, given)
    return shares * priors / prior, refuted, gain.sum(), _misplaced(given, symbols, eta)


def _misplaced(given: Tensor, symbols: Tensor, eta: Tensor) -> Tensor:
    """() share of samples to move between classes, for bags to have their proportions (M, K)."""
    classes = torch.nn.functional.one_hot(eta.argmax(1), eta.shape[1]).to(eta)
    predicted = _counts(classes, symbols, len(given))
    wanted = predicted.sum(1, keepdim=True) * given
    return (predicted - wanted).abs().sum() / (2 * len(symbols))


def _counts(joint: Tensor, symbols: Tensor, number: int) -> Tensor:
    """(Z, K) expected number of samples with each symbol and class, from unnormalised beliefs."""
    beliefs = joint / joint.sum(1, keepdim=True)
    return joint.new_zeros(number, joint.shape[1]).index_add(0, symbols, beliefs)


def _price(outcomes: int, samples: Tensor) -> Tensor:
    return 0.5 * (outcomes - 1) * samples.clamp_min(1).log()
