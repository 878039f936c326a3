"""What `potluck join` does: check the site's data, then serve the coordinator's messages."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from potluck.errors import PotluckError, one_of
from potluck.flower.events import EVENTS, Events
from potluck.flower.keys import Invitation
from potluck.flower.memory import Holding, Memory
from potluck.flower.processes import Guarded, environment, free_port, program
from potluck.labels import LabelSpace
from potluck.study.sitefile import load_site, read_site_file

AGAIN = 2.0
"""Seconds before a SuperNode that ended is started again."""

TRIES = 2
"""How often a coordinator may refuse a site before it gives up; the first time, the coordinator
may just not have got to admitting keys."""


@dataclass(frozen=True)
class Place:
    """Where and how a site works.

    Args:
      folder: for what the site keeps between rounds.
      device: where it trains.
      forget: whether to begin anew where what it kept is gone.
    """

    folder: Path
    device: str = "cpu"
    forget: bool = False


def check_site(file: Path, invitation: Invitation, space: LabelSpace | None) -> Holding:
    """Read a site's data and check that it is in order and whose key this is.

    Args:
      file:       the site file.
      invitation: its key, and where the coordinator is.
      space:      the target classes, when a study says so; else the site file must.
    """
    invitation.check()
    declared = read_site_file(file)
    if declared.name != invitation.site:
        raise PotluckError(
            f'{file}: the site\'s name is "{declared.name}", but the key in {invitation.folder} is '
            f'that of "{invitation.site}"; use the folder that was made for this site.'
        )
    space = declared.space() or space  # a private site need not know any others
    if space is None:
        raise PotluckError(
            f"{file}: say which target classes the study has, as agreed with the coordinator: "
            'classes = ["…", "…"], or give the study: --study study.toml.'
        )
    site, columns = load_site(file, space)
    return Holding(site, columns)


def chosen_device(wanted: str) -> str:
    """The device to train on; "auto" takes a GPU where there is one."""
    if wanted not in ("cpu", "cuda", "auto"):
        raise PotluckError(one_of("--device", wanted, ("cpu", "cuda", "auto")))
    if wanted == "cuda" and not torch.cuda.is_available():
        raise PotluckError("--device is cuda, but PyTorch finds no GPU here; use cpu or auto.")
    return (
        "cuda" if wanted == "auto" and torch.cuda.is_available() else wanted.replace("auto", "cpu")
    )


@contextmanager
def joined(
    holding: Holding, invitation: Invitation, place: Place
) -> Iterator[Iterator[dict[str, Any]]]:
    """Serve the coordinator's messages, and end what was started afterwards, come what may.

    Args:
      holding:    the site's data.
      invitation: its key, and where the coordinator is.
      place:      where and how it works.

    Yields:
      what the site does, as it does it; without end.
    """
    memory = Memory(place.folder.resolve())
    memory.keep_data(holding)
    events = Events(memory.folder / EVENTS)
    events.skip()
    supernode = _Supernode(memory.folder, invitation, place)
    supernode.start()
    try:
        yield _serve(supernode, events)
    finally:
        supernode.stop()


class _Supernode:
    """Flower's SuperNode, which fetches messages and starts the site's program for each.

    Args:
      folder:     the site's.
      invitation: its key, and where the coordinator is.
      place:      how it works.
    """

    def __init__(self, folder: Path, invitation: Invitation, place: Place) -> None:
        self.invitation = invitation
        self.log = folder / "flower.log"
        self._home = folder / "flower"
        self._config = f'folder="{folder}" device="{place.device}"'
        if place.forget:
            self._config += " forget=true"
        self._node = folder / "node"
        self._process: Guarded | None = None
        self._begin = 0

    def start(self) -> None:
        """Start it."""
        self._home.mkdir(parents=True, exist_ok=True)
        if self._node.exists():  # the one before did not get to say goodbye
            take_leave(self.invitation, int(self._node.read_text()))
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        command = [
            program("flower-supernode"),
            *("--superlink", self.invitation.address),
            *("--root-certificates", str(self.invitation.authority.resolve())),
            *("--auth-supernode-private-key", str(self.invitation.key.resolve())),
            *("--node-config", self._config),
            # Between the SuperNode and its own programs, on this machine only.
            *("--host", "127.0.0.1", "--port", str(free_port())),
        ]
        self._process = Guarded.start(command, self._home, self.log, environment(self._home))

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.running

    def connected(self) -> bool:
        """Whether the coordinator knows it since it was started last."""
        found = re.search(r"SuperNode ID: (\d+)", self.said())
        if found is None:
            return False
        self._node.write_text(found[1])
        return True

    def stop(self) -> None:
        """End it, and wait for that."""
        if self._process is not None:
            self._process.stop()
            if self.connected() and "terminated gracefully" in self.said():
                self._node.unlink()

    def said(self) -> str:
        """What it said since it was started last."""
        with self.log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")


def take_leave(invitation: Invitation, node: int) -> None:
    """Tell the coordinator that a site's former process is gone.

    One that was killed could not say so itself, and Flower would take a new one for an impostor
    until a minute has passed. If there is no coordinator, or it knows already, all the better.

    Args:
      invitation: the site's key, by which the coordinator knows that it is the site who says so.
      node:       Flower's number of the former process.
    """
    key = load_ssh_private_key(invitation.key.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    client = FleetHttpClient.from_server_address(
        invitation.address,
        False,
        invitation.authority.read_bytes(),
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="potluck"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ],
    )
    try:
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))
    except httpx.HTTPError:
        return
    finally:
        client.close()


def _serve(supernode: _Supernode, events: Events) -> Iterator[dict[str, Any]]:
    """What the site does; a SuperNode that ends is started again, unless that is in vain."""
    address = supernode.invitation.address
    waiting = connected = False
    refused = 0
    while True:
        yield from events.new()
        said = supernode.said()
        if not connected and supernode.connected():
            connected, refused = True, 0
            yield {"did": "connected", "address": address}
        if not waiting and not connected and "retrying in" in said:
            waiting = True
            yield {"did": "waiting", "address": address}
        if not supernode.running:
            refused = 0 if connected else refused + 1
            _explain_end(said, address, refused)
            yield {"did": "restarting", "address": address}
            time.sleep(AGAIN)
            waiting = connected = False
            supernode.start()
        time.sleep(0.2)


def _explain_end(said: str, address: str, refused: int) -> None:
    """Give up where the coordinator would refuse this site again and again."""
    lower = said.lower()
    if "certificate" in lower or ("ssl" in lower and "handshake" in lower):
        raise PotluckError(
            f"the server at {address} is not the one that this site knows: its certificate is not "
            "vouched for by ca.crt, or has ended, or is not for that name. Ask the coordinator for "
            "this site's folder anew."
        )
    if refused >= TRIES:
        last = "\n".join(said.strip().splitlines()[-8:])
        raise PotluckError(
            f"the coordinator at {address} does not admit this site: its key is not registered "
            "there, or is in use by another process. Ask the coordinator, and see that potluck "
            f"join runs only once for this site. Flower says:\n{last}"
        )
