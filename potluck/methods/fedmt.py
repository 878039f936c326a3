"""`fedmt`: labels of different spaces at different sites (FedMT; Zhang et al. 2024).

    server   trains on its own few samples with labels y of the target classes
    site     ŷ_i, S_fix: confident pseudo-labels, as in SemiFL; empty: sit the round out
             M_jk = P(ỹ = j | y = k), the correspondence of its labels ỹ and the target classes:
               known                the declared one                                FedMT (T)
               estimated            #(ỹ = j, ŷ = k) / #(ŷ = k) over S_fix           FedMT (E)
               estimated-averaged   the sites' mean of these, from the last round
               learnable            softmax over j of free parameters m_jk, trained with θ
               learnable-averaged   the same, starting from the sites' mean each round
             loss = mean_{i ∈ S_fix} −log (M η(weak(x_i)))_ỹi + λ2 (L_fix + λ1 L_mix)

The two averaged ways send M to the server, which averages it over the sites that label in the
same space; otherwise M never leaves its site. A class without any pseudo-label gets a uniform
column. The learnable m start at 0 (the paper: at random).

Ours, pseudo_labels = "restricted": ŷ_i is the argmax of the posterior q ∝ M[ỹ_i] ⊙ η, which
takes the site's own label into account, and S_fix asks for the confidence of q. An estimated M
still counts the model's own confident pseudo-labels, so that it cannot confirm itself.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.labels import LabelView
from potluck.losses import log_posterior, view_nll
from potluck.messages import SiteState, Tensors
from potluck.methods import spaces
from potluck.methods.method import Arrival, Here, Plan, SiteData, Step
from potluck.methods.semifl import SemiFL
from potluck.methods.target_labels import certain
from potluck.methods.views import seen
from potluck.models.network import Network

Correspondence = Literal[
    "known", "estimated", "estimated-averaged", "learnable", "learnable-averaged"
]
PseudoLabels = Literal["unrestricted", "restricted"]

# Estimated probabilities of 0 are 0 only by chance.
SMALLEST = 1e-12


@dataclass(frozen=True)
class FedMT(SemiFL):
    """Projected likelihood on confident samples, regularised by SemiFL's losses.

    Args:
      tau:            least confidence τ of a pseudo-label that is trained on.
      lambda1:        weight λ1 of the mixup loss relative to the fix loss.
      alpha:          both parameters a of mixup's Beta distribution.
      weak:           the weak view, for pseudo-labels, projection, mixup and the server's samples.
      strong:         the strong view.
      lambda2:        weight λ2 of the fix and mixup losses; 0 leaves them out.
      correspondence: where M comes from.
      pseudo_labels:  by the model alone, or restricted to what the site's own label allows.
    """

    lambda2: float = 1 / 16
    correspondence: Correspondence = "estimated"
    pseudo_labels: PseudoLabels = "unrestricted"

    def check(self, federation: Federation) -> None:
        """As SemiFL; and a correspondence that is known must have been declared."""
        for option, known in (("correspondence", Correspondence), ("pseudo_labels", PseudoLabels)):
            if getattr(self, option) not in get_args(known):
                raise PotluckError(
                    one_of(f"method.{option}", getattr(self, option), get_args(known))
                )
        super().check(federation)
        for site in federation.sites:
            codebook = site.view.codebook
            if self.correspondence == "known":
                if len(codebook) > 1 and (codebook == codebook[0]).all():
                    raise PotluckError(
                        f'site "{site.name}": method.correspondence is "known", but its view says '
                        "nothing about what its labels mean; give the view a mapping or a matrix, "
                        'or set method.correspondence = "estimated".'
                    )
            elif not certain(SiteData.of(site)) and ((codebook.sum(0) - 1).abs() > 1e-6).any():
                raise PotluckError(
                    f'site "{site.name}": its {site.view.kind} view has no probabilities of '
                    "symbols given the class that FedMT could estimate (columns that sum to 1, "
                    'as in coarse and noisy views); set method.correspondence = "known".'
                )

    def start(self, site: SiteData) -> Tensors:
        """The site's correspondence, as far as it knows it before the first round."""
        return {"correspondence": torch.full_like(site.log_a, 1 / len(site.log_a))}

    def personal(self, site: SiteData, network: Network) -> Tensors:
        """The free parameters of a learnable correspondence."""
        if not self.correspondence.startswith("learnable") or certain(site):
            return {}
        return {"correspondence": torch.zeros_like(site.log_a)}

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """Pseudo-labels and the correspondence with which the round starts."""
        site = here.site
        log_eta = self.weak_scores(here, generator)
        counted = self.trusted(site, log_eta)
        tensors, log_m = self._correspondence(here, counted)
        plan = counted
        if self.pseudo_labels == "restricted" or certain(site):
            plan = self.trusted(site, log_posterior(log_eta, log_m[site.symbols]))
        metrics = _quality(site, log_m, log_eta) | plan.metrics
        if "estimate" in tensors:
            found = counted.tensors["pseudo_labels"][counted.pool].unique()
            metrics["empty_columns"] = float(log_eta.shape[1] - len(found))
        return Plan(plan.pool, plan.tensors | tensors, metrics)

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Projected likelihood + λ2 (L_fix + λ1 L_mix); the state keeps M."""
        site, batch = step.site, step.batch
        log_m, log_b = _used(step)
        weak = seen(self.weak, site.inputs[batch.index], batch.draws, "weak")
        loss = view_nll(step.model(weak), log_m[site.symbols[batch.index]], log_b).mean()
        if self.lambda2:
            loss = loss + self.lambda2 * self.consistency(step)
        return loss, step.state | {"correspondence": log_m.exp()}

    def report(self, here: Here, plan: Plan) -> Tensors:
        """The averaged ways send M: the estimate, or what was learned."""
        site = here.site
        if not self.correspondence.endswith("averaged") or certain(site):
            return {}
        own = plan.tensors.get("estimate", here.state["correspondence"])
        return spaces.reported(site, {"correspondence": own})

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """Which label space the site reported in."""
        return spaces.noted(server, arrival)

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The mean correspondence of each label space."""
        return spaces.averaged(server, extras)

    def share(self, server: Tensors, site: str) -> Tensors:
        """The mean correspondence of the site's label space."""
        return spaces.shared_with(server, site)

    def _correspondence(self, here: Here, counted: Plan) -> tuple[Tensors, Tensor]:
        """What the steps need to know about M, and (J, K) log M at the start of the round."""
        model, site = here.model, here.site
        if self.correspondence == "known" or certain(site):
            return {"log_m": site.log_a, "log_b": site.log_b}, site.log_a
        mean = here.shared.get("correspondence")
        if self.correspondence.startswith("learnable"):
            start = {} if mean is None else {"correspondence": _log(mean)}
            offset = spaces.offsets(model, start)["correspondence"]
            return {"offset": offset}, (model.personal["correspondence"] + offset).log_softmax(0)
        pool, pseudo = counted.pool, counted.tensors["pseudo_labels"]
        estimate = estimate_correspondence(site.symbols[pool], pseudo[pool], *site.log_a.shape).to(
            site.log_a.dtype
        )
        log_m = _log(estimate if mean is None else mean)
        return {"log_m": log_m, "log_b": torch.zeros_like(site.log_b), "estimate": estimate}, log_m


