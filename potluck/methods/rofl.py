"""`rofl`: robust federated learning with noisy labels by class centroids (Yang et al. 2022).

    L = CE(f(x), ŷ) over small losses + λ_c(t) · mean ‖h(x) − c_ŷ‖² + λ_e · entropy(f(x))

h(x) are the encoder's features and c_k the global centroid of class k. In each round a site

    keeps     of each batch the 1 − τ(t) of smallest loss; τ(t) rises to `forget` in `ramp` rounds
    corrects  a label whose class is not that of the nearest centroid: it becomes the global
              model's guess, once `correct_after` rounds have passed
    reports   the mean feature of each class among its samples, by these labels

and the server averages the centroids, each weighted by its cosine with the last global one.
λ_c(t) rises to `centroid` in `ramp` rounds; a class without a centroid has no such term.

RoFL knows single labels: of a candidate set it gets one at random. Unlike in the public code,
whose features are detached, the centroid loss here has a gradient. The centroids that sites send
are class means of features: they tell the server more than a model update does.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, log_softmax, normalize, one_hot

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.candidate_targets import announce_unlabelled, check_shares, labelled
from potluck.methods.method import Arrival, Here, Plan, SiteData, Step
from potluck.methods.single_labels import label_metrics, picked, unpicked
from potluck.models.network import Network, features_batched


@dataclass(frozen=True)
class RoFL(Augmented):
    """Small losses, centroids and corrected labels.

    Args:
      forget:        share of each batch that is left out as probably wrong, once ramped up.
      ramp:          rounds in which `forget` and `centroid` reach their values.
      correct_after: rounds before labels are corrected.
      centroid:      λ_c, weight of the distance to the class's centroid.
      entropy:       λ_e, weight of the predictions' entropy.
    """

    forget: float = 0.2
    ramp: int = 10
    correct_after: int = 100
    centroid: float = 1.0
    entropy: float = 0.8

    def check(self, federation: Federation) -> None:
        """Known options; centroids need sites that know all classes."""
        super().check(federation)
        check_shares(forget=self.forget)
        if self.ramp < 1 or self.correct_after < 0 or min(self.centroid, self.entropy) < 0:
            raise PotluckError(
                "method.ramp must be at least 1, and method.correct_after, method.centroid and "
                "method.entropy at least 0."
            )
        for site in federation.sites:
            if site.view.private:
                raise PotluckError(
                    f'site "{site.name}" keeps its classes private, but RoFL exchanges a centroid '
                    "of every class; use another method."
                )
        announce_unlabelled(federation)

    def start(self, site: SiteData) -> Tensors:
        """No labels picked."""
        return {"labels": unpicked(site)}

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """Correct labels, and say how strict and how strong this round is."""
        model, site, shared, state = here.model, here.site, here.shared, here.state
        pool, given = labelled(site).nonzero().flatten(), picked(site, state["labels"], generator)
        labels = given
        if model.round >= self.correct_after and shared["known"].any():
            theta, buffers = model.received
            nearest = _nearest(features_batched(model.network, theta, buffers, site.inputs), shared)
            guess = model.reference(site.inputs).argmax(1)
            labels = torch.where(nearest == given, given, guess)
        ramped = min((model.round + 1) / self.ramp, 1.0)
        device = site.inputs.device
        return Plan(
            pool=pool,
            tensors={
                "given": given,
                "labels": labels,
                "keep": torch.tensor(1 - self.forget * ramped, device=device),
                "pull": torch.tensor(self.centroid * ramped, device=device),
            },
            metrics={
                "unlabelled": float(len(site) - len(pool)),
                **label_metrics(site, labels, pool),
            },
        )

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Cross-entropy of small losses, distance to centroids, entropy."""
        model, plan, shared = step.model, step.plan, step.shared
        features = model.features(self.inputs(step))
        logits = model.network.scores(model.theta, features)
        labels = plan.tensors["labels"][step.batch.index]
        errors = cross_entropy(logits, labels, reduction="none")
        rank = errors.detach().argsort().argsort()
        kept = (rank < plan.tensors["keep"] * len(labels)).to(errors.dtype)
        away = (features - shared["centroids"][labels]).square().mean(1)
        pulled = kept * shared["known"][labels]
        log_p = log_softmax(logits, -1)
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        loss = (
            (kept * errors).sum() / kept.sum()
            + plan.tensors["pull"] * (pulled * away).sum() / kept.sum()
            + self.entropy * entropy
        )
        return loss, {"labels": plan.tensors["given"]}

    def report(self, here: Here, plan: Plan) -> Tensors:
        """The mean feature of each class, and which classes there are."""
        model, site = here.model, here.site
        inputs, labels = site.inputs[plan.pool], plan.tensors["labels"][plan.pool]
        features = features_batched(model.network, model.theta, model.buffers, inputs)
        members = one_hot(labels, site.log_a.shape[1]).to(features.dtype)
        count = members.sum(0)
        return {
            "centroids": members.T @ features / count.clamp(min=1).unsqueeze(1),
            "present": (count > 0).to(features.dtype),
        }

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """No centroids yet."""
        shape = dict(zip(network.layout.names, network.layout.shapes, strict=True))["head.weight"]
        device = federation.sites[0].inputs.device
        zeros, none = torch.zeros(shape, device=device), torch.zeros(shape[0], device=device)
        return {"centroids": zeros, "known": none, "sum": zeros, "weight": none}

    def share(self, server: Tensors, site: str) -> Tensors:
        """The global centroids, and which classes have one."""
        return {"centroids": server["centroids"], "known": server["known"]}

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """Add a site's centroids, weighted by their likeness to the global ones."""
        sent, present = arrival.update.extras["centroids"], arrival.update.extras["present"]
        likeness = cosine_similarity(sent, server["centroids"], dim=1).clamp(min=0)
        weight = present * torch.where(server["known"] > 0, likeness, 1.0)
        return {
            **server,
            "sum": server["sum"] + weight.unsqueeze(1) * sent,
            "weight": server["weight"] + weight,
        }

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The new centroids; a class that nobody reported keeps its own."""
        weight, known = server["weight"], server["weight"] > 0
        mean = server["sum"] / torch.where(known, weight, 1.0).unsqueeze(1)
        return {
            "centroids": torch.where(known.unsqueeze(1), mean, server["centroids"]),
            "known": torch.maximum(server["known"], known.to(weight.dtype)),
            "sum": torch.zeros_like(server["sum"]),
            "weight": torch.zeros_like(weight),
        }


def _nearest(features: Tensor, shared: Tensors) -> Tensor:
    """(N,) the class whose centroid has the largest cosine with each sample's features."""
    cosines = normalize(features, dim=1) @ normalize(shared["centroids"], dim=1).T
    return cosines.masked_fill(shared["known"] == 0, float("-inf")).argmax(1)
