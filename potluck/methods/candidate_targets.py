"""`candidate-targets`: train on soft targets over each sample's candidate classes.

    loss = − mean_i Σ_k q_ik log softmax(f(x_i))_k

The targets q_i live on the classes S_i that the label allows and stay at the site. They start
uniform on S_i; after each visit of sample i,

    rule "uniform"      q_i stays as it is: FedAvg on normalised candidates, the baseline of FedPLL
    rule "renormalise"  q_i ∝ softmax(f(x_i)) on S_i: PRODEN (Lv et al. 2020)
    rule "average"      q_i ← φ q_i + (1 − φ) onehot(argmax_{k ∈ S_i} f_k(x_i)): the moving average
                        of PiCO (Wang et al. 2022) without its contrastive part; φ goes from
                        `momentum` to `final_momentum` in the first `decay_rounds` rounds

Each step trains on the targets from before it, as PRODEN's code does. A sample whose label allows
every class alike (all classes are candidates) says nothing: it is left out and counted in the
history as `unlabelled`. Exact labels are candidate sets of one class, so a site may mix both. With
one site that holds all data this is ordinary, centralised partial-label learning.
"""

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.losses import log_posterior, soft_cross_entropy
from potluck.losses.beliefs import expected_accuracy, initial_beliefs, moving_average
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.method import AtServer, Here, Plan, SiteData, Step

Rule = Literal["uniform", "renormalise", "average"]


@dataclass(frozen=True)
class CandidateTargets(Augmented):
    """Cross-entropy against targets on the candidates.

    Args:
      rule:           how targets follow the model.
      momentum:       φ of rule "average" in the first round.
      final_momentum: φ after `decay_rounds` rounds.
      decay_rounds:   how many rounds φ takes from one to the other.
    """

    rule: Rule = "uniform"
    momentum: float = 0.95
    final_momentum: float = 0.8
    decay_rounds: int = 200

    def check(self, federation: Federation) -> None:
        """Known options; samples that say nothing are announced."""
        super().check(federation)
        if self.rule not in get_args(Rule):
            raise PotluckError(one_of("method.rule", self.rule, get_args(Rule)))
        check_shares(momentum=self.momentum, final_momentum=self.final_momentum)
        if self.decay_rounds < 1:
            raise PotluckError(f"method.decay_rounds is {self.decay_rounds}; it must be above 0.")
        announce_unlabelled(federation)

    def start(self, site: SiteData) -> Tensors:
        """Beliefs that are uniform on the candidates."""
        return {"beliefs": initial_beliefs(site.log_a)[site.symbols]}

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples whose label says something; and φ of this round."""
        site = here.site
        plan = labelled_plan(site, here.state["beliefs"])
        done = min(here.model.round / self.decay_rounds, 1.0)
        momentum = self.momentum + (self.final_momentum - self.momentum) * done
        plan.tensors["momentum"] = torch.tensor(momentum, device=site.inputs.device)
        return plan

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Cross-entropy against the targets, which then follow the model."""
        site, batch, state = step.site, step.batch, step.state
        logits = step.model(self.inputs(step))
        targets = state["beliefs"][batch.index]
        log_a = site.log_a[site.symbols[batch.index]]
        new = self._updated(targets, logits.detach(), log_a, step.plan.tensors["momentum"])
        beliefs = state["beliefs"].index_copy(0, batch.index, new)
        return soft_cross_entropy(logits, targets).mean(), {"beliefs": beliefs}

    def _updated(self, targets: Tensor, logits: Tensor, log_a: Tensor, momentum: Tensor) -> Tensor:
        if self.rule == "uniform":
            return targets
        if self.rule == "renormalise":
            return log_posterior(logits, log_a).exp()
        return moving_average(targets, logits, log_a, momentum)

    def at_server(self) -> AtServer:
        """A server that has data of its own trains on it like a site."""
        return AtServer(self)


def labelled(site: SiteData) -> Tensor:
    """(N,) bool: the samples whose label does not allow every class alike."""
    return (site.log_a != site.log_a[:, :1]).any(1)[site.symbols]


def labelled_plan(site: SiteData, beliefs: Tensor) -> Plan:
    """A plan to train on what is labelled, with the state of the beliefs for the history.

    Args:
      site:    the site's samples.
      beliefs: (N, K) what it believes about them before the round.
    """
    known = labelled(site)
    pool = known.nonzero().flatten()
    metrics = {"unlabelled": float(len(site) - len(pool))}
    if site.truth is not None and len(pool):
        accuracy = expected_accuracy(beliefs[pool], site.truth[pool])
        metrics["pseudo_label_accuracy"] = float(accuracy)
    return Plan(pool=pool, metrics=metrics)


def announce_unlabelled(federation: Federation) -> None:
    """Warn about samples that these methods leave out since every class is a candidate."""
    for site in federation.sites:
        view = site.view.own()
        silent = (view.codebook == view.codebook[:, :1]).all(1)[site.symbols.cpu()]
        if (count := int(silent.sum())) > 0:
            warnings.warn(
                f'site "{site.name}": {count} of {len(site)} samples have every class as a '
                "candidate; they are treated as unlabelled, and this method leaves them out.",
                stacklevel=3,
            )


def check_shares(**options: float) -> None:
    """Refuse options that must lie in [0, 1] and do not."""
    for name, value in options.items():
        if not 0 <= value <= 1:
            raise PotluckError(f"method.{name} is {value}; it must be from 0 to 1.")
