"""`tuning`: align the averaged model with the sites' models, on unlabelled data at the server.

Breitholtz, Listo Zec and Johansson 2025, Federated Learning with Heterogeneous and Private Label
Sets. Site k classifies among its own classes Y_k: h_k(y | x) ≈ p(y | x, y ∈ Y_k). A good central
model h is proportional to h_k on Y_k, for every k. After each average the server takes a few
epochs over its samples x_u on one of

    pairwise   Σ_k w_k Σ_{y ≠ y' ∈ Y_k} (h_k(y|x) h(y'|x) − h_k(y'|x) h(y|x))²          (5)
    mse        Σ_k w_k Σ_{y ∈ Y_k} (h_k(y|x) − h(y|x))²                                 (6)

with w_k = n_k / n. Sites train by the likelihood of their labels, and each row of the head is
averaged over its holders (Algorithm 1), so that private sites take part as they are: the server
knows their classes, the other sites do not.

The sites' models are frozen: their outputs on x_u are computed once, when they arrive. Where a
public site's model scores all classes (`softmax = "all"`), its outputs are renormalised over Y_k.
A view `exact` leaves Y_k open, so that such a site is compared in all classes (Appendix B).

A class that no site of the round holds has no part in the tuning: h is a softmax over the union
of the Y_k, and the head row of that class keeps its value. (Were it left in, (5) would fall merely
by moving probability to it; the paper's Appendix B.)
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.local import SGD, Adam, LocalTraining
from potluck.losses.pairwise import pairwise, probability_mse
from potluck.messages import Tensors
from potluck.methods.likelihood import Likelihood
from potluck.methods.method import Arrival, AtServer, Here, LocalModel, Method, Plan, Step
from potluck.models.network import HEAD, Network, infer_batched

Criterion = Literal["pairwise", "mse"]
Part = Literal["model", "head"]
Optimiser = Literal["adam", "sgd"]

CRITERIA = {"pairwise": pairwise, "mse": probability_mse}


@dataclass(frozen=True)
class Tuning(Likelihood):
    """Likelihood at the sites, then central tuning on the server's unlabelled samples.

    Args:
      augment:    how training images are varied at the sites.
      criterion:  "pairwise" (5) or "mse" (6).
      part:       what is tuned: the whole model, or its head alone.
      epochs:     passes over the server's samples in a round.
      lr:         learning rate of the tuning.
      optimiser:  "adam", or "sgd" as in the paper's figures 11 to 13.
      batch_size: samples per step.
    """

    criterion: Criterion = "pairwise"
    part: Part = "model"
    epochs: int = 3
    lr: float = 1e-3
    optimiser: Optimiser = "adam"
    batch_size: int = 64

    def check(self, federation: Federation) -> None:
        """Known options, samples at the server, and labels that name classes at the sites."""
        super().check(federation)
        for name, known in (("criterion", Criterion), ("part", Part), ("optimiser", Optimiser)):
            if getattr(self, name) not in get_args(known):
                raise PotluckError(one_of(f"method.{name}", getattr(self, name), get_args(known)))
        for name in ("epochs", "lr", "batch_size"):
            if not getattr(self, name) > 0:
                raise PotluckError(f"method.{name} is {getattr(self, name)}; it must be above 0.")
        if federation.server is None:
            raise PotluckError(
                "tuning needs samples at the server, which may be unlabelled, and there are none; "
                "give the server data (simulation.server or federation.server), or use the method "
                "likelihood, which averages only."
            )

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """The label set of each site, as its view declares it: (K,) 0 or 1."""
        device = federation.sites[0].inputs.device
        return {
            f"set.{site.name}": (site.view.codebook > 0).any(0).float().to(device)
            for site in federation.sites
        }

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """Keep what the site's model says about the server's samples, over the site's classes."""
        assert arrival.server is not None
        name, inputs = arrival.update.site, arrival.server.inputs
        held = server[f"set.{name}"]
        logits = infer_batched(arrival.network, arrival.theta, arrival.update.buffers, inputs)
        own = (logits + held[arrival.classes].log()).softmax(1)
        outputs = own.new_zeros(len(inputs), len(held)).index_copy(1, arrival.classes, own)
        arrived = {
            f"arrived.{name}": outputs,
            f"weight.{name}": outputs.new_tensor(float(arrival.update.samples)),
        }
        return server | arrived

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The sites of this round are the teachers; earlier ones are forgotten."""
        kept = {name: value for name, value in server.items() if name.startswith("set.")}
        sites = [name.removeprefix("weight.") for name in server if name.startswith("weight.")]
        weights = torch.stack([server[f"weight.{site}"] for site in sites])
        return kept | {
            "teachers": torch.stack([server[f"arrived.{site}"] for site in sites]),
            "held": torch.stack([server[f"set.{site}"] for site in sites]),
            "weights": weights / weights.sum(),
        }

    def at_server(self) -> AtServer:
        """Tune by the chosen criterion."""
        local = LocalTraining(
            lr=self.lr,
            optimiser=Adam() if self.optimiser == "adam" else SGD(),
            epochs=self.epochs,
            batch_size=self.batch_size,
        )
        return AtServer(_Alignment(self.criterion, self.part), local)


@dataclass(frozen=True)
class _Alignment(Method):
    """The server's training: `shared` has the teachers that `Tuning.conclude` gathered.

    teachers (S, N, K), held (S, K), weights (S,).
    """

    criterion: Criterion
    part: Part

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples, unless nobody has taught yet."""
        site = here.site
        count = len(site) if "teachers" in here.shared else 0
        return Plan(pool=torch.arange(count, device=site.inputs.device))

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """The criterion, over all teachers, mean over the batch."""
        model, site, batch, shared = step.model, step.site, step.batch, step.shared
        if self.part == "head":
            model = replace(model, theta=_encoder_at_rest(model))
        held = shared["held"].unsqueeze(1)
        taught = shared["held"].amax(0)
        student = (model(site.inputs[batch.index]) + taught.log()).softmax(1)
        losses = CRITERIA[self.criterion](shared["teachers"][:, batch.index], student, held)
        return shared["weights"] @ losses.mean(1), step.state


def _encoder_at_rest(model: LocalModel) -> Tensor:
    """θ, with gradients for the head alone."""
    parts = model.network.layout.unflatten(model.theta)
    return torch.cat(
        [(part if name in HEAD else part.detach()).flatten() for name, part in parts.items()]
    )