def estimate_correspondence(
    symbols: Tensor, classes: Tensor, num_symbols: int, num_classes: int
) -> Tensor:
    """M̂_jk = #(ỹ = j, y = k) / #(y = k); a uniform column for a class that does not occur.

    Args:
      symbols:     (N,) observed symbols ỹ.
      classes:     (N,) classes or pseudo-labels y of the same samples.
      num_symbols: J.
      num_classes: K.

    Returns:
      (J, K) float32 with columns that sum to 1.
    """
    cells = torch.bincount(symbols * num_classes + classes, minlength=num_symbols * num_classes)
    counts = cells.view(num_symbols, num_classes).float()
    totals = counts.sum(0)
    return torch.where(totals > 0, counts / totals.clamp_min(1), 1 / num_symbols)


def estimated_view(view: LabelView, state: SiteState) -> LabelView:
    """A site's view with the correspondence that FedMT recorded there.

    `Trained.predict` with it predicts in the site's own label space.

    Args:
      view:  the site's declared view, for the names.
      state: what the site kept from its last round (`Trained.state.sites[name]`).
    """
    matrix = state.method["correspondence"].double().cpu()
    return replace(view, codebook=matrix, normaliser=torch.ones_like(view.normaliser))


def _used(step: Step) -> tuple[Tensor, Tensor]:
    """(J, K) log M and (K,) log b of a step."""
    known = step.plan.tensors
    if "log_m" in known:
        return known["log_m"], known["log_b"]
    free = step.model.personal["correspondence"] + known["offset"]
    return free.log_softmax(0), torch.zeros_like(step.site.log_b)


def _quality(site: SiteData, log_m: Tensor, log_eta: Tensor) -> dict[str, float]:
    """How well M, and the model projected by it, fit what is known at the site."""
    projected = (log_eta.exp() @ log_m.exp().T).argmax(1)
    metrics = {"symbol_accuracy": float((projected == site.symbols).double().mean())}
    if site.truth is not None:  # in a simulation the declared correspondence is the true one
        metrics["correspondence_error"] = float((log_m.exp() - site.log_a.exp()).norm())
    return metrics


def _log(matrix: Tensor) -> Tensor:
    return matrix.clamp_min(SMALLEST).log()
