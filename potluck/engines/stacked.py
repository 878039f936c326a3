"""`stacked`: the steps of many sites as one batched step (`torch.func.vmap`).

Sites whose steps have the same shape are stacked: their vectors become one (S, P) matrix, and a
step of all of them one call (see `program.py`), which may be compiled. Sites of similar size
train together, so that few wait for the longest. Results agree with `sequential` to rounding.
Only layers other than dropout that draw for themselves have another, equally fixed stream.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from potluck.engines.compiled import compiled
from potluck.engines.engine import Finished, Orders
from potluck.engines.parts import PartedProgram
from potluck.engines.program import Program, Programs, alike, as_it_is
from potluck.engines.site_round import finish, layers_seeded
from potluck.federation import Site


@dataclass
class Stacked:
    """Many sites at once.

    Args:
      group:   at most so many; memory grows with it.
      compile: compile the step: some 10 to 60 seconds at the start, quicker rounds afterwards.
    """

    group: int = 64
    compile: bool = False
    _programs: Programs[Program] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        make, prepare = (PartedProgram, compiled) if self.compile else (Program, as_it_is)
        self._programs = Programs(make, prepare)

    @property
    def remarks(self) -> list[str]:
        """What a user should know about how rounds were run."""
        return self._programs.remarks

    def run(self, orders: Orders) -> Iterator[Sequence[Finished]]:
        """Train the cohort, group by group, the largest sites first."""
        for sites in groups(orders.cohort, self.group):
            yield train_together(orders, sites, self._programs)


def train_together(
    orders: Orders, sites: Sequence[Site], programs: Programs[Program]
) -> list[Finished]:
    """Train some sites of a cohort at once, those whose steps have the same shape stacked."""
    prepared = [orders.made_ready(site) for site in sites]
    finished: dict[str, Finished] = {}
    kinds = alike([ready for ready, _ in prepared if ready is not None])
    for kind, bucket in kinds.items():
        with layers_seeded(bucket):
            results = programs.of(kind, bucket).train(bucket)
        for ready, result in zip(bucket, finish(bucket, *results), strict=True):
            finished[ready.site.name] = Finished(ready.site, *result)
    return [
        finished.get(site.name, Finished(site, None, state))
        for site, (_, state) in zip(sites, prepared, strict=True)
    ]


def groups(cohort: Sequence[Site], most: int) -> list[list[Site]]:
    """The cohort in groups of at most some number of sites, of similar size, equally many."""
    ordered = sorted(cohort, key=len, reverse=True)
    count = -(-len(ordered) // most)
    each = -(-len(ordered) // count)
    return [ordered[first : first + each] for first in range(0, len(ordered), each)]
