"""`fedx`: two-sided knowledge distillation (Han et al., ECCV 2022), with a head on candidates.

    L = CE(f(x), q) + λ · [ NT-Xent(z, z̃) + NT-Xent(p, Z̃)              contrast, local and global
                           + JS(r(z), r(z̃)) + JS(R(p), R(p̃)) ]        relations, local and global

x̃ is an augmented view of x; z and p are the site's projection of its features and the prediction
from it; capital Z is the projection of the received model's features. Relations r are softmaxed
cosines to the projections of a random batch of the site's samples, R those to the received
model's. FedX is unsupervised and then trains a linear head; here the head learns along, from
targets q that are uniform on the candidates, as FedAvg's are.

Projection and prediction are two-layer perceptrons that stay at the site, so that the network
which is averaged is the same as in every other method; the received model's features pass through
the site's own projection, without gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, relu

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.losses import soft_cross_entropy
from potluck.losses.beliefs import initial_beliefs
from potluck.losses.contrast import jensen_shannon, nt_xent, relations
from potluck.messages import Tensors
from potluck.methods.augmented import Augment
from potluck.methods.candidate_targets import announce_unlabelled, labelled_plan
from potluck.methods.method import Here, Method, Plan, SiteData, Step
from potluck.methods.views import check_views, seen, view_draws
from potluck.models.network import Network


@dataclass(frozen=True)
class FedX(Method):
    """Contrast and relations between a site's views and the received model's.

    Args:
      augment:     the view that each image is compared with.
      distil:      λ, weight of the four unsupervised terms.
      temperature: of contrasts and relations.
      width:       hidden and output units of projection and prediction.
    """

    augment: Augment = "weak"
    distil: float = 1.0
    temperature: float = 0.1
    width: int = 256

    def check(self, federation: Federation) -> None:
        """Known options; two views need an augmentation."""
        check_views({"augment": self.augment}, federation)
        if self.augment == "none":
            raise PotluckError(
                'FedX compares two views of each image; method.augment = "none" makes them equal.'
            )
        if self.width < 1 or not self.temperature > 0 or self.distil < 0:
            raise PotluckError(
                "method.width must be at least 1, method.temperature above 0 and method.distil at "
                "least 0."
            )
        announce_unlabelled(federation)

    def personal(self, site: SiteData, network: Network) -> Tensors:
        """Projection and prediction heads; every site starts from the same."""
        shapes = dict(zip(network.layout.names, network.layout.shapes, strict=True))
        inputs = {"project": shapes["head.weight"][1], "predict": self.width}
        generator = torch.Generator().manual_seed(0)
        heads: Tensors = {}
        for name, size in inputs.items():
            for layer, fan in (("1", size), ("2", self.width)):
                weight = torch.randn(self.width, fan, generator=generator) * (2 / fan) ** 0.5
                heads[f"{name}.{layer}"] = weight.to(site.inputs.device)
        return heads

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """All samples whose label says something."""
        site = here.site
        return labelled_plan(site, initial_beliefs(site.log_a)[site.symbols])

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """The augmentation's numbers, and the random batch that relations are to."""
        draws = view_draws({"view": self.augment}, site.inputs, batches, generator)
        for step, batch in zip(draws, batches, strict=True):
            chosen = torch.randint(len(plan.pool), (len(batch),), generator=generator)
            step["anchors"] = plan.pool[chosen.to(plan.pool.device)]
        return draws

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Candidate cross-entropy and the four terms of distillation."""
        model, site, batch = step.model, step.site, step.batch
        size = len(batch.index)
        plain = seen("none", site.inputs[batch.index], {}, "plain")
        view = seen(self.augment, site.inputs[batch.index], batch.draws, "view")
        anchors = seen("none", site.inputs[batch.draws["anchors"]], {}, "plain")
        inputs = torch.cat([plain, view, anchors])
        features = model.features(inputs)
        with torch.no_grad():
            received = model.network.inferred_features(*model.received, inputs)
            heads = {name: head.detach() for name, head in model.personal.items()}
            frozen = _perceptron(heads, "project", received)
        own = _perceptron(model.personal, "project", features)
        guess = _perceptron(model.personal, "predict", own[: 2 * size])
        first, second, others = own.split(size)
        _, far_second, far_others = frozen.split(size)
        near, far = (
            tuple(relations(points, to, self.temperature) for points in pair)
            for pair, to in (((first, second), others), (guess.split(size), far_others))
        )
        distilled = (
            nt_xent(first, second, self.temperature)
            + nt_xent(guess[:size], far_second, self.temperature)
            + jensen_shannon(*near).mean()
            + jensen_shannon(*far).mean()
        )
        targets = initial_beliefs(site.log_a[site.symbols[batch.index]])
        scores = model.network.scores(model.theta, features[:size])
        loss = soft_cross_entropy(scores, targets).mean() + self.distil * distilled
        return loss, step.state


def _perceptron(heads: Tensors, name: str, features: Tensor) -> Tensor:
    """(B, F) → (B, W), one hidden layer."""
    return linear(relu(linear(features, heads[f"{name}.1"])), heads[f"{name}.2"])
