"""`likelihood`: train on the likelihood of what each site observed, and on nothing else.

    loss = mean_i [ logsumexp(f(x_i) + log b) − logsumexp(f(x_i) + log a_i) ]

With exact labels this is supervised federated training; with labels of another space it is
FedMT (P) (Zhang et al. 2023); with unlabelled sets of known proportions it is the core of
FedUL (Lu et al. 2022); with candidate sets, the likelihood of partial labels; and a federation
may mix them, since the difference between two sites is only a and b.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.losses import view_nll
from potluck.messages import Tensors
from potluck.methods.augmented import Augmented
from potluck.methods.method import AtServer, Here, Plan, Step


@dataclass(frozen=True)
class Likelihood(Augmented):
    """The view likelihood alone.

    Args:
      augment: how training images are varied.
    """

    def plan(self, here: Here, generator: torch.Generator) -> Plan:
        """The samples whose label says something.

        The loss of the others does not depend on the model. Averaged in, a site that has no others
        would only hold the model where it is, so it sits the round out.
        """
        return Plan(pool=here.site.telling)

    def loss(self, step: Step) -> tuple[Tensor, Tensors]:
        """Mean negative log-likelihood of the batch's observed symbols."""
        site, batch = step.site, step.batch
        log_a = site.log_a[site.symbols[batch.index]]
        return view_nll(step.model(self.inputs(step)), log_a, site.log_b).mean(), step.state

    def at_server(self) -> AtServer:
        """A server that has data of its own trains on it like a site."""
        return AtServer(self)
