"""The interface of an engine: who runs the local part of a round."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from potluck.engines.recipe import Recipe
from potluck.engines.site_round import Ready, make_ready
from potluck.federation import Site
from potluck.messages import Broadcast, SiteState, Update
from potluck.models.network import Network


@dataclass(frozen=True, eq=False)
class Orders:
    """What an engine needs for a round.

    Args:
      network:   the global model.
      recipe:    what all parties agreed on.
      cohort:    the sites of this round.
      states:    what sites kept from earlier rounds, by name.
      broadcast: makes what the server sends to a site.
    """

    network: Network
    recipe: Recipe
    cohort: Sequence[Site]
    states: Mapping[str, SiteState]
    broadcast: Callable[[Site], Broadcast]

    @property
    def draws_for_itself(self) -> bool:
        """Whether layers of the model take random numbers from a stream that all sites share."""
        return self.network.draws(self.cohort[0].inputs.shape[1:])

    def made_ready(self, site: Site) -> tuple[Ready | None, SiteState]:
        """A site at the start of its steps (None: it sits out), and its state."""
        own = self.network.narrowed(len(site.view.own().space))
        state = self.states.get(site.name)
        return make_ready(own, self.recipe, site, state, self.broadcast(site))


@dataclass(frozen=True, eq=False)
class Finished:
    """A site's round, done: its update (None when it sat out) and what it keeps.

    Over a network, what it keeps stays with the site, and `state` is None.
    """

    site: Site
    update: Update | None
    state: SiteState | None


class Engine(Protocol):
    """Who runs the local part of a round."""

    @property
    def remarks(self) -> Sequence[str]:
        """What a user should know about how rounds were run so far."""
        ...

    def run(self, orders: Orders) -> Iterator[Sequence[Finished]]:
        """Train the cohort; yield its sites, those together that trained together.

        Their order depends on the orders alone.
        """
        ...
