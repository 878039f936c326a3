"""Controlling a SuperLink from its own machine: admit keys, submit and stop runs."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.federation_config_pb2 import SimulationConfig
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from potluck import __version__
from potluck.errors import PotluckError

APP = f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "potluck-run"
version = "{__version__}"
description = "Potluck's programs, which every party has installed."
license = {{ text = "Apache-2.0" }}
dependencies = []

[tool.flwr.app]
publisher = "potluck"

[tool.flwr.app.components]
serverapp = "potluck.flower.server_app:server_app"
clientapp = "potluck.flower.client_app:client_app"

[tool.flwr.app.config]
sites = ""
"""
"""The app that Flower ships to all parties: it only names programs that they have installed."""


class Control:
    """A connection to a SuperLink.

    Args:
      address:   HOST:PORT, on this machine.
      authority: the certificate by which to know it; None for a plain-text connection.
    """

    def __init__(self, address: str, authority: Path | None) -> None:
        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=authority is None,
            root_certificates=None if authority is None else authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="potluck")],
        )

    def ready(self) -> bool:
        """Whether the SuperLink answers."""
        try:
            self._client.ListNodes(ListNodesRequest())
        except httpx.TransportError:
            return False
        return True

    def admit(self, keys: Mapping[str, Path]) -> None:
        """Admit these keys and no others.

        Args:
          keys: the public keys, by the name of the site.
        """
        wanted = {name: _public_key(path) for name, path in keys.items()}
        with _explained("admit keys"):
            nodes = self._client.ListNodes(ListNodesRequest()).nodes_info
            here = {node.name: node for node in nodes if not node.unregistered_at}
            for name, node in here.items():
                if wanted.get(name) != node.public_key:
                    self._client.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
            for name, key in wanted.items():
                if name not in here or here[name].public_key != key:
                    self._client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def stop_runs(self) -> None:
        """Stop whatever an earlier coordinator left running."""
        with _explained("stop earlier runs"):
            for run_id, run in self._client.ListRuns(ListRunsRequest()).run_dict.items():
                if run.status.status != "finished":
                    self._client.StopRun(StopRunRequest(run_id=run_id))

    def submit(
        self, config: Mapping[str, str] | None = None, simulation: SimulationConfig | None = None
    ) -> int:
        """Start a run of our programs.

        Args:
          config:     what all parties are told; nothing, over a network.
          simulation: how Flower's simulation runtime is to play the sites.

        Returns:
          Flower's number of the run.
        """
        data, _ = build_fab_from_files({"pyproject.toml": APP.encode()})
        fab = Fab(hashlib.sha256(data).hexdigest(), data, {})
        request = StartRunRequest(
            fab=fab_to_proto(fab),
            override_config=user_config_to_proto(dict(config or {})),
            override_federation_config=simulation,
        )
        with _explained("start the run"):
            return int(self._client.StartRun(request).run_id)

    def finished(self, run: int) -> bool:
        """Whether Flower says that a run has ended; one that says nothing is asked again."""
        try:
            runs = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict
        except httpx.TransportError:  # a busy server may drop a connection that was idle
            return False
        return runs[run].status.status == "finished"

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _public_key(path: Path) -> bytes:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except ValueError as error:
        raise PotluckError(f"{path}: not a public key ({error}).") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise PotluckError(f"{path}: not a key of the kind that potluck keys makes.")
    return public_key_to_bytes(key)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise PotluckError(f"Flower's SuperLink did not {what}: {error}") from None
