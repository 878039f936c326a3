"""FedLLP: learning from label proportions, a baseline of FedUL.

Lu et al. 2022 (appendix D.2), after Dulac-Arnold et al. 2019. One step takes one whole set m and
compares its known class proportions with the mean prediction over it:

    L_m = −Σ_k Π[m, k] log( (1/n_m) Σ_{i in m} softmax(f(x_i))_k )

A set is never split, so `local.batch_size` does not matter; an epoch is one pass over the sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from potluck.local import LocalTraining
from potluck.losses.llp import proportion_loss
from potluck.messages import Tensors
from potluck.methods.bagged import Bagged
from potluck.methods.method import Plan, SiteData, Step


@dataclass(frozen=True)
class FedLLP(Bagged):
    """Federated learning from label proportions.

    Args:
      augment: how training images are varied.
    """

    def batches(
        self, local: LocalTraining, site: SiteData, plan: Plan, generator: torch.Generator
    ) -> list[Tensor]:
        """One set in each step, in shuffled order; sets without samples have none."""
        sizes = [size for size in torch.bincount(site.symbols).tolist() if size]
        members: Sequence[Tensor] = site.symbols.argsort(stable=True).split(sizes)
        order = replace(local, batch_size=1).batches(torch.arange(len(sizes)), generator)
        return [members[int(m)] for m in order]

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """The proportion loss of one set."""
        site, batch = step.site, step.batch
        own = site.symbols[batch.index[:1]]  # all of the batch is of one set
        proportions = site.log_proportions[own].exp().squeeze(0)
        return proportion_loss(step.model(self.inputs(step)), proportions), step.state
