"""`semifl`: labels at the server, unlabelled samples at the sites (Diao et al., NeurIPS 2022).

    site     ŷ_i = argmax_k η_k(weak(x_i))            once a round, by the received model
             S_fix = {i : max_k η_k(weak(x_i)) ≥ τ}     empty: sit the round out
             L_fix = CE(f(strong(x_i)), ŷ_i)            i ∈ S_fix
             x_mix = λ weak(x_i) + (1 − λ) weak(x_j)    j from all samples, λ ~ Beta(a, a)
             L_mix = λ CE(f(x_mix), ŷ_i) + (1 − λ) CE(f(x_mix), ŷ_j)
             loss  = L_fix + λ1 L_mix
    server   averages, then trains on its own labelled samples

The official code averages batch-norm statistics over all samples of the federation: set
batch_norm = "static". A site whose labels are certain (exact) uses them as its pseudo-labels.
The partners j are drawn anew for each step; the official code keeps one set for the round.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from potluck.data.augment import draw_mixup, mixup
from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses import log_posterior
from potluck.messages import Tensors
from potluck.methods.augmented import Augment
from potluck.methods.likelihood import Likelihood
from potluck.methods.method import AtServer, Here, Method, Plan, SiteData, Step
from potluck.methods.target_labels import certain, check_target_labels, exactly_labelled
from potluck.methods.views import check_views, seen, view_draws


@dataclass(frozen=True)
class SemiFL(Method):
    """Confident pseudo-labels with strong views and mixup.

    Args:
      tau:     least confidence τ of a pseudo-label that is trained on.
      lambda1: weight λ1 of the mixup loss.
      alpha:   both parameters a of mixup's Beta distribution.
      weak:    the weak view, for pseudo-labels, mixup and the server's own samples.
      strong:  the strong view.
    """

    tau: float = 0.95
    lambda1: float = 1.0
    alpha: float = 0.75
    weak: Augment = "weak"
    strong: Augment = "randaugment"

    def check(self, federation: Federation) -> None:
        """Somebody needs labels of the target classes; views need images."""
        if not 0 <= self.tau <= 1:
            raise PotluckError(f"method.tau is {self.tau}; a confidence is between 0 and 1.")
        if not self.alpha > 0:
            raise PotluckError(f"method.alpha is {self.alpha}; mixup needs it above 0.")
        check_views({"weak": self.weak, "strong": self.strong}, federation)
        check_target_labels("semifl", federation, exactly_labelled)

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """Pseudo-labels of the received model; train on the confident ones."""
        site = here.site
        log_eta = self.weak_scores(here, generator)
        if certain(site):
            log_eta = log_posterior(log_eta, site.log_a[site.symbols])
        return self.trusted(site, log_eta)

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """The random numbers of the views, each sample's partner and each step's share λ."""
        views = {"weak": self.weak, "strong": self.strong, "partner": self.weak}
        steps = view_draws(views, site.inputs, batches, generator)
        device = site.inputs.device
        widest = max(len(batch) for batch in batches)
        partners = torch.randint(len(site), (len(batches), widest), generator=generator).to(device)
        shares = draw_mixup(generator, (len(batches),), self.alpha).to(device)
        for step, batch in enumerate(batches):
            steps[step] |= {"partner": partners[step, : len(batch)], "share": shares[step]}
        return steps

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """L_fix + λ1 L_mix."""
        return self.consistency(step), step.state

    def at_server(self) -> AtServer:
        """The server trains on its own labelled samples, in their weak view."""
        return AtServer(Likelihood(augment=self.weak))

    def weak_scores(self, here: Here, generator: torch.Generator) -> Tensor:
        """(N, K) log class posteriors of the received model on one weak view of each sample."""
        site = here.site
        everything = [torch.arange(len(site))]
        (draws,) = view_draws({"weak": self.weak}, site.inputs, everything, generator)
        return here.model.reference(seen(self.weak, site.inputs, draws, "weak")).log_softmax(1)

    def trusted(self, site: SiteData, log_belief: Tensor) -> Plan:
        """A plan to train on the samples whose class is believed with confidence τ.

        Args:
          site:       the site.
          log_belief: (N, K) log-probabilities of the classes.
        """
        confidence, pseudo = log_belief.max(1)
        # A little slack, so that τ = 1 accepts what rounding left just below it.
        pool = (confidence >= math.log(max(self.tau, 1e-30)) - 1e-6).nonzero().flatten()
        metrics = {"confident": len(pool) / len(site)}
        if site.truth is not None and len(pool):
            hit = pseudo[pool] == site.truth[pool]
            metrics["pseudo_label_accuracy"] = float(hit.double().mean())
        return Plan(pool, {"pseudo_labels": pseudo}, metrics)

    def consistency(self, step: Step) -> Tensor:
        """L_fix + λ1 L_mix of a batch, as a scalar."""
        model, site, batch = step.model, step.site, step.batch
        draws, partner, share = batch.draws, batch.draws["partner"], batch.draws["share"]
        pseudo = step.plan.tensors["pseudo_labels"]
        strong = seen(self.strong, site.inputs[batch.index], draws, "strong")
        fix = cross_entropy(model(strong), pseudo[batch.index])
        first = seen(self.weak, site.inputs[batch.index], draws, "weak")
        second = seen(self.weak, site.inputs[partner], draws, "partner")
        mixed = model(mixup(first, second, share))
        mix = share * cross_entropy(mixed, pseudo[batch.index])
        mix = mix + (1 - share) * cross_entropy(mixed, pseudo[partner])
        return fix + self.lambda1 * mix
