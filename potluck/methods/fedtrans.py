"""`fedtrans`: learn the sites' own labels together, then fine-tune on the target classes.

    rounds 1 … pretrain   sites train encoder and a head over their own symbols; both averaged
    from then on          whoever has labels of the target classes trains encoder and the
                          model's head; all others sit out

The baseline of the FedMT papers (after Chen et al., Meta-Baseline, ICCV 2021): the new head is
fine-tuned with lr for some 100 epochs, which here are rounds: rounds = pretrain + 100. Sites
with different label spaces have different heads on one encoder.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.local import SGD, LocalTraining
from potluck.losses import view_nll
from potluck.messages import Tensors
from potluck.methods import spaces
from potluck.methods.augmented import Augmented
from potluck.methods.heads import first_head, with_head
from potluck.methods.method import Arrival, AtServer, Here, Plan, SiteData, Step
from potluck.methods.target_labels import check_target_labels, separates
from potluck.models.network import Network


@dataclass(frozen=True)
class FedTrans(Augmented):
    """Pretraining in the sites' label spaces, then fine-tuning in the target's.

    Args:
      augment:    how training images are varied.
      pretrain:   how many rounds to pretrain.
      lr:         learning rate of the server's fine-tuning.
      momentum:   its momentum.
      batch_size: its batch size.
    """

    pretrain: int = 100
    lr: float = 0.01
    momentum: float = 0.9
    batch_size: int = 32

    def check(self, federation: Federation) -> None:
        """Somebody must have labels to fine-tune on."""
        super().check(federation)
        if self.pretrain < 1:
            raise PotluckError(f"method.pretrain is {self.pretrain}; it needs at least one round.")
        check_target_labels("fedtrans", federation)

    def personal(self, site: SiteData, network: Network) -> Tensors:
        """A head over the site's symbols."""
        return {} if separates(site) else first_head(site, network)

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """Whose turn it is; the head starts from the mean of its label space."""
        model, site = here.model, here.site
        mine = separates(site) == (model.round >= self.pretrain)
        pool = torch.arange(len(site) if mine else 0, device=site.inputs.device)
        return Plan(pool, spaces.offsets(model, here.shared))

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Cross-entropy over the site's own symbols, or the target classes."""
        model, site, plan, state = step.model, step.site, step.plan, step.state
        inputs, symbols = self.inputs(step), site.symbols[step.batch.index]
        if not model.personal:
            return view_nll(model(inputs), site.log_a[symbols], site.log_b).mean(), state
        head = {name: value + plan.tensors[name] for name, value in model.personal.items()}
        return cross_entropy(with_head(model, head, inputs), symbols), state

    def report(self, here: Here, plan: Plan) -> Tensors:
        """The head, for the mean over the sites of the same label space."""
        head = {name: value + plan.tensors[name] for name, value in here.model.personal.items()}
        return spaces.reported(here.site, head)

    def receive(self, server: Tensors, arrival: Arrival) -> Tensors:
        """Which label space the site reported in."""
        return spaces.noted(server, arrival)

    def conclude(self, server: Tensors, extras: Tensors) -> Tensors:
        """The mean head of each label space."""
        return spaces.averaged(server, extras)

    def share(self, server: Tensors, site: str) -> Tensors:
        """The mean head of the site's label space."""
        return spaces.shared_with(server, site)

    def at_server(self) -> AtServer:
        """The server's turn comes with the fine-tuning; its momentum lasts over the rounds."""
        local = LocalTraining(
            lr=self.lr,
            optimiser=SGD(momentum=self.momentum),
            batch_size=self.batch_size,
            optimiser_state="keep",
        )
        return AtServer(self, local)
