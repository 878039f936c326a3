"""What all parties of a federation agree on before the first round."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from potluck.errors import PotluckError, one_of
from potluck.federated import FedAvg, FedBN, FederatedOptimiser
from potluck.federation import Federation, Site
from potluck.labels.information import tells
from potluck.local import LocalTraining
from potluck.methods import Likelihood, Method

BatchNorm = Literal["average", "local", "static"]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the result, besides the model and the data.

    Args:
      rounds:     how many rounds to train.
      seed:       of every random stream.
      method:     how sites learn and what the server adds.
      federated:  how updates become a new model.
      local:      how a site trains within a round.
      cohort:     how many sites take part in a round; None for all.
      batch_norm: where batch-norm statistics come from: the average of the sites', each
                  site's own, or sums over all sites' samples ("static", SemiFL).
    """

    rounds: int
    seed: int = 0
    method: Method = field(default_factory=Likelihood)
    federated: FederatedOptimiser = field(default_factory=FedAvg)
    local: LocalTraining = field(default_factory=LocalTraining)
    cohort: int | None = None
    batch_norm: BatchNorm = "average"

    def check(self, federation: Federation) -> None:
        """Raise a clear error for whatever does not fit together, before any training."""
        if self.rounds < 1:
            raise PotluckError(f"rounds is {self.rounds}; at least one round is needed.")
        if self.cohort is not None and not 1 <= self.cohort <= len(federation.sites):
            raise PotluckError(
                f"cohort is {self.cohort}, but there are {len(federation.sites)} sites; "
                f"choose 1 to {len(federation.sites)}, or leave it out for all."
            )
        if self.batch_norm not in get_args(BatchNorm):
            raise PotluckError(one_of("batch_norm", self.batch_norm, get_args(BatchNorm)))
        if isinstance(self.federated, FedBN) and self.batch_norm != "local":
            raise PotluckError(
                "federated.name is fedbn, which keeps batch-norm statistics at the sites, but "
                f'batch_norm is "{self.batch_norm}"; set batch_norm = "local".'
            )
        federation.check()
        self.local.check()
        self.federated.check(self.local)
        self.method.check(federation)
        self._check_server(federation.server)

    def _check_server(self, server: Site | None) -> None:
        """Labels at the server must not go unused; unlabelled samples may, methods share data."""
        if server is None or self.method.at_server() is not None:
            return
        telling = tells(server.view.log_codebook, server.view.log_normaliser)
        if labelled := int(telling[server.symbols.cpu()].sum()):
            raise PotluckError(
                f'the server ("{server.name}") has {labelled} labelled samples, but '
                f"{type(self.method).__name__} does not train at the server; make it one of the "
                'sites, give it the view "unlabeled", or choose another method.'
            )
