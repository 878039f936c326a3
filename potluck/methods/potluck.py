"""`potluck`: one method for every kind of label.

At each site a label is a symbol z with class likelihoods a = A[z] and normaliser b. In a round,

    site     η_i  = softmax(f(x_i))                    by the received model, one pass
             A, b   the declared view, corrected where η refutes it      (labels/refinement.py)
             q_i  ∝ A[z_i] ⊙ η_i                       what the label and the model say together
             q̄_i ← μ q̄_i + (1 − μ) q_i                 beliefs, kept at the site; at first a / Σ a
             s_i  = [max q̄_i ≥ τ]                      the samples whose class the site is sure of,
                                                       those of each class counting for all of it

             ℓ    = mean_i −log (A[z_i] · η_i) / (b · η_i)        surprise at the symbols
             H    = mean_i Σ_k q̄_ik H(z | k)                       if the classes were known
             g    = [ℓ > H]                            whether the labels have more to say

             w    = what the labels are worth, compared with exact ones  (labels/information.py)
             c_i  = 1 / max(1, g w + (λ + λ') s_i)     no sample counts for more than one label

             loss = mean_i c_i [ −g log (a_i · η_i) / (b · η_i)   likelihood of what was observed
                               + λ s_i CE(f(strong(x_i)), q̄_i)    pseudo-labels
                               + λ' s_i CE(f(x̃_i), q̃_i) ]         mixup
             x̃ = γ x_i + (1−γ) x_j and q̃ alike, γ ~ Beta(α, α), j any sample of the site

             weight = n (w + (1 − w) λ mean_i s_i)
    server   averages with these weights; where nearly all weight has sites that lack classes, the
             model that is evaluated and kept is the received encoder with a head by least squares
             over all samples that sites are sure of (head_sums.py); sites go on from the average

A model that is less surprised by a site's symbols than one that knew all classes, ℓ ≤ H, has
learned their errors by heart. So labels are fitted only in rounds where ℓ > H: the discrepancy
principle (Morozov 1966), with the entropy of the view as the level of noise. H = 0 where the class
decides the label, and a site that declared nothing about its labels has no H.

Labels that are certain have q̄ = a, so that a pseudo-label repeats the likelihood; c makes up for
it, and with exact labels this is supervised training with mixup, a quarter of the loss.
Where a label says nothing, q̄ = q = η has no memory, and its argmax is the target, as in SemiFL;
candidates are disambiguated by q̄. A site whose samples say nothing yet (no label, not sure) sits
out. The server trains on its own samples in the same way where they have labels.

A step takes two forward passes, or three where a strong view is set; SemiFL takes two, FedMT three,
FedPLL-LAAR four. The server learns, besides the update, a site's weight (and with weights =
"information-per-class" how much it knows of each class); where head is not "averaged", a private
site also sends G and its rows S of `head_sums`, and so do others as long as the server solves.
Beliefs, corrected views and everything per sample stay at the site.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.data.augment import draw_mixup, mixup
from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.labels import LabelView
from potluck.labels.information import symbol_entropy, tells, worth
from potluck.labels.refinement import Refined, refined
from potluck.losses import log_posterior, soft_cross_entropy, view_nll
from potluck.losses.beliefs import expected_accuracy, initial_beliefs
from potluck.messages import Tensors
from potluck.methods import head_sums
from potluck.methods.augmented import Augment
from potluck.methods.method import Arrival, AtServer, Here, LocalModel, Method, Plan, SiteData, Step
from potluck.methods.views import check_views, seen, view_draws
from potluck.models.network import Layout, Network, features_batched

Thresholds = Literal["one", "class"]
Balance = Literal["class", "none"]
Weights = Literal["samples", "information", "information-per-class"]
Head = Literal["auto", "averaged", "solved"]
Stop = Literal["entropy", "never"]

SCALE = 3.0
"""From outputs of the least-squares head, about 0 or 1, to logits; that of `ridge-head`."""

# It is solved where more than this share of all weight has sites that lack classes. Elsewhere, sums
# over samples that sites are sure of leave out classes that only weaker labels tell about.
LACKING = 0.9
# Samples that a declaration is worth that says nothing.
UNKNOWN = 1.0
# A class's pseudo-labels count at most so many times.
MOST = 5.0
_SILENT = -1e4  # the score of a class that cannot occur; finite, since 0 · ∞ is no number


@dataclass(frozen=True)
class Potluck(Method):
    """View likelihood, posterior pseudo-labels, mixup; each part can be switched off.

    Args:
      pseudo:     λ, weight of the cross-entropy to pseudo-labels; 0 for none.
      mix:        λ', weight of mixup on pseudo-labels; 0 for none.
      tau:        τ, least certainty of a pseudo-label.
      thresholds: one τ for all, or lower for classes that are believed less surely than others.
      balance:    whether the sure samples of a class count for all that are believed to be of
                  it, so that classes that are seldom sure are not left out.
      momentum:   μ, how much of a belief remains in each round; 0 for none.
      trust:      how many samples each declared distribution of a view counts for; inf to believe
                  what was declared.
      patience:   rounds before a model may refute what a site declared; a site that declared
                  nothing about its labels does not wait.
      stop:       labels are fitted until a model that knew the classes would fit them no better
                  ("entropy"), or always.
      weights:    what sites count by: samples, what their labels are worth, or that class by class
                  for the rows of the head.
      head:       the model that is kept is the average, has a head solved by least squares, or
                  ("auto") has one where nearly all weight has sites that lack classes.
      alpha:      both parameters of mixup's Beta distribution.
      weak:       the view of images that the likelihood and mixup see.
      strong:     the view that must agree with pseudo-labels; "none" for the weak one.
    """

    pseudo: float = 0.5
    mix: float = 0.5
    tau: float = 0.9
    thresholds: Thresholds = "one"
    balance: Balance = "class"
    momentum: float = 0.8
    trust: float = 10.0
    patience: int = 10
    stop: Stop = "entropy"
    weights: Weights = "information"
    head: Head = "auto"
    alpha: float = 0.75
    weak: Augment = "none"
    strong: Augment = "none"

    def check(self, federation: Federation) -> None:
        """Known options; views need images."""
        for option, known in (
            ("thresholds", Thresholds),
            ("balance", Balance),
            ("stop", Stop),
            ("weights", Weights),
            ("head", Head),
        ):
            if getattr(self, option) not in get_args(known):
                raise PotluckError(
                    one_of(f"method.{option}", getattr(self, option), get_args(known))
                )
        for option in ("tau", "momentum"):
            if not 0 <= getattr(self, option) <= 1:
                raise PotluckError(
                    f"method.{option} is {getattr(self, option)}; it must be from 0 to 1."
                )
        for option in ("pseudo", "mix", "trust", "patience"):
            if not getattr(self, option) >= 0:
                raise PotluckError(
                    f"method.{option} is {getattr(self, option)}; it must be at least 0."
                )
        if not self.alpha > 0:
            raise PotluckError(f"method.alpha is {self.alpha}; mixup needs it above 0.")
        check_views({"weak": self.weak, "strong": self.strong}, federation)

    def start(self, site: SiteData) -> Tensors:
        """Beliefs by the declared view alone."""
        return {"beliefs": initial_beliefs(site.log_a)[site.symbols]}

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """Beliefs about all samples; train on those that say something."""
        model, site, shared, state = here.model, here.site, here.shared, here.state
        features, log_eta = _look(model, site.inputs)
        view = self.corrected(site, log_eta, model.round)
        log_a = view.log_a[site.symbols]
        posterior = log_posterior(log_eta, log_a).exp()
        telling = tells(view.log_a, view.log_b)[site.symbols]
        # A label that says nothing leaves nothing to remember.
        kept = self.momentum * telling.to(posterior).unsqueeze(1)
        beliefs = kept * state["beliefs"] + (1 - kept) * posterior
        sure = self.sure(beliefs)
        pool = (telling | sure if self.pseudo or self.mix else telling).nonzero().flatten()

        # A soft target that is the model's own prediction would teach it nothing.
        targets = torch.where(telling.unsqueeze(1), beliefs, _chosen(beliefs))
        tensors = {"beliefs": beliefs, "targets": targets, "sure": self.balanced(beliefs, sure)}
        fitted = self.fitted(site, view, log_eta, beliefs)
        tensors |= {"log_a": view.log_a, "log_b": view.log_b, "fitted": fitted}
        total, each = worth(log_eta, log_a, view.log_b)
        tensors["once"] = self.once(fitted * total, sure)
        if self.head != "averaged" and bool(shared.get("solve", True)):
            known = head_sums.sums(features[sure], beliefs[sure][:, site.classes])
            tensors |= {_SENT + name: value / max(len(pool), 1) for name, value in known.items()}
        metrics = {"sure": float(sure.to(beliefs).mean()), "surprise": float(view.surprise)}
        metrics["labels_fitted"] = float(fitted)
        if len(view.refuted):
            metrics["refuted"] = float(view.refuted.to(beliefs).mean())
            metrics["rate_gap"] = float(view.rate_gap)
            metrics["misplaced"] = float(view.misplaced)
        if site.truth is not None:
            metrics["pseudo_label_accuracy"] = float(expected_accuracy(beliefs, site.truth))
        weights = self.weighed(total, each, beliefs, sure)
        metrics["worth"] = float(weights[0]) / len(site)
        counts = None if self.weights == "samples" else weights[[0, *(1 + site.classes).tolist()]]
        return Plan(pool, tensors, metrics, counts)

    def corrected(self, site: SiteData, log_eta: Tensor, round_number: int) -> Refined:
        """The site's view, and how badly what was declared fits the model's predictions."""
        if self.trust == float("inf"):
            return Refined.none(site.log_a, site.log_b)
        unknown = not _declares(site)
        trust = min(self.trust, UNKNOWN) if unknown else self.trust
        found = refined(site.log_a, site.log_b, site.prior, site.symbols, log_eta, trust)
        if unknown:  # who declared nothing has declared nothing wrong
            return replace(found, refuted=found.refuted[:0])
        if round_number >= self.patience:
            return found
        return replace(found, log_a=site.log_a, log_b=site.log_b)

    def fitted(self, site: SiteData, view: Refined, log_eta: Tensor, beliefs: Tensor) -> Tensor:
        """() 1 where symbols surprise the model more than if it knew the classes, otherwise 0."""
        # A model's own guess of how labels come about cannot show that it knows them by heart.
        if self.stop == "never" or not _declares(site):
            return log_eta.new_ones(())
        found = view_nll(log_eta, view.log_a[site.symbols], view.log_b).mean()
        if_known = (beliefs @ symbol_entropy(view.log_a, view.log_b)).mean()
        return (found > if_known).to(log_eta)

    def sure(self, beliefs: Tensor) -> Tensor:
        """(N, K) beliefs → (N,) bool: whose class the site is sure of."""
        certainty, label = beliefs.max(1)
        if self.thresholds == "one":
            return certainty >= self.tau - 1e-6
        zeros = beliefs.new_zeros(beliefs.shape[1])
        count = zeros.index_add(0, label, torch.ones_like(certainty))
        mean = zeros.index_add(0, label, certainty) / count.clamp_min(1)
        return certainty >= self.tau * (mean / certainty.mean()).clamp(max=1)[label] - 1e-6

    def balanced(self, beliefs: Tensor, sure: Tensor) -> Tensor:
        """(N,) how much each sample counts in the pseudo-label losses; 0 for those not sure."""
        chosen = sure.to(beliefs)
        if self.balance == "none":
            return chosen
        missing = beliefs.sum(0) / (chosen @ beliefs).clamp_min(1e-6)
        weight = chosen * (beliefs @ missing.clamp(max=MOST))
        return weight * chosen.sum() / weight.sum().clamp_min(1e-6)

    def once(self, told: Tensor, sure: Tensor) -> Tensor:
        """(N,) a factor for the terms of each sample: together they are worth one label at most.

        Args:
          told: () what a label says that is fitted, in exact labels.
          sure: (N,) bool, who has a pseudo-label.
        """
        return 1 / (told + (self.pseudo + self.mix) * sure).clamp_min(1)

    def weighed(self, total: Tensor, each: Tensor, beliefs: Tensor, sure: Tensor) -> Tensor:
        """(1 + K,) exact labels that the site's samples are worth: all, and of each class.

        Args:
          total:   () what a label is worth over all classes.
          each:    (K,) what it is worth about each.
          beliefs: (N, K) about the class of each sample.
          sure:    (N,) bool, who has a pseudo-label.
        """
        rest = max(self.pseudo, self.mix) * sure.to(beliefs)
        whole = (total + (1 - total) * rest.clamp(max=1)).sum()
        if self.weights == "information-per-class":
            rows = (beliefs * (each + (1 - each) * rest.clamp(max=1).unsqueeze(1))).sum(0)
        else:
            rows = whole.expand(beliefs.shape[1])
        # Never 0: an average in which nobody counts is none.
        return torch.cat([whole.unsqueeze(0), rows]).clamp_min(1e-6)

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """The random numbers of the views, each sample's partner and each step's share γ."""
        steps = view_draws(
            {"weak": self.weak, "strong": self.strong, "partner": self.weak},
            site.inputs,
            batches,
            generator,
        )
        if self.mix:
            device = site.inputs.device
            shares = draw_mixup(generator, (len(batches),), self.alpha).to(device)
            for step, batch, share in zip(steps, batches, shares, strict=True):
                partner = torch.randint(len(site), (len(batch),), generator=generator).to(device)
                step |= {"share": share, "partner": partner}
        return steps

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Likelihood + λ pseudo-labels + λ' mixup, each sample once; the state keeps beliefs."""
        model, site, plan, batch = step.model, step.site, step.plan, step.batch
        known, index = plan.tensors, batch.index
        targets, sure = known["targets"][index], known["sure"][index]
        absent = torch.where(known["log_b"] > -torch.inf, 0.0, _SILENT)
        weak = seen(self.weak, site.inputs[index], batch.draws, "weak")
        logits = model(weak)
        nll = view_nll(logits, known["log_a"][site.symbols[index]], known["log_b"])
        loss = known["fitted"] * nll
        if self.pseudo:
            if self.strong != "none":
                logits = model(seen(self.strong, site.inputs[index], batch.draws, "strong"))
            loss = loss + self.pseudo * sure * soft_cross_entropy(logits + absent, targets)
        if self.mix:
            partner, share = batch.draws["partner"], batch.draws["share"]
            other = seen(self.weak, site.inputs[partner], batch.draws, "partner")
            logits = model(mixup(weak, other, share))
            mixed = mixup(targets, known["targets"][partner], share)
            loss = loss + self.mix * sure * soft_cross_entropy(logits + absent, mixed)
        return (known["once"][index] * loss).mean(), {"beliefs": known["beliefs"]}

    def report(self, here: Here, plan: Plan) -> Tensors:
        """The sums of a least-squares head, unless the server does not need them."""
        return {
            name.removeprefix(_SENT): value
            for name, value in plan.tensors.items()
            if name.startswith(_SENT)
        }

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """Who lacks classes; whether heads are solved; sums over no sites."""
        if self.head == "averaged":
            return {}
        device = federation.sites[0].inputs.device
        lacking = {site.name: _lacks_classes(site.view) for site in federation.sites}
        solve = self.head == "solved" or any(lacking.values())
        kept = {f"lacks.{name}": torch.tensor(lacks) for name, lacks in lacking.items()}
        kept |= {
            f"private.{site.name}": torch.tensor(site.view.private) for site in federation.sites
        }
        zero = torch.zeros(())
        kept |= {"solve": torch.tensor(solve), "arriving.lacking": zero, "arriving.all": zero}
        return {name: value.to(device) for name, value in kept.items()} | head_sums.nothing_yet(
            network, device
        )

    def share(self, server: Tensors, site: str) -> Tensors:
        """Whether sums are needed; a private site is told nothing, and sends them."""
        if self.head == "averaged" or bool(server[f"private.{site}"]):
            return {}
        return {"solve": server["solve"]}

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """Add the site's sums, and its weight to those that lack classes or to the others."""
        update = arrival.update
        if "gram" not in update.extras:
            return server
        weight = float(update.samples if update.weights is None else update.weights[0])
        server = head_sums.added(server, arrival)
        lacking = weight * server[f"lacks.{update.site}"]
        return server | {
            "arriving.lacking": server["arriving.lacking"] + lacking,
            "arriving.all": server["arriving.all"] + weight,
        }

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The sums so far; whether nearly all weight has sites that lack classes."""
        if self.head == "averaged":
            return server
        if self.head == "auto" and bool(server["solve"]):
            nearly_all = server["arriving.lacking"] > LACKING * server["arriving.all"]
            server = server | {"solve": nearly_all}
        server = head_sums.closed(server)
        zero = torch.zeros_like(server["arriving.all"])
        return server | {"arriving.lacking": zero, "arriving.all": zero}

    def serve(self, server: Tensors, theta: Tensor, layout: Layout) -> Tensor | None:
        """A head of least squares on the encoder of its sums, where somebody is sure."""
        if "gram" not in server or not bool(server["solve"]) or not bool(server["sums"].any()):
            return None
        ridge = head_sums.evidence_ridge(server["gram"], server["sums"])
        return head_sums.solved(server, theta, layout, ridge, SCALE)

    def at_server(self) -> AtServer:
        """A server that has labels of its own trains on them like a site."""
        options = {option.name: getattr(self, option.name) for option in fields(Potluck)}
        return AtServer(_AtServer(**options | {"head": "averaged"}))


@dataclass(frozen=True)
class _AtServer(Potluck):
    """The server's own training, which no other site's outweighs: for labels, not for guesses."""

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """As at a site; nothing where no label says anything."""
        plan = super().plan(here, generator)
        if tells(plan.tensors["log_a"], plan.tensors["log_b"]).any():
            return plan
        return replace(plan, pool=plan.pool[:0])


_SENT = "sent."


def _look(model: LocalModel, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """(N, F) features and (N, K) log class posteriors by the received model."""
    features = features_batched(model.network, *model.received, inputs)
    with torch.no_grad():
        return features, model.network.scores(model.received[0], features).log_softmax(1)


def _chosen(beliefs: Tensor) -> Tensor:
    """(N, K) beliefs → one-hot rows of the most believed classes."""
    return torch.nn.functional.one_hot(beliefs.argmax(1), beliefs.shape[1]).to(beliefs)


def _declares(site: SiteData) -> bool:
    """Whether a site says anything about how its labels come about."""
    return bool(tells(site.log_a, site.log_b).any())


def _lacks_classes(view: LabelView) -> bool:
    """Whether a site has labels, but none of some class."""
    return len(view.symbols) > 1 and not view.holds_all
