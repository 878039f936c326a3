"""FedPL: pseudo-labels for unlabelled sets, a baseline of FedUL.

Lu et al. 2022 (appendix D.2), after SemiFL (Diao et al. 2022). For some rounds every sample is
taken to be of its set's commonest class, argmax_k Π[m, k]. From then on the received model labels
the samples at the start of each round; those it is sure of (confidence ≥ τ) are trained on, and
mixed with those it is not:

    L   = CE(f(x⁺), ŷ⁺) + λ [ μ CE(f(x̃), ŷ⁺) + (1 − μ) CE(f(x̃), ŷ⁻) ]
    x̃  = μ x⁺ + (1 − μ) x⁻,   μ ~ Beta(a, a), one for each batch

A site that is sure of nothing sits the round out. The public code mixes the scores f(x⁺) and
f(x⁻) instead of the inputs (`mix`), and splits sure from unsure within each batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from potluck.data.augment import draw_mixup, mixup
from potluck.data.augment.augmentation import as_unit
from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.messages import Tensors
from potluck.methods.bagged import Bagged
from potluck.methods.method import Here, Plan, SiteData, Step

Mix = Literal["inputs", "scores"]


@dataclass(frozen=True)
class FedPL(Bagged):
    """Federated pseudo-labelling.

    Args:
      augment:    how the samples that are trained on are varied.
      warmup:     rounds in which a set's commonest class labels all of it.
      tau:        τ, the confidence from which a pseudo-label counts as sure.
      mix_weight: λ, weight of the mixed samples.
      beta:       a, both parameters of the Beta distribution of the shares.
      mix:        what is blended; "scores" as in the public code.
    """

    warmup: int = 5
    tau: float = 0.4
    mix_weight: float = 0.3
    beta: float = 0.75
    mix: Mix = "inputs"

    def check(self, federation: Federation) -> None:
        """As every method for sets, with options that make sense."""
        super().check(federation)
        if self.warmup < 1:
            raise PotluckError(
                f"method.warmup is {self.warmup}; the first pseudo-labels come from the sets, so "
                "set it to at least 1."
            )
        if not 0 <= self.tau <= 1:
            raise PotluckError(f"method.tau is {self.tau}; a confidence is from 0 to 1.")
        if not self.mix_weight >= 0 or not self.beta > 0:
            raise PotluckError(
                f"method.mix_weight is {self.mix_weight} and method.beta is {self.beta}; they "
                "must be at least 0 and above 0."
            )
        if self.mix not in get_args(Mix):
            raise PotluckError(one_of("method.mix", self.mix, get_args(Mix)))

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """Label the samples and see which labels are sure."""
        model, site = here.model, here.site
        if model.round < self.warmup:
            labels = site.log_proportions.argmax(1)[site.symbols]
            sure = torch.ones_like(labels, dtype=torch.bool)
        else:
            confidence, labels = torch.softmax(model.reference(site.inputs), 1).max(1)
            sure = confidence >= self.tau
        mixing = self.mix_weight if not sure.all() else 0.0
        metrics = {"sure": float(sure.float().mean())}
        if site.truth is not None and sure.any():
            metrics["pseudo_accuracy"] = float((labels == site.truth)[sure].float().mean())
        return Plan(
            pool=sure.nonzero().flatten(),
            tensors={
                "labels": labels,
                "unsure": (~sure).nonzero().flatten(),
                "mix_weight": torch.tensor(mixing, device=labels.device),
            },
            metrics=metrics,
        )

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """Besides the augmentation: the unsure partner of each sample, and the shares."""
        varied = super().draw(site, plan, batches, generator)
        unsure = plan.tensors["unsure"] if len(plan.tensors["unsure"]) else plan.pool
        widest = max(len(batch) for batch in batches)
        chosen = torch.randint(len(unsure), (len(batches), widest), generator=generator)
        partners = unsure[chosen.to(unsure.device)]
        shares = draw_mixup(generator, (len(batches),), self.beta).to(unsure.device)
        return [
            {**varied[step], "partner": partners[step, : len(batch)], "share": shares[step]}
            for step, batch in enumerate(batches)
        ]

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Cross-entropy on sure pseudo-labels, and on blends of sure and unsure samples."""
        model, plan, batch = step.model, step.plan, step.batch
        partner, share = batch.draws["partner"], batch.draws["share"]
        label, other = plan.tensors["labels"][batch.index], plan.tensors["labels"][partner]
        inputs, unsure = self.inputs(step), as_unit(step.site.inputs[partner])
        scores = model(inputs)
        if self.mix == "inputs":
            blended = model(mixup(inputs, unsure, share))
        else:
            blended = mixup(scores, model(unsure), share)
        mixed = share * cross_entropy(blended, label) + (1 - share) * cross_entropy(blended, other)
        return cross_entropy(scores, label) + plan.tensors["mix_weight"] * mixed, step.state
