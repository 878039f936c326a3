"""`fedpll-laar`: federated partial-label learning (Yan and Guo 2024).

Each sample has candidate classes S_i, one of them true. A site keeps beliefs q_i, uniform on S_i
at first, and in each step on a batch minimises

    L = L_c + η L_ga + δ L_mix                                                          (14)

    L_c   = − mean_i q_i · log f(x_i)                                                    (6)
            and after each visit q_i ← μ q_i + (1 − μ) onehot(argmax_{k ∈ S_i} f_k(x_i)) (5)
    L_ga  = − cos(∇L_c(θ), G)                                                            (7)
    L_mix = − mean_i w_i q̃_i · log f(x̃_i)                                               (13)
            x̃_i = γ x_i + (1−γ) x_j,  q̃_i = γ q_i + (1−γ) q_j,  γ ~ Beta(α, α)           (9)
            w_i = [γ max F(x_i) + (1−γ) max F(x_j)] · max F(x̃_i)                     (10–12)

F is the model as the server sent it. G is the mean over sites of ∇L_c at the end of the last
round; in the first round there is none and L_ga is left out.

The gradient of L_ga is real: ∇L_ga = −H v with v from `alignment_direction`, and H v is a forward
difference of two gradients of L_c on the same batch. It costs one more forward and backward pass
a step and no graph of a graph; batch-norm statistics do not see the probe.

Where the paper is silent: q_i is updated at each batch visit from the training scores, and a step
uses the q from before it, so that L_c does not change along the probe; γ and the shuffle that
pairs i with j are drawn once a batch; max F(x_i) is of the sample without augmentation, once a
round; G is over all of a site's samples, each site weighted as in the average of the models.

Table 3 as options:

    CLS-w/o-cld      momentum = 1         CLS-w/o-w1         mix_weights = "mixed"
    CLS-w/o-am       mix = 0              CLS-w/o-w2         mix_weights = "pair"
    CLS-w/o-ga       align = 0            CLS-w/o-(w1 + w2)  mix_weights = "none"
    CLS-w/o-am-ga    mix = 0, align = 0

The centralised version is one site that holds all data, with align = 0 as there is nobody to align
with. Samples whose label allows every class alike are left out; see `candidate_targets`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.data.augment import draw_mixup, mixup
from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.losses import soft_cross_entropy
from potluck.losses.alignment import alignment_direction, hessian_product, probe
from potluck.losses.beliefs import initial_beliefs, moving_average
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.candidate_targets import announce_unlabelled, check_shares, labelled_plan
from potluck.methods.method import (
    AtServer,
    Differentiate,
    Gradient,
    Here,
    Objective,
    Plan,
    SiteData,
    Step,
)
from potluck.models.network import Network

MixWeights = Literal["both", "pair", "mixed", "none"]
_CHUNK = 256  # samples at a time in the gradient that a site reports


@dataclass(frozen=True)
class FedPLLLAAR(Augmented):
    """Disambiguation by moving averages, gradient alignment, and adaptive mixup.

    Args:
      momentum:    μ, how much of a belief remains at each visit; 1 for no disambiguation.
      align:       η, weight of the alignment with the global gradient.
      mix:         δ, weight of the mixup loss.
      mix_weights: what weighs a mixed sample: the global model's confidence in the pair it
                   is made of (w1), in the mixed sample itself (w2), both, or neither.
      alpha:       of the Beta distribution of mixing shares.
    """

    momentum: float = 0.99
    align: float = 1.0
    mix: float = 1.0
    mix_weights: MixWeights = "both"
    alpha: float = 0.75

    def check(self, federation: Federation) -> None:
        """Known options; alignment needs sites that share all of θ."""
        super().check(federation)
        if self.mix_weights not in get_args(MixWeights):
            raise PotluckError(one_of("method.mix_weights", self.mix_weights, get_args(MixWeights)))
        check_shares(momentum=self.momentum)
        for name, value in (("align", self.align), ("mix", self.mix)):
            if value < 0:
                raise PotluckError(f"method.{name} is {value}; a weight is at least 0.")
        if not self.alpha > 0:
            raise PotluckError(f"method.alpha is {self.alpha}; it must be above 0.")
        for site in federation.sites:
            if self.align and site.view.private:
                raise PotluckError(
                    f'site "{site.name}" keeps its classes private, but gradient alignment sends '
                    "the gradient of the whole head; set method.align = 0."
                )
        announce_unlabelled(federation)

    def start(self, site: SiteData) -> Tensors:
        """Beliefs that are uniform on the candidates."""
        return {"beliefs": initial_beliefs(site.log_a)[site.symbols]}

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All labelled samples, with the global model's confidence in each."""
        site = here.site
        plan = labelled_plan(site, here.state["beliefs"])
        if self.mix and self.mix_weights in ("both", "pair"):
            plan.tensors["confidence"] = _confidence(here.model.reference(site.inputs))
        return plan

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """One mixing share and one shuffle for each step, besides the augmentation."""
        draws = super().draw(site, plan, batches, generator)
        if not self.mix:
            return draws
        device = site.inputs.device
        shares = draw_mixup(generator, (len(batches),), self.alpha).to(device)
        return [
            {
                **drawn,
                "share": share,
                "partner": torch.randperm(len(batch), generator=generator).to(device),
            }
            for drawn, share, batch in zip(draws, shares, batches, strict=True)
        ]

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """L_c + δ L_mix; `gradient` adds the alignment."""
        loss, new_state = self.classification(step)
        if self.mix:
            loss = loss + self.mixing(step)[0]
        return loss, new_state

    def classification(self, step: Step) -> tuple[Tensor, Tensors]:
        """L_c, and the beliefs after this visit."""
        site, batch, state = step.site, step.batch, step.state
        logits = step.model(self.inputs(step))
        beliefs = state["beliefs"][batch.index]
        log_a = site.log_a[site.symbols[batch.index]]
        new = moving_average(beliefs, logits, log_a, self.momentum)
        loss = soft_cross_entropy(logits, beliefs).mean()
        return loss, {"beliefs": state["beliefs"].index_copy(0, batch.index, new)}

    def mixing(self, step: Step) -> tuple[Tensor, Tensors]:
        """δ L_mix."""
        model, batch, state = step.model, step.batch, step.state
        partner, share = batch.draws["partner"], batch.draws["share"]
        inputs, beliefs = self.inputs(step), state["beliefs"][batch.index]
        mixed = mixup(inputs, inputs[partner], share)
        weights = torch.ones_like(beliefs[:, 0])
        if self.mix_weights in ("both", "pair"):
            sure = step.plan.tensors["confidence"][batch.index]
            weights = weights * mixup(sure, sure[partner], share)
        if self.mix_weights in ("both", "mixed"):
            weights = weights * _confidence(model.reference(mixed))
        targets = mixup(beliefs, beliefs[partner], share)
        loss = (weights * soft_cross_entropy(model(mixed), targets)).mean()
        return self.mix * loss, state

    def gradient(
        self,
        differentiate: Differentiate,
        objective: Objective,
        vector: Tensor,
        buffers: Tensors,
        shared: Tensors,
    ) -> Gradient:
        """The gradient of L_c + η L_ga + δ L_mix."""
        if not self.align or "gradient" not in shared:
            return differentiate(objective, vector, buffers)
        classification = objective.term(self.classification)
        local = differentiate(classification, vector, buffers)
        direction = alignment_direction(local.value, shared["gradient"])
        position, radius = probe(vector, direction)
        untouched = {name: value.clone() for name, value in buffers.items()}
        probed = differentiate(classification, position, untouched)
        product = hessian_product(local.value, probed.value, direction, radius)
        value, loss = local.value - self.align * product, local.loss
        if self.mix:
            mixing = differentiate(objective.term(self.mixing), vector, buffers)
            value, loss = value + mixing.value, loss + mixing.loss
        return Gradient(value, loss, local.state)

    def report(self, here: Here, plan: Plan) -> Tensors:
        """∇L_c over all of the site's samples at its trained parameters."""
        if not self.align:
            return {}
        model, site = here.model, here.site
        theta = model.theta.detach().requires_grad_()
        buffers = {name: value.clone() for name, value in model.buffers.items()}
        total = torch.zeros_like(model.theta)
        for index in plan.pool.split(_CHUNK):
            # Without dropout, but normalised by the batch as in training.
            logits = model.network.measure(theta, buffers, site.inputs[index])
            loss = soft_cross_entropy(logits, here.state["beliefs"][index]).sum()
            total += torch.autograd.grad(loss, theta)[0]
        return {"gradient": total / len(plan.pool)}

    def server_start(self, network: Network, federation: Federation) -> Tensors:
        """No global gradient yet. Alignment refuses noise that would differ at the probe."""
        if self.align and network.draws(federation.sites[0].inputs.shape[1:]):
            raise PotluckError(
                "layers of the model draw random numbers for themselves, whose noise would drown "
                "the difference of gradients that alignment needs; use other layers (nn.Dropout is "
                "no such layer), or set method.align = 0."
            )
        return {}

    def share(self, server: Tensors, site: str) -> Tensors:
        """The global gradient, from the second round on."""
        return server

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The mean of the sites' gradients."""
        return {"gradient": extras["gradient"]} if self.align else server

    def at_server(self) -> AtServer:
        """A server that has data of its own trains on it like a site."""
        return AtServer(self)


def _confidence(logits: Tensor) -> Tensor:
    """(B, K) scores → (B,) largest probability."""
    return torch.softmax(logits, -1).amax(-1)
