"""What `potluck coordinate` does: a run folder, a SuperLink, a run, and following it."""

import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.proto.federation_config_pb2 import SimulationConfig

from potluck.errors import PotluckError
from potluck.flower.assembly import own_part
from potluck.flower.control import Control
from potluck.flower.events import Events
from potluck.flower.keys import CoordinatorKeys
from potluck.flower.memory import Holding, Memory
from potluck.flower.plan import RUN_VARIABLE, NetworkFolder, Plan
from potluck.flower.processes import Guarded, environment
from potluck.study.build import load_federation, make_recipe
from potluck.study.runfolder import RunFolder
from potluck.study.schema import Study

STARTING = 180.0
"""Seconds that a SuperLink has to start."""

LOOK = 5.0
"""Seconds between two looks at whether Flower says that the run has ended."""


@dataclass(frozen=True)
class Door:
    """Where the SuperLink listens, and by what it is known.

    Args:
      port: on this machine.
      bind: which addresses it listens on.
      keys: certificates and admitted keys; None for Flower's simulation runtime, which listens
            to this machine only.
    """

    port: int
    bind: str
    keys: CoordinatorKeys | None

    @property
    def arguments(self) -> list[str]:
        """Of the SuperLink."""
        place = ["--host", self.bind, "--port", str(self.port)]
        if self.keys is None:
            return [*place, "--insecure", "--simulation"]
        return [
            *place,
            "--enable-supernode-auth",
            *("--ssl-ca-certfile", str(self.keys.authority.resolve())),
            *("--ssl-certfile", str(self.keys.certificate.resolve())),
            *("--ssl-keyfile", str(self.keys.key.resolve())),
        ]

    def control(self) -> Control:
        """A connection from this machine."""
        authority = None if self.keys is None else self.keys.authority
        return Control(f"127.0.0.1:{self.port}", authority)


def open_run_folder(study: Study, out: Path, sites: tuple[str, ...], keyed: bool) -> RunFolder:
    """The run folder of a study: a new one, or the one that is there and not finished.

    Args:
      study: the study.
      out:   where it is.
      sites: who may take part.
      keyed: whether they have keys.
    """
    network = NetworkFolder(out / "network")
    if not (out / "study.json").exists():
        folder = RunFolder.create(out, study.resolved(), study.hash())
        network.write_plan(Plan(secrets.token_hex(8), sites, keyed))
        return folder
    folder = RunFolder.open(out)
    if not network.planned:
        raise PotluckError(
            f"{out}: this run was not made by potluck coordinate; choose another --out."
        )
    if folder.study_hash() != study.hash():
        raise PotluckError(
            f"{out}: there is a run of another study here; the study was changed after it was "
            "started. Undo the change, or choose another --out."
        )
    if folder.finished:
        raise PotluckError(f"{out}: this run is finished; choose another --out for a new one.")
    folder.retell(study.resolved())  # how failures are met may change
    return folder


def check_study(study: Study) -> None:
    """Refuse what cannot be coordinated, before anybody connects."""
    if study.federation is None:
        raise PotluckError(
            "this study is a simulation: train it with potluck run, or, on a cluster, with potluck "
            "coordinate --simulate. Sites of a network need a [federation] with its classes."
        )
    own_part(study)
    make_recipe(study)


def expected_sites(study: Study, keys: CoordinatorKeys) -> tuple[str, ...]:
    """Who may take part, in the order in which updates are averaged."""
    known = keys.sites()
    wanted = study.network.sites or list(known)
    for name in wanted:
        if name not in known:
            raise PotluckError(
                f'network.sites lists "{name}", which has no key in {keys.folder}; make one: '
                f'potluck keys {keys.folder.parent} --site "{name}".'
            )
    for number, what in ((study.network.start, "start"), (study.network.minimum, "minimum")):
        if number is not None and number > len(wanted):
            raise PotluckError(
                f"network.{what} is {number}, but only {len(wanted)} sites may take part."
            )
    return tuple(wanted)


