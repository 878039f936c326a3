"""FedUL: a classifier from unlabelled sets whose class proportions are known.

Lu et al. 2022, Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing Clients.

A site learns to tell from which of its sets m a sample came. The model f still predicts classes;
a fixed layer turns these predictions η = softmax(f) into those of the sets, by the sets' class
proportions Π, their shares π̄ of the site's samples, and the target prior π:

    q_m(x) = π̄_m Σ_k Π[m, k] η_k(x) / π_k,   normalised over m
    loss   = mean_i −log q_{m_i}(x_i)

This is the likelihood of the `bags` view (a_m = π̄_m Π[m] / π, b = Σ_m a_m). By the paper's
theorem 4 its minimiser is that of supervised training, if f is flexible enough and Π has rank K.
The paper asks for that at every site; that the federation as a whole tells the classes apart is
enough, and is what `check` asks for. The paper's L1 penalty is `local.l1`.

The public code differs from the paper in two ways, which are options here: it applies softmax
twice (`surrogate`), and it leaves out π (`target_prior`).
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.losses import view_nll
from potluck.losses.double_softmax import double_softmax_nll
from potluck.messages import Tensors
from potluck.methods.bagged import Bagged
from potluck.methods.method import Here, Plan, SiteData, Step

Surrogate = Literal["likelihood", "double_softmax"]
TargetPrior = Literal["declared", "ignored"]


@dataclass(frozen=True)
class FedUL(Bagged):
    """Federation of unsupervised learning.

    Args:
      augment:      how training images are varied.
      surrogate:    the loss on the predicted sets; "double_softmax" as in the public code.
      target_prior: whether π counts; "ignored" as in the public code, exact for uniform π only.
    """

    surrogate: Surrogate = "likelihood"
    target_prior: TargetPrior = "declared"

    def check(self, federation: Federation) -> None:
        """The federation's sets together must tell all classes apart."""
        super().check(federation)
        if self.surrogate not in get_args(Surrogate):
            raise PotluckError(one_of("method.surrogate", self.surrogate, get_args(Surrogate)))
        if self.target_prior not in get_args(TargetPrior):
            raise PotluckError(
                one_of("method.target_prior", self.target_prior, get_args(TargetPrior))
            )
        found = federation.identifiability()
        if not found.complete:
            short = found.shortfalls()
            others = f" (and {len(short) - 3} more such sites)" if len(short) > 3 else ""
            raise PotluckError(
                f"{found.verdict()} {' '.join(short[:3])}{others} Add sets with other proportions "
                "of these classes at any site, or merge the classes."
            )

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples, and the layer from classes to sets."""
        site = here.site
        plan = super().plan(here, generator)
        return replace(plan, tensors=self.transition(site, site.log_proportions))

    def transition(self, site: SiteData, log_priors: Tensor) -> Tensors:
        """The codebook for given class proportions of the site's sets.

        Args:
          site:       for π̄ and π.
          log_priors: (M, K) log Π.

        Returns:
          log_a (M, K) and log_b (K,).
        """
        log_shares = torch.logsumexp(site.log_a + site.prior.log(), 1, keepdim=True)
        log_a = log_shares + log_priors
        if self.target_prior == "declared":
            log_a = log_a - site.prior.log()
        return {"log_a": log_a, "log_b": torch.logsumexp(log_a, 0)}

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """How badly the batch's sets are predicted."""
        plan, state = step.plan, step.state
        logits, symbols = step.model(self.inputs(step)), step.site.symbols[step.batch.index]
        log_a, log_b = plan.tensors["log_a"], plan.tensors["log_b"]
        if self.surrogate == "double_softmax":
            return double_softmax_nll(logits, symbols, log_a).mean(), state
        return view_nll(logits, log_a[symbols], log_b).mean(), state
