"""FedUL whose class proportions are rough: they are refined while the model learns.

Declared proportions are often estimates. At the start of each round after a warm-up, a site takes
the received model's η as given and estimates the proportions of each of its sets m anew: those
that explain the set's samples best, with what was declared as prior knowledge,

    Π[m] = argmax_p  t Σ_k Π⁰[m, k] log p_k + Σ_{i in m} log Σ_k p_k η_k(x_i) / π_k.

This is the maximum a posteriori under a Dirichlet prior: the declared Π⁰ counts like t labelled
samples of each set (`trust`). The problem is concave, and expectation maximisation solves it:

    q_i      ∝ Π[m_i] / π ⊙ η(x_i)
    Π[m, k]  = (t Π⁰[m, k] + Σ_{i in m} q_ik) / (t + n_m).

With t = ∞ this is FedUL; with t = 0 the declared proportions matter in the warm-up alone. Refined
proportions stay at the site, like the declared ones.

It helps where classes are easy to tell apart and proportions are further off than the sampling
error of a set; where the declared ones are exact, or a poor model would decide, it can only harm.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.methods.fedul import FedUL
from potluck.methods.method import Here, Plan

# Steps of expectation maximisation; each costs one multiplication per sample and class.
STEPS = 50


@dataclass(frozen=True)
class RefinedFedUL(FedUL):
    """FedUL with proportions that follow the model.

    Args:
      augment:      as in `FedUL`.
      surrogate:    as in `FedUL`.
      target_prior: as in `FedUL`.
      warmup:       rounds with the declared proportions before the model is believed.
      trust:        t, the labelled samples of each set that its declared proportions are worth.
    """

    warmup: int = 10
    trust: float = 5.0

    def check(self, federation: Federation) -> None:
        """As `FedUL`, with options that make sense."""
        super().check(federation)
        if self.warmup < 1:
            raise PotluckError(
                f"method.warmup is {self.warmup}; a model that has seen nothing cannot refine "
                "anything: set it to at least 1."
            )
        if not self.trust >= 0:
            raise PotluckError(f"method.trust is {self.trust}; it must be at least 0.")

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """Refine the proportions, then train with them."""
        model, site = here.model, here.site
        plan = super().plan(here, generator)
        declared = priors = site.log_proportions.exp()
        if model.round >= self.warmup:
            ratios = torch.softmax(model.reference(site.inputs), 1)
            if self.target_prior == "declared":
                ratios = ratios / site.prior
            priors = refined(declared, site.symbols, ratios, self.trust)
            plan = replace(plan, tensors=self.transition(site, priors.log()))
        metrics = {"moved": float(_distance(priors, declared))}
        if site.truth is not None:
            truth = _proportions(site.symbols, site.truth, like=declared)
            metrics["declared_error"] = float(_distance(declared, truth))
            metrics["prior_error"] = float(_distance(priors, truth))
        return replace(plan, metrics=metrics)


def refined(declared: Tensor, sets: Tensor, ratios: Tensor, trust: float) -> Tensor:
    """The class proportions that best explain each set's samples and what was declared.

    Args:
      declared: (M, K) declared proportions Π⁰.
      sets:     (N,) set of each sample.
      ratios:   (N, K) η(x) / π: how much likelier each class is for a sample than for anyone.
      trust:    t, how many samples the declared proportions count for.

    Returns:
      (M, K) proportions; rows sum to 1. A set without samples keeps what was declared.
    """
    # From the middle, since a 0 stays 0 for ever: a class that one set is said to lack may turn
    # up in it, one that all sets of the site lack may not.
    present = (declared.sum(0) > 0).to(declared.dtype)
    priors = (present / present.sum()).expand_as(declared)
    for _ in range(STEPS):
        joint = priors[sets] * ratios
        beliefs = joint / joint.sum(1, keepdim=True)
        counts = (trust * declared).index_add(0, sets, beliefs)
        total = counts.sum(1, keepdim=True)
        priors = torch.where(total > 0, counts / total, declared)
    return priors


def _proportions(sets: Tensor, classes: Tensor, like: Tensor) -> Tensor:
    """(M, K) proportions of the classes in each set; nan in a set without samples."""
    ones = torch.ones(len(classes), dtype=like.dtype, device=like.device)
    counts = torch.zeros_like(like).index_put((sets, classes), ones, accumulate=True)
    return counts / counts.sum(1, keepdim=True)


def _distance(priors: Tensor, others: Tensor) -> Tensor:
    """Mean total variation between the proportions (M, K) of sets, but for rows that are nan."""
    return (priors - others).abs().sum(1).nanmean() / 2
