"""The coordinator's program, which Flower starts: gathers the sites, then runs the rounds.

`potluck coordinate` says by environment variable which run folder it is for, and follows the
events that are noted there.
"""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from potluck.errors import PotluckError
from potluck.flower.assembly import assemble, inventory, own_part, terms_for
from potluck.flower.declaration import verdict
from potluck.flower.events import Events
from potluck.flower.gathering import Gathering, Present
from potluck.flower.grid import INTERVAL, PromptGrid
from potluck.flower.plan import RUN_VARIABLE, NetworkFolder
from potluck.flower.processes import end_with_parent
from potluck.flower.strategy import Policy, Rounds, Setup
from potluck.history import Record
from potluck.study.execute import conclude, keeping, last_state, open_run
from potluck.study.inventory import write_inventory
from potluck.study.presence import Presence, read_presence, update_presence, write_presence
from potluck.study.schema import Study


def coordinate(grid: Grid, path: Path) -> None:
    """Gather the sites and run the rounds of a run folder, from where it is.

    Args:
      grid: where sites connect.
      path: the run folder, with a plan in it.
    """
    study, folder = open_run(path)
    network = NetworkFolder(path / "network")
    events = network.events
    plan = network.plan()
    if study.run.threads is not None:
        torch.set_num_threads(study.run.threads)
    own = own_part(study)
    declared, sums = network.admitted()
    present: dict[str, Present] = {}
    if declared and plan.keyed:
        # They were admitted when the run was started, and are told so with every message.
        _reunite(grid, study, declared, events)
    else:
        standardise = study.standardise == "federation"
        gathering = Gathering(
            grid, own.space, plan.sites, plan.keyed, standardise, events.note, declared
        )
        present = gathering.wait(study.network.start or len(plan.sites))
    if not declared:
        declared = {name: present[name].declared for name in plan.sites if name in present}
        sums = {name: present[name].sums for name in declared}
    prepared = assemble(study, own, list(declared.values()), list(sums.values()))
    known = {site.name: site for site in prepared.federation.sites}
    terms = {name: terms_for(study, plan.run, one, known[name]) for name, one in declared.items()}
    network.admit(declared, sums)
    write_inventory(path, inventory(list(declared.values()), prepared))
    events.note(what="verdict", text=verdict(list(declared.values()), prepared.federation))

    def nodes(grid: Grid) -> dict[str, int]:
        if plan.keyed:
            return {node.name: node.node_id for node in grid.get_nodes()}
        return {name: presence.node for name, presence in present.items()}

    def on_round(record: Record) -> None:
        events.note(what="round", round=record["round"], failed=record["failed"])
        _tell_presence(path, record["cohort"], record["failed"])

    wanted = study.network
    policy = Policy(wanted.deadline, wanted.minimum, wanted.retries, wanted.absence)
    setup = Setup(
        prepared.network,
        prepared.recipe,
        prepared.federation,
        terms,
        nodes,
        policy,
        study.run.evaluate_every,
        study.run.checkpoint_every,
    )
    state = last_state(study, prepared, folder)
    events.note(what="start", round=state.round, sites=list(declared))
    away = set(declared) - nodes(grid).keys()
    _tell_presence(path, declared, dict.fromkeys(away, "is not connected"))
    with keeping(study, folder, on_round) as keep:
        state = Rounds(setup, state, keep).train(grid)
    conclude(study, prepared, folder, state)
    events.note(what="finished")


def _tell_presence(path: Path, sites: Iterable[str], failed: Mapping[str, str]) -> None:
    """Say which of some sites answered, and why the others did not."""
    news = {name: Presence.now(name not in failed, failed.get(name, "")) for name in sites}
    write_presence(path, update_presence(read_presence(path), news))


def _reunite(grid: Grid, study: Study, admitted: Iterable[str], events: Events) -> None:
    """Wait for the sites of a run that goes on: for all of them, but no longer than for a round."""
    end = time.monotonic() + study.network.deadline
    missing = set(admitted)
    told: set[str] = set()
    while missing and time.monotonic() < end:
        missing = set(admitted) - {node.name for node in grid.get_nodes()}
        if missing - told:
            told |= missing
            events.note(what="waiting", sites=sorted(missing))
        time.sleep(INTERVAL)


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Coordinate the run that the environment names."""
    end_with_parent()
    path = Path(os.environ[RUN_VARIABLE])
    network = NetworkFolder(path / "network")
    try:
        with network.locked():
            study, _ = open_run(path)
            coordinate(PromptGrid(grid, study.network.absence), path)
    except PotluckError as error:
        network.events.note(what="failed", why=str(error))
        raise
