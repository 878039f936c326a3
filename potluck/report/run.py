"""A run as the report sees it: what its folder says, as arrays over sites and rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from potluck.errors import PotluckError
from potluck.history import Record
from potluck.study.inventory import Brought, Inventory, read_inventory
from potluck.study.outcome import Outcome, read_outcome
from potluck.study.runfolder import RunFolder

Numbers = NDArray[np.float64]

NOT_CHOSEN, SAT_OUT, ABSENT, TOOK_PART = range(4)
"""What a site did in a round; see `Run.participation`."""

# What a site's steps always report; whatever else there is comes from the method.
_OF_STEPS = ("loss", "samples", "steps", "drift")


@dataclass(frozen=True, eq=False)
class Run:
    """What a run folder says.

    Args:
      path:       the folder.
      study:      the resolved study.
      study_hash: its hash.
      made_by:    versions of what ran it.
      history:    one record per round.
      inventory:  what the sites brought; None for a run that was made before this was written.
      outcome:    what came of it; None for a run that is not finished, or made before.
      finished:   whether its final model is there.
    """

    path: Path
    study: Mapping[str, Any]
    study_hash: str
    made_by: Mapping[str, str]
    history: Sequence[Record]
    inventory: Inventory | None
    outcome: Outcome | None
    finished: bool

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the target classes; numbers for a run that does not say."""
        if self.inventory is not None:
            return self.inventory.classes
        tested = [record["test"] for record in self.history if "test" in record]
        return tuple(map(str, range(len(tested[-1]["per_class"])))) if tested else ()

    @cached_property
    def brought(self) -> dict[str, Brought]:
        """What each site brought, by name, kinds together; empty for a run that does not say."""
        if self.inventory is None:
            return {}
        kinds = list(dict.fromkeys(site.facts.kind for site in self.inventory.sites))
        ordered = sorted(
            self.inventory.sites, key=lambda s: (s.facts.server, kinds.index(s.facts.kind))
        )
        return {site.facts.name: site for site in ordered}

    @cached_property
    def everyone(self) -> tuple[str, ...]:
        """All that trained, kinds together, the server's own data last."""
        known = dict.fromkeys(self.brought)
        known |= dict.fromkeys(name for record in self.history for name in record["cohort"])
        known |= dict.fromkeys(name for record in self.history for name in record["sites"])
        return tuple(known)

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """The sites, without the server."""
        invited = {name for record in self.history for name in record["cohort"]}
        invited |= {name for name, site in self.brought.items() if not site.facts.server}
        return tuple(name for name in self.everyone if name in invited)

    def kind(self, site: str) -> str:
        """The kind of a site's labels."""
        return self.brought[site].facts.kind if site in self.brought else "unknown"

    @cached_property
    def rounds(self) -> NDArray[np.int64]:
        """(R,) the numbers of the rounds."""
        return np.array([record["round"] for record in self.history], dtype=np.int64)

    @cached_property
    def metrics(self) -> dict[str, Numbers]:
        """What sites and the server's training reported: for each number (everyone, R), or NaN."""
        return self._table("sites")

    @cached_property
    def updates(self) -> dict[str, Numbers]:
        """What the server saw of the updates: `weight`, `contribution`, `agreement`, as above."""
        return self._table("updates")

    @cached_property
    def traffic(self) -> dict[str, Numbers]:
        """Bytes that went `down` to and came `up` from each site, as above."""
        return self._table("bytes")

    @property
    def method_metrics(self) -> dict[str, Numbers]:
        """The part of `metrics` that the method added."""
        return {name: table for name, table in self.metrics.items() if name not in _OF_STEPS}

    @cached_property
    def participation(self) -> NDArray[np.int64]:
        """(sites, R): whether a site took part, sat out, was absent, or was not chosen.

        Absent is, over a network, a site that was chosen and did not answer.
        """
        row = {site: i for i, site in enumerate(self.sites)}
        table = np.full((len(self.sites), len(self.history)), NOT_CHOSEN)
        for r, record in enumerate(self.history):
            for site in record["cohort"]:
                out = SAT_OUT if site in record["sat_out"] else ABSENT
                table[row[site], r] = TOOK_PART if site in record["sites"] else out
        return table

    def tested(self, name: Literal["accuracy", "loss"]) -> tuple[Numbers, Numbers]:
        """Rounds in which the model was tested, and a number of the test."""
        found = [
            (record["round"], record["test"][name]) for record in self.history if "test" in record
        ]
        return _columns(found)

    @cached_property
    def validated(self) -> tuple[Numbers, Numbers]:
        """Rounds with validation, and the accuracy there."""
        return _columns([(r["round"], r["validation"]) for r in self.history if "validation" in r])

    @cached_property
    def seconds(self) -> Numbers:
        """(R,) how long each round took, evaluation included."""
        return np.array([record.get("seconds", np.nan) for record in self.history], dtype=float)

    def _table(self, part: str) -> dict[str, Numbers]:
        row = {name: i for i, name in enumerate(self.everyone)}
        shape = (len(self.everyone), len(self.history))
        tables: dict[str, Numbers] = {}
        for r, record in enumerate(self.history):
            for site, numbers in record.get(part, {}).items():
                for name, value in numbers.items():
                    if name not in tables:
                        tables[name] = np.full(shape, np.nan)
                    if value is not None:
                        tables[name][row[site], r] = value
        return tables


def read_run(path: Path) -> Run:
    """Read what a report needs from a run folder.

    Args:
      path: the folder; the run may still be going on.

    Raises:
      PotluckError: it is no run folder, or no round is done yet.
    """
    folder = RunFolder.open(path)
    history = folder.history()
    if not history:
        raise PotluckError(
            f"{path}: no round of this run is done yet, so there is nothing to see. Go on with "
            f"it: potluck resume {path}"
        )
    return Run(
        path=path,
        study=folder.study(),
        study_hash=folder.study_hash(),
        made_by=folder.made_by(),
        history=history,
        inventory=read_inventory(path),
        outcome=read_outcome(path),
        finished=folder.finished,
    )


def _columns(pairs: Sequence[tuple[int, float | None]]) -> tuple[Numbers, Numbers]:
    table = np.array(pairs, dtype=float).reshape(-1, 2)
    return table[:, 0], table[:, 1]
