"""What a run folder has besides when sites train over a network."""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from potluck.errors import PotluckError
from potluck.flower.declaration import Declaration
from potluck.flower.events import EVENTS, Events
from potluck.messages import Tensors
from potluck.study.files import read_sealed, write_sealed
from potluck.study.tensor_files import read_tensors, write_tensors

RUN_VARIABLE = "POTLUCK_RUN"
"""The environment variable that tells the coordinator's program its run folder."""

PATIENCE = 60.0
"""Seconds to wait for a coordinator that was killed to let go of the run folder."""


@dataclass(frozen=True)
class Plan:
    """What `potluck coordinate` asks for.

    Args:
      run:   which run this is: sites keep their state of each run apart.
      sites: who may take part, in the order in which updates are averaged.
      keyed: whether sites have keys; on Flower's simulation runtime they have not.
    """

    run: str
    sites: tuple[str, ...]
    keyed: bool = True


@dataclass(frozen=True)
class NetworkFolder:
    """What a run over a network has besides: `network/` in its run folder.

        plan.json      which run this is, and who may take part; written by `potluck coordinate`
        admitted.*     what the sites declared when the run was started
        events.jsonl   what happens, for whoever watches

    Args:
      path: where it is.
    """

    path: Path

    @property
    def events(self) -> Events:
        """What happens."""
        return Events(self.path / EVENTS)

    def write_plan(self, plan: Plan) -> None:
        """Say what is to be done."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_sealed(self.path / "plan.json", asdict(plan))

    @property
    def planned(self) -> bool:
        """Whether there is a plan."""
        return (self.path / "plan.json").exists()

    def plan(self) -> Plan:
        """What is to be done."""
        facts = read_sealed(self.path / "plan.json")
        return Plan(facts["run"], tuple(facts["sites"]), facts["keyed"])

    def admit(self, declared: Mapping[str, Declaration], sums: Mapping[str, Tensors]) -> None:
        """Keep what the sites declared at the start of the run."""
        tensors = {
            f"{name}/{index}": value
            for index, part in enumerate(sums.values())
            for name, value in part.items()
        }
        facts = {"sites": [one.facts() for one in declared.values()]}
        write_tensors(self.path / "admitted", tensors, facts)

    def admitted(self) -> tuple[dict[str, Declaration], dict[str, Tensors]]:
        """What the sites declared at the start of the run, by name; empty before."""
        if not (self.path / "admitted.json").exists():
            return {}, {}
        facts = read_sealed(self.path / "admitted.json")
        tensors = read_tensors(self.path / "admitted", facts, "cpu")
        declared = [Declaration.read(one) for one in facts["sites"]]
        sums: dict[str, Tensors] = {one.name: {} for one in declared}
        for address, value in tensors.items():
            name, _, index = address.rpartition("/")
            sums[declared[int(index)].name][name] = value
        return {one.name: one for one in declared}, sums

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let nobody else write to the run folder; one that was killed takes a while to end."""
        with (self.path / "lock").open("w") as file:
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise PotluckError(
                            f"{self.path.parent}: another coordinator works in this run folder."
                        ) from None
                    time.sleep(0.5)
            yield
