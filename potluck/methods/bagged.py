"""What methods for unlabelled sets with known class proportions have in common."""

from dataclasses import dataclass

import torch

from potluck.errors import PotluckError
from potluck.federation import Federation
from potluck.methods.augmented import Augmented
from potluck.methods.method import AtServer


@dataclass(frozen=True)
class Bagged(Augmented):
    """A method that learns from `bags` views alone."""

    def check(self, federation: Federation) -> None:
        """Every site has sets of samples, and all mean the same target population."""
        super().check(federation)
        server = [] if federation.server is None else [federation.server]
        everyone = [*federation.sites, *server]
        for site in everyone:
            if site.view.kind != "bags":
                raise PotluckError(
                    f'site "{site.name}" has a view of kind {site.view.kind}, but this method '
                    "learns from unlabelled sets with known class proportions only (kind bags). "
                    'Use method = "likelihood" to mix kinds of labels.'
                )
        first = everyone[0]
        for site in everyone[1:]:
            if not torch.allclose(site.view.prior, first.view.prior, atol=1e-6):
                raise PotluckError(
                    f'sites "{first.name}" and "{site.name}" declare different target priors; '
                    "the target prior is that of the population the model is for, so it is the "
                    "same at all sites."
                )

    def at_server(self) -> AtServer:
        """A server that has sets of its own trains on them like a site."""
        return AtServer(self)
