"""`sequential`: one site after another. The readable reference that other engines agree with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from potluck.engines.engine import Finished
from potluck.engines.recipe import Recipe
from potluck.engines.site_round import train_site
from potluck.federation import Site
from potluck.messages import Broadcast, SiteState
from potluck.models.network import Network


@dataclass(frozen=True)
class Sequential:
    """One site after another; memory holds one site's work at a time."""

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
            update, state = train_site(own, recipe, site, states.get(site.name), broadcast(site))
            yield Finished(site, update, state)
