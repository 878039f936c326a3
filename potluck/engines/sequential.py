"""`sequential`: one site after another. The readable reference that other engines agree with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from potluck.engines.engine import Finished, Orders
from potluck.engines.site_round import train_ready
from potluck.federation import Site


@dataclass(frozen=True)
class Sequential:
    """One site after another; memory holds one site's work at a time."""

    @property
    def remarks(self) -> Sequence[str]:
        """Nothing to remark."""
        return ()

    def run(self, orders: Orders) -> Iterator[Finished]:
        """Train the cohort in order."""
        return train_in_turn(orders, orders.cohort)


def train_in_turn(orders: Orders, sites: Sequence[Site]) -> Iterator[Finished]:
    """Train some sites of a cohort, one after another."""
    for site in sites:
        ready, state = orders.made_ready(site)
        update = None
        if ready is not None:
            update, state = train_ready(ready)
        yield Finished(site, update, state)
