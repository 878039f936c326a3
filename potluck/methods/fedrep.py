"""`fedrep`: one encoder, heads of the sites' own (Collins et al., ICML 2021).

    site     f = head_c(encoder(x)) over its own symbols; sends the encoder, keeps head_c
    server   averages the encoders; if it has samples of its own, it then trains on them, and
             with them the model's head

Two ways to train a site. The FedMT papers train encoder and head together: head_epochs = 0.
The authors of FedRep train the head alone in the first epochs of a round, then the encoder
alone: head_epochs = 10 with local.epochs = 11 is their default. (A part that is at rest gets no
gradient; momentum and weight decay of the local optimiser still act on it. Their last step, a
fine-tuning of the heads, matters only for predictions in the sites' own spaces and is left out.)

A site whose labels are exactly the target classes does send its head, and the mean of these is
the model's. So the centre that has them may be a site, as in the FedMT papers, where its encoder
is averaged with the others', or the server, which trains after the average.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.heads import first_head, with_head
from potluck.methods.likelihood import Likelihood
from potluck.methods.method import AtServer, Here, Plan, SiteData, Step
from potluck.methods.target_labels import check_target_labels, exactly_labelled
from potluck.models.network import HEAD, Layout, Network


@dataclass(frozen=True)
class FedRep(Augmented):
    """A shared encoder with personal heads.

    Args:
      augment:     how training images are varied.
      head_epochs: how many of a round's epochs train the head alone; the rest then train the
                   encoder alone. 0 trains both together.
    """

    head_epochs: int = 0

    def check(self, federation: Federation) -> None:
        """Somebody must train the model's own head."""
        super().check(federation)
        if self.head_epochs < 0:
            raise PotluckError(f"method.head_epochs is {self.head_epochs}; it is 0 or more.")
        check_target_labels("fedrep", federation, exactly_labelled)

    def personal(self, site: SiteData, network: Network) -> Tensors:
        """A head over the site's symbols."""
        return first_head(site, network)

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """The augmentation's numbers; and which part learns in each step."""
        steps = super().draw(site, plan, batches, generator)
        if self.head_epochs:
            sizes = torch.tensor([len(batch) for batch in batches])
            head = (sizes.cumsum(0) <= self.head_epochs * len(plan.pool)).to(site.inputs.device)
            steps = [step | {"head": flag} for step, flag in zip(steps, head, strict=True)]
        return steps

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Cross-entropy over the site's own symbols."""
        model, batch, head = step.model, step.batch, step.model.personal
        if self.head_epochs:
            learns = batch.draws["head"]
            head = {name: _learning(value, learns) for name, value in head.items()}
            model = replace(model, theta=_learning(model.theta, ~learns))
        logits = with_head(model, head, self.inputs(step))
        return cross_entropy(logits, step.site.symbols[batch.index]), step.state

    def report(self, here: Here, plan: Plan) -> Tensors:
        """The head, if it scores the target classes, its rows in their order."""
        model, site = here.model, here.site
        if not exactly_labelled(site):
            return {}
        symbol_of_class = site.log_a.argmax(0)
        return {name: value.detach()[symbol_of_class] for name, value in model.personal.items()}

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The mean of the heads over the target classes."""
        return server | {name: extras[name] for name in HEAD if name in extras}

    def adjust(self, server: Tensors, theta: Tensor, layout: Layout) -> Tensor:
        """The model gets the mean head, where sites sent any."""
        parts = layout.unflatten(theta) | {name: server[name] for name in HEAD if name in server}
        return torch.cat([parts[name].flatten() for name in layout.names])

    def at_server(self) -> AtServer:
        """The server trains encoder and head on its own samples."""
        return AtServer(Likelihood(augment=self.augment))


def _learning(value: Tensor, flag: Tensor) -> Tensor:
    """The same value, with a gradient only where the flag is set."""
    return torch.where(flag, value, value.detach())
