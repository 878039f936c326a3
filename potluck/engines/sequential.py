"""`sequential`: one site after another. The readable reference that other engines agree with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from potluck.engines.recipe import Recipe
from potluck.engines.site_round import train_site
from potluck.federation import Site
from potluck.messages import Broadcast, SiteState, Update
from potluck.models.network import Network


@dataclass(frozen=True, eq=False)
class Finished:
    """A site's round, done: its update (None when it sat out) and what it keeps."""

    site: Site
    update: Update | None
    state: SiteState


class Engine(Protocol):
    """Who runs the local part of a round."""

    def run(
        self,
        network: Network,
        recipe: Recipe,
        cohort: Sequence[Site],
        states: Mapping[str, SiteState],
        broadcast: Callable[[Site], Broadcast],
    ) -> Iterator[Finished]:
        """Train the cohort; yield its sites in the order given.

        Args:
          network:   the global model.
          recipe:    what all parties agreed on.
          cohort:    the sites of this round.
          states:    what sites kept from earlier rounds, by name.
          broadcast: makes what the server sends to a site.
        """
        ...


@dataclass(frozen=True)
class Sequential:
    """Train one site after another; memory holds one site's work at a time."""

    def run(
        self,
        network: Network,
        recipe: Recipe,
        cohort: Sequence[Site],
        states: Mapping[str, SiteState],
        broadcast: Callable[[Site], Broadcast],
    ) -> Iterator[Finished]:
        """Train the cohort in order; see `Engine.run`."""
        for site in cohort:
            own = network.narrowed(len(site.view.own().space))
            state = states.get(site.name)
            update, state = train_site(own, recipe, site, state, broadcast(site))
            yield Finished(site, update, state)


ENGINES: dict[str, type[Sequential]] = {"sequential": Sequential}
