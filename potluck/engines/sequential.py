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

    def run(self, orders: Orders) -> Iterator[Sequence[Finished]]:
        """Train the cohort in order."""
        return ([train_alone(orders, site)] for site in orders.cohort)


def train_alone(orders: Orders, site: Site) -> Finished:
    """Train one site of a cohort."""
    ready, state = orders.made_ready(site)
    update = None
    if ready is not None:
        update, state = train_ready(ready)
    return Finished(site, update, state)
