"""`fedmatch`: labels at the server, two sets of parameters (Jeong et al., ICLR 2021).

    θ = σ + ψ: the server trains σ on its labelled samples, the sites train ψ on unlabelled ones
    server   λ_s CE(f_θ(x), y), moving σ
    site     C = {i : max_k η_k(x_i) ≥ τ}, helpers h = 1 … H: other sites' models
             ŷ_i = the class with most votes of the model and the helpers
             loss = λ_i mean_C Σ_h KL(η_h(x_i) ‖ η(x_i)) / H + λ_a mean_C CE(f(strong(x_i)), ŷ_i)
                  + λ_L1 ‖ψ‖₁ + λ_L2 ‖σ − ψ‖², moving ψ

A site's helpers are the sites whose models answer most alike to one fixed noise image; they are
chosen anew every `refresh` rounds. Since a site holds σ fixed, its change of θ is its change of ψ,
and the mean of the sites' θ is σ plus the mean of their ψ. The server keeps one model per site.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.messages import Tensors
from potluck.methods.augmented import Augment
from potluck.methods.likelihood import Likelihood
from potluck.methods.method import Arrival, AtServer, Here, Method, Plan, SiteData, Step
from potluck.methods.target_labels import check_server_labels
from potluck.methods.views import check_views, seen, view_draws
from potluck.models.network import Network, infer_batched

# The share of σ with which ψ starts.
PSI_START = 0.2


@dataclass(frozen=True)
class FedMatch(Method):
    """Inter-client consistency with disjoint parameters.

    Args:
      tau:       least confidence of a sample that is trained on.
      helpers:   how many other models a site gets.
      refresh:   after how many rounds they are chosen anew.
      lambda_i:  weight of the agreement with the helpers.
      lambda_a:  weight of the voted pseudo-labels.
      lambda_l1: weight of ‖ψ‖₁.
      lambda_l2: weight of ‖σ − ψ‖².
      lambda_s:  weight of the server's cross-entropy.
      strong:    the strong view.
    """

    tau: float = 0.75
    helpers: int = 2
    refresh: int = 10
    lambda_i: float = 0.01
    lambda_a: float = 0.01
    lambda_l1: float = 1e-5
    lambda_l2: float = 10.0
    lambda_s: float = 10.0
    strong: Augment = "randaugment"

    def check(self, federation: Federation) -> None:
        """The server needs labels; the strong view needs images."""
        check_views({"strong": self.strong}, federation)
        check_server_labels("fedmatch", federation)
        for name in ("helpers", "refresh"):
            if getattr(self, name) < 1:
                raise PotluckError(f"method.{name} is {getattr(self, name)}; it must be above 0.")

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """σ, and what the helpers say about every sample."""
        model, site, shared = here.model, here.site, here.shared
        theta, buffers = model.received
        answers = [
            infer_batched(model.network, helper, buffers, site.inputs).softmax(1)
            for name, helper in sorted(shared.items())
            if name.startswith("helper")
        ]
        tensors = {"sigma": theta - shared["psi"]}
        if answers:
            tensors["answers"] = torch.stack(answers, 1)
        return Plan(torch.arange(len(site), device=site.inputs.device), tensors)

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """The random numbers of the strong view."""
        return view_draws({"strong": self.strong}, site.inputs, batches, generator)

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Agreement with the helpers, voted pseudo-labels, and the two norms."""
        model, site, plan, batch = step.model, step.site, step.plan, step.batch
        log_eta = model(seen("none", site.inputs[batch.index], {}, "")).log_softmax(1)
        confidence, votes = log_eta.detach().exp().max(1)
        trusted = (confidence >= self.tau).to(log_eta.dtype)
        trusted = trusted / trusted.sum().clamp_min(1)
        votes = _one_hot(votes, log_eta.shape[1])
        sigma = plan.tensors["sigma"]
        psi = model.theta - sigma
        loss = self.lambda_l1 * psi.abs().sum() + self.lambda_l2 * ((sigma - psi) ** 2).sum()
        if "answers" in plan.tensors:
            answers = plan.tensors["answers"][batch.index]  # (B, H, K)
            apart = kl_div(log_eta.unsqueeze(1), answers, reduction="none").sum(2).mean(1)
            loss = loss + self.lambda_i * (trusted * apart).sum()
            votes = votes + _one_hot(answers.argmax(2), log_eta.shape[1]).sum(1)
        strong = seen(self.strong, site.inputs[batch.index], batch.draws, "strong")
        wrong = cross_entropy(model(strong), votes.argmax(1), reduction="none")
        return loss + self.lambda_a * (trusted * wrong).sum(), step.state

    def report(self, here: Here, plan: Plan) -> Tensors:
        """The change of ψ, for its mean with the sites' own weights."""
        return {"psi": here.model.theta - here.model.received[0]}

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """ψ = 0.2 σ with σ + ψ the initial model; the noise image."""
        theta, _ = network.initial()
        device = federation.sites[0].inputs.device
        shape = federation.sites[0].inputs.shape[1:]
        noise = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))
        return {
            "psi": theta.to(device) * (PSI_START / (1 + PSI_START)),
            "noise": noise.to(device),
            "rounds": torch.zeros(()),
        }

    def share(self, server: Tensors, site: str) -> Tensors:
        """ψ and the models of the sites that answer most alike."""
        mine = server.get(f"answer/{site}")
        if mine is None:
            return {"psi": server["psi"]}
        others = [
            (float((answer - mine).norm()), name.removeprefix("answer/"))
            for name, answer in server.items()
            if name.startswith("answer/") and name != f"answer/{site}"
        ]
        nearest = [name for _, name in sorted(others)[: self.helpers]]
        models = {f"helper-{i}": server[f"model/{name}"] for i, name in enumerate(nearest)}
        return {"psi": server["psi"], **models}

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """The site's model and its answer to the noise, when helpers are chosen anew."""
        if int(server["rounds"]) % self.refresh:
            return server
        site, buffers = arrival.update.site, arrival.update.buffers
        answer = infer_batched(arrival.network, arrival.theta, buffers, server["noise"]).softmax(1)
        return server | {f"model/{site}": arrival.theta, f"answer/{site}": answer[0]}

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """ψ moves by the mean of the sites' changes."""
        return server | {"psi": server["psi"] + extras["psi"], "rounds": server["rounds"] + 1}

    def at_server(self) -> AtServer:
        """The server's labelled samples move σ."""
        return AtServer(_Weighted(weight=self.lambda_s))


@dataclass(frozen=True)
class _Weighted(Likelihood):
    """The likelihood times a constant."""

    weight: float = 1.0

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """See `Likelihood.loss`."""
        loss, state = super().loss(step)
        return self.weight * loss, state


def _one_hot(classes: Tensor, count: int) -> Tensor:
    # Not torch's: it looks at the values, which a batched step must not.
    return (classes.unsqueeze(-1) == torch.arange(count, device=classes.device)).int()
