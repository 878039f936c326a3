"""`likelihood`: train on the likelihood of what each site observed, and on nothing else.

    loss = mean_i [ logsumexp(f(x_i) + log b) − logsumexp(f(x_i) + log a_i) ]

With exact labels this is supervised federated training; with labels of another space it is
FedMT (P) (Zhang et al. 2023); with unlabelled sets of known proportions it is the core of
FedUL (Lu et al. 2022); with candidate sets, the likelihood of partial labels; and a federation
may mix them, since the difference between two sites is only a and b.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.data.augment import AUGMENTATIONS
from potluck.errors import PotluckError, one_of
from potluck.federation import Federation
from potluck.losses import view_nll
from potluck.messages import Tensors
from potluck.methods.draws import augmentation_draws
from potluck.methods.method import AtServer, Batch, LocalModel, Method, Plan, SiteData

Augment = Literal["none", "flip", "weak", "rotate", "randaugment", "randaugment-official"]


@dataclass(frozen=True)
class Likelihood(Method):
    """The view likelihood alone.

    Args:
      augment: how training images are varied.
    """

    augment: Augment = "none"

    def check(self, federation: Federation) -> None:
        """Only images can be augmented."""
        if self.augment not in get_args(Augment):
            raise PotluckError(one_of("method.augment", self.augment, get_args(Augment)))
        shape = tuple(federation.sites[0].inputs.shape[1:])
        if self.augment != "none" and len(shape) != 3:
            raise PotluckError(
                f'method.augment is "{self.augment}", but the samples have shape {shape}, which '
                'are not images (channels, height, width); set it to "none".'
            )

    def draw(
        self, site: SiteData, plan: Plan, batches: Sequence[Tensor], generator: torch.Generator
    ) -> list[Tensors]:
        """The random numbers of the augmentation."""
        if self.augment == "none":
            return super().draw(site, plan, batches, generator)
        augmentation = AUGMENTATIONS[self.augment]()
        return augmentation_draws(augmentation, site.inputs, batches, generator)

    def loss(
        self,
        model: LocalModel,
        site: SiteData,
        plan: Plan,
        batch: Batch,
        shared: Tensors,
        state: Tensors,
    ) -> tuple[Tensor, Tensors]:
        """Mean negative log-likelihood of the batch's observed symbols."""
        inputs = site.inputs[batch.index]
        if self.augment != "none":
            inputs = AUGMENTATIONS[self.augment]().apply(inputs, batch.draws)
        log_a = site.log_a[site.symbols[batch.index]]
        return view_nll(model(inputs), log_a, site.log_b).mean(), state

    def at_server(self) -> AtServer:
        """A server that has data of its own trains on it like a site."""
        return AtServer(self)