def open_simulation(study: Study, out: Path) -> RunFolder:
    """The run folder of a study whose sites Flower's simulation runtime plays.

    Every site's data is stored in it, for the simulated site alone.

    Args:
      study: the study.
      out:   the run folder; on a cluster it must be on a disk that all machines share.
    """
    federation, columns = load_federation(study)
    make_recipe(study).check(federation)
    sites = tuple(site.name for site in federation.sites)
    folder = open_run_folder(study, out, sites, keyed=False)
    aside = {site.name: site for site in federation.validation}
    for number, site in enumerate(federation.sites):
        holding = Holding(site, columns, aside.get(site.name))
        Memory(_simulated(out) / f"{number:06d}").keep_data(holding)
    return folder


@contextmanager
def serving(folder: RunFolder, door: Door, cpus: int = 1) -> Iterator[Iterator[dict[str, Any]]]:
    """Start what the coordinator needs, and end it afterwards, come what may.

    Args:
      folder: the run folder, with a plan.
      door:   where sites connect.
      cpus:   of each simulated site.

    Yields:
      what happens, as it does; it ends with the run.
    """
    network = NetworkFolder(folder.path / "network")
    _check_port(door)
    plan, events = network.plan(), network.events
    events.skip()
    home = (network.path / "flower").resolve()
    home.mkdir(parents=True, exist_ok=True)
    variables = environment(home) | {RUN_VARIABLE: str(folder.path.resolve())}
    # As a file: it needs nothing else of ours, and starts sooner.
    program = str(Path(__file__).with_name("superlink.py"))
    command = [sys.executable, "-P", program, *door.arguments]
    if door.keys is not None:
        # On disk, so that sites that stay connected are still known when this is restarted.
        command += ["--database", str(home / "superlink.db")]
    superlink = Guarded.start(command, home, network.path / "flower.log", variables)
    control = door.control()
    try:
        _wait_for(superlink, control)
        if door.keys is None:
            simulation = SimulationConfig(
                num_supernodes=len(plan.sites), client_resources_num_cpus=cpus, backend="ray"
            )
            run = control.submit({"sites": str(_simulated(folder.path).resolve())}, simulation)
        else:
            control.stop_runs()
            admitted = door.keys.sites()
            # A site of the run whose key was taken away since is not admitted again.
            control.admit({name: admitted[name] for name in plan.sites if name in admitted})
            run = control.submit()
        yield _follow(events, superlink, lambda: control.finished(run))
    finally:
        control.close()
        superlink.stop()


def _follow(
    events: Events, superlink: Guarded, finished: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """What happens, until the run ends."""
    look = time.monotonic()
    while True:
        over = not superlink.running
        if not over and time.monotonic() > look:
            look, over = time.monotonic() + LOOK, finished()
        for event in events.new():
            yield event
            if event["what"] in ("finished", "failed"):
                return
        if over:
            raise PotluckError(
                f"the coordinator's program ended. What was learned so far is kept; the log says "
                f"why: {superlink.log}"
            )
        time.sleep(0.2)


def _wait_for(superlink: Guarded, control: Control) -> None:
    end = time.monotonic() + STARTING
    while not control.ready():
        if not superlink.running or time.monotonic() > end:
            raise PotluckError(f"Flower's SuperLink did not start:\n{superlink.said()}")
        time.sleep(0.1)


def _check_port(door: Door) -> None:
    if door.bind not in ("0.0.0.0", "127.0.0.1"):
        raise PotluckError(
            f"--bind is {door.bind}; it must be 0.0.0.0 (all networks) or 127.0.0.1 (this machine "
            "only), because the coordinator's own programs connect to 127.0.0.1."
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((door.bind, door.port))
        except OSError as error:
            raise PotluckError(
                f"port {door.port} on {door.bind} cannot be used ({error.strerror}); is there "
                "another coordinator? Choose another with --port, and tell the sites."
            ) from None


def _simulated(out: Path) -> Path:
    return out / "network" / "sites"
