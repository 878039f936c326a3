"""`fedcorr`: correcting noisy labels in three stages (Xu et al., CVPR 2022).

    1  pre_rounds       L = CE(f(x̃), ỹ) + β μ̂ ‖θ − θ_received‖ on mixup samples, γ ~ Beta(α, α).
                        Each site reports the local intrinsic dimension (LID) of its softmax
                        outputs; a mixture of two Gaussians over the sites' cumulative LIDs tells
                        which are noisy. A noisy site fits two Gaussians to its samples' losses
                        under the global model: μ̂ is the share of the component of large losses.
                        Of its μ̂ · n samples of largest loss, it relabels the first
                        `relabel_share` where the global model is surer than `confidence`.
    2  finetune_rounds  CE at the sites with μ̂ ≤ `clean` alone; the others sit out, then relabel
                        every sample of which the global model is surer than `confidence`.
    3  then             CE at all sites.

FedCorr knows single labels. Of a candidate set it gets one at random, which it may then correct
to any class; with uniform candidates all sites are equally noisy, and its split into clean and
noisy sites has little to find. Where no site is clean, all take part in stage 2.

Differences from the authors' code: per-sample losses are cross-entropies of the scores, not of
their softmax; the norm in the proximal term is smooth at 0 instead of left out in the first step;
in stage 1 all sites of a round start from the same model. The server learns each site's LID and
noise level.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from potluck.data.augment import draw_mixup, mixup
from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses.dimension import local_intrinsic_dimension
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.candidate_targets import announce_unlabelled, check_shares, labelled
from potluck.methods.method import Arrival, Here, Plan, SiteData, Step
from potluck.methods.single_labels import label_metrics, picked, unpicked
from potluck.models.network import Network, infer_batched


@dataclass(frozen=True)
class FedCorr(Augmented):
    """Find noisy sites and samples, correct them, train on.

    Args:
      pre_rounds:      rounds of stage 1.
      finetune_rounds: rounds of stage 2.
      beta:            β, weight of the proximal term of a wholly noisy site.
      alpha:           α of the mixup in stage 1.
      neighbours:      neighbours that a LID is estimated from.
      relabel_share:   share of a noisy site's supposedly wrong labels that a round may correct.
      confidence:      how sure the global model must be to correct a label.
      clean:           largest noise level of a site that takes part in stage 2.
    """

    pre_rounds: int = 5
    finetune_rounds: int = 97
    beta: float = 5.0
    alpha: float = 1.0
    neighbours: int = 20
    relabel_share: float = 0.5
    confidence: float = 0.5
    clean: float = 0.1

    def check(self, federation: Federation) -> None:
        """Known options."""
        super().check(federation)
        check_shares(relabel_share=self.relabel_share, confidence=self.confidence, clean=self.clean)
        for name in ("pre_rounds", "finetune_rounds", "neighbours"):
            if getattr(self, name) < 1:
                raise PotluckError(f"method.{name} is {getattr(self, name)}; it is at least 1.")
        if self.beta < 0 or not self.alpha > 0:
            raise PotluckError("method.beta must be at least 0 and method.alpha above 0.")
        announce_unlabelled(federation)

    def stage(self, round_number: int) -> int:
        """1, 2 or 3, by the number of a round from 0."""
        return 1 + (round_number >= self.pre_rounds) + (round_number >= self._third)

    @property
    def _third(self) -> int:
        return self.pre_rounds + self.finetune_rounds

    def start(self, site: SiteData) -> Tensors:
        """No labels picked, nothing known of the noise, no stage seen."""
        device = site.inputs.device
        return {
            "labels": unpicked(site),
            "noise": torch.zeros((), device=device),
            "stage": torch.zeros((), dtype=torch.int64, device=device),
        }

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """Correct labels with the global model; sit out stage 2 unless clean."""
        model, site, shared, state = here.model, here.site, here.shared, here.state
        stage, pool = self.stage(model.round), labelled(site).nonzero().flatten()
        labels, noise = picked(site, state["labels"], generator), state["noise"]
        if stage == 1:
            noise = torch.zeros_like(noise)
        metrics = {"unlabelled": float(len(site) - len(pool))}
        if stage == 1 and shared["noisy"] and len(pool):
            scores = model.reference(site.inputs[pool])
            losses = cross_entropy(scores, labels[pool], reduction="none")
            wrong = _upper(losses.cpu().double().numpy(), generator)
            noise = noise + float(wrong.mean())
            worst = losses.argsort(descending=True)[: int(wrong.sum() * self.relabel_share)]
            labels = self._corrected(labels, scores[worst], pool[worst])
        elif stage == 3 and state["stage"] < 3 and noise > self.clean:
            labels = self._corrected(labels, model.reference(site.inputs[pool]), pool)
        metrics |= {"noise": float(noise), **label_metrics(site, labels, pool)}
        return Plan(
            pool=pool[:0] if stage == 2 and not shared["clean"] else pool,
            tensors={
                "labels": labels,
                "noise": noise,
                "stage": torch.full_like(state["stage"], stage),
            },
            metrics=metrics,
        )

    def _corrected(self, labels: Tensor, scores: Tensor, where: Tensor) -> Tensor:
        """The labels, with the model's guess at some samples where it is sure of it."""
        sure, guess = scores.softmax(1).max(1)
        new = torch.where(sure > self.confidence, guess, labels[where])
        return labels.index_copy(0, where, new)

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """Mixing shares, which are 1 (no mixing) after stage 1, and partners."""
        draws = super().draw(site, plan, batches, generator)
        shares = torch.ones(len(batches))
        if plan.tensors["stage"] == 1:
            shares = draw_mixup(generator, (len(batches),), self.alpha)
        device = site.inputs.device
        return [
            {
                **drawn,
                "share": share.to(device),
                "partner": torch.randperm(len(batch), generator=generator).to(device),
            }
            for drawn, share, batch in zip(draws, shares, batches, strict=True)
        ]

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Cross-entropy of mixed samples, and in stage 1 the adaptive proximal term."""
        model, plan, batch = step.model, step.plan, step.batch
        share, partner = batch.draws["share"], batch.draws["partner"]
        inputs, labels = self.inputs(step), plan.tensors["labels"][batch.index]
        logits = model(mixup(inputs, inputs[partner], share))
        loss = mixup(cross_entropy(logits, labels), cross_entropy(logits, labels[partner]), share)
        weight = self.beta * plan.tensors["noise"] * (plan.tensors["stage"] == 1)
        # The small number makes the norm smooth at 0, where every round starts.
        distance = ((model.theta - model.received[0]).square().sum() + 1e-12).sqrt()
        return loss + weight * distance, {name: plan.tensors[name] for name in step.state}

    def report(self, here: Here, plan: Plan) -> Tensors:
        """In stage 1, the site's LID and its noise level."""
        if plan.tensors["stage"] != 1:
            return {}
        model, site = here.model, here.site
        scores = infer_batched(model.network, model.theta, model.buffers, site.inputs)
        dimension = torch.zeros_like(plan.tensors["noise"])
        if len(site) > 1:
            dimension = local_intrinsic_dimension(scores.softmax(1), self.neighbours).mean()
        return {"lid": dimension, "noise": plan.tensors["noise"]}

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """For each site: no LID yet, no noise, not noisy."""
        zero = torch.zeros((), device=federation.sites[0].inputs.device)
        return {
            f"{what}/{site.name}": zero
            for what in ("lid", "noise", "noisy")
            for site in federation.sites
        }

    def share(self, server: Tensors, site: str) -> Tensors:
        """Whether the site is among the noisy ones, and whether it takes part in stage 2."""
        noise = {name: value for name, value in server.items() if name.startswith("noise/")}
        clean = {name: value <= self.clean for name, value in noise.items()}
        takes_part = clean[f"noise/{site}"] | ~torch.stack(list(clean.values())).any()
        return {"noisy": server[f"noisy/{site}"], "clean": takes_part}

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """Add up a site's LIDs, and note its noise level."""
        extras, site = arrival.update.extras, arrival.update.site
        if "lid" not in extras:
            return server
        lid, noise = f"lid/{site}", f"noise/{site}"
        return {**server, lid: server[lid] + extras["lid"], noise: extras["noise"]}

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """Tell noisy sites from clean ones by their LIDs."""
        names = [name.removeprefix("lid/") for name in server if name.startswith("lid/")]
        lids = np.array([float(server[f"lid/{name}"]) for name in names])
        if "lid" not in extras or len(names) < 2:
            return server
        flags = _upper(lids, torch.Generator().manual_seed(0))
        one = torch.ones_like(server[f"noisy/{names[0]}"])
        found = {f"noisy/{name}": one * flag for name, flag in zip(names, flags, strict=True)}
        return server | found


def _upper(values: NDArray[np.float64], generator: torch.Generator) -> NDArray[np.bool_]:
    """Which values belong to the upper one of two Gaussians; none where all are equal."""
    from sklearn.mixture import GaussianMixture  # here, because it is slow to import

    if len(values) < 2 or values.max() - values.min() < 1e-9:
        return np.zeros(len(values), dtype=bool)
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    mixture = GaussianMixture(2, random_state=seed).fit(values[:, None])
    return mixture.predict(values[:, None]) == int(mixture.means_.argmax())
