"""FedUL whose class proportions are rough: they are refined while the model learns.

Declared proportions are often estimates. At the start of each round after a warm-up, a site takes
one step of expectation maximisation for its own sets: the model's posterior about each sample,
given its set, averaged over the set and shrunk to what was declared,

    q_i      ∝ Π[m_i] / π ⊙ η(x_i)
    Π[m, k]  = (t Π⁰[m, k] + Σ_{i in m} q_ik) / (t + n_m),

the maximum a posteriori under a Dirichlet prior: the declared Π⁰ counts like t labelled samples
of each set (`trust`). With t = ∞ this is FedUL; with t = 0 the declared proportions are only where
it starts. Refined proportions stay at the site, like the declared ones.

It helps where classes are easy to tell apart and proportions are further off than the sampling
error of a set; where the declared ones are exact, or a poor model would decide, it can only harm.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses import log_posterior
from potluck.messages import Tensors
from potluck.methods.fedul import FedUL
from potluck.methods.method import Batch, LocalModel, Plan, SiteData


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
    trust: float = 10.0

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

    def start(self, site: SiteData) -> Tensors:
        """The declared proportions."""
        return {"log_priors": site.log_proportions}

    def plan(
        self,
        model: LocalModel,
        site: SiteData,
        shared: Tensors,
        state: Tensors,
        generator: torch.Generator,
    ) -> Plan:
        """Refine the proportions, then train with them."""
        log_priors = state["log_priors"]
        if model.round >= self.warmup:
            log_a = self.transition(site, log_priors)["log_a"][site.symbols]
            beliefs = log_posterior(model.reference(site.inputs), log_a).exp()
            log_priors = refined(site, beliefs, self.trust).log()
        return Plan(
            pool=torch.arange(len(site), device=site.inputs.device),
            tensors={**self.transition(site, log_priors), "log_priors": log_priors},
            metrics=_errors(site, log_priors),
        )

    def loss(
        self,
        model: LocalModel,
        site: SiteData,
        plan: Plan,
        batch: Batch,
        shared: Tensors,
        state: Tensors,
    ) -> tuple[Tensor, Tensors]:
        """As `FedUL`; the refined proportions are kept for the next round."""
        value, _ = super().loss(model, site, plan, batch, shared, state)
        return value, {"log_priors": plan.tensors["log_priors"]}


def refined(site: SiteData, beliefs: Tensor, trust: float) -> Tensor:
    """Class proportions of each set after counting what is believed about its samples.

    Args:
      site:    for the sets of the samples and their declared proportions.
      beliefs: (N, K) class posteriors of the samples, given their sets.
      trust:   how many samples the declared proportions count for.

    Returns:
      (M, K) proportions; rows sum to 1.
    """
    counts = trust * site.log_proportions.exp()
    counts = counts.index_add(0, site.symbols, beliefs)
    return counts / counts.sum(1, keepdim=True)


def _errors(site: SiteData, log_priors: Tensor) -> dict[str, float]:
    """Mean total variation between proportions and truth, declared and as they are now."""
    if site.truth is None:
        return {}
    truth = torch.zeros_like(log_priors)
    truth.index_put_((site.symbols, site.truth), torch.ones_like(truth[0, 0]), accumulate=True)
    truth = truth / truth.sum(1, keepdim=True)
    return {
        name: float((values.exp() - truth).abs().sum(1).mean() / 2)
        for name, values in (
            ("declared_error", site.log_proportions),
            ("prior_error", log_priors),
        )
    }
