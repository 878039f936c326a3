"""The consortium example, from keys to the final model, as real processes under TLS.

One run serves all tests here: it takes most of a minute. It has one round, since most of a round
is starting processes; what sites keep between rounds, test_network_faults.py looks at.
"""

import csv
import http.client
import json
import shutil
import signal
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from deployment import BIN, Eavesdropper, belonging, free_port, kill, stage, until
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from potluck.flower.keys import make_keys
from potluck.study.build import prepare
from potluck.study.execute import run_study
from potluck.study.model_files import load_model
from potluck.study.runfolder import RunFolder
from potluck.study.schema import read_study

EXAMPLE = Path(__file__).parents[2] / "examples" / "consortium"
OTHERS = ["zero", "two", "three", "five", "six"]
"""The classes that the private site does not have."""


class Consortium:
    """What is left of the run."""

    def __init__(self, folder: Path, ear: Eavesdropper, finished, refused, plain):
        self.folder = folder
        self.run = RunFolder.open(folder / "run")
        self.finished = finished
        self.refused = refused
        self.plain = plain
        self._ear = ear

    def wire(self, site: str) -> tuple[bytes, bytes]:
        """(what a site sent, what it received)."""
        public = (self.folder / "keys" / "sites" / site / "key.pub").read_bytes()
        return self._ear.of(b64encode(public_key_to_bytes(load_ssh_public_key(public))))


def strangers(scene, folder: Path) -> dict[str, object]:
    """Sites that must be refused: with a key that nobody registered, with another authority."""
    shutil.copytree(folder / "sites", folder / "strange", ignore=shutil.ignore_patterns("*-work"))
    make_keys(folder / "other", ["wards", "registry"], ["127.0.0.1"], 1)
    found = {}
    for name, site, missing in (("key", "wards", "ca.crt"), ("authority", "registry", "key")):
        own = folder / "other" / "sites" / site
        for part in (missing, "invitation.json"):
            (own / part).write_bytes((folder / "keys" / "sites" / site / part).read_bytes())
        found[name] = scene.start(
            f"stranger-{name}",
            BIN / "potluck",
            "join",
            folder / "strange" / f"{site}.toml",
            *("--invitation", own, "--folder", folder / f"stranger-{name}"),
        )
    return found


def signalled(folder: Path, how: signal.Signals) -> None:
    """Send a signal to what the hospital's site has started for a message."""
    for pid in belonging(str(folder / "sites" / "hospital-work"), "flwr-clientapp"):
        kill(pid, how)


def gone(strangers: dict[str, object], folder: Path) -> bool:
    """Whether all have given up; a site is held meanwhile, so that the run does not end before."""
    signalled(folder, signal.SIGSTOP)
    return all(one.process.poll() is not None for one in strangers.values())


def spoken_plainly(port: int) -> str:
    """What a server says to somebody who does not encrypt."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return f"it answered: {connection.getresponse().status}"
    except (http.client.HTTPException, OSError):
        return "refused"
    finally:
        connection.close()


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """The example, run by its script, with strangers at the door and an ear on the wire."""
    folder = tmp_path_factory.mktemp("consortium")
    port, listen = free_port(), free_port()
    with stage(folder) as scene:
        script = scene.start(
            "script",
            *("bash", EXAMPLE / "run.sh", folder),
            PORT=str(port),
            LISTEN=str(listen),
            ROUNDS="1",
        )
        keys = folder / "keys" / "coordinator"
        until((folder / "keys" / "sites" / "hospital" / "key.pub").exists, "there are keys")
        until((keys / "sites" / "hospital.pub").exists, "all keys are admitted")
        ear = Eavesdropper(listen, keys / "server.crt", keys / "server.key", keys / "ca.crt")
        ear.start(port)
        events = folder / "run" / "network" / "events.jsonl"
        until(events.exists, "the coordinator's program runs")
        refused = strangers(scene, folder)
        plain = spoken_plainly(listen)
        until(lambda: gone(refused, folder), "strangers are refused")
        signalled(folder, signal.SIGCONT)
        found = {name: (one.wait(), one.said()) for name, one in refused.items()}
        finished = script.wait(), script.said()
        ear.stop()
        yield Consortium(folder, ear, finished, found, plain)


def test_the_script_runs_from_keys_to_an_evaluated_model(consortium):
    code, said = consortium.finished
    assert code == 0, said
    for expected in (
        "wards brings 600 samples, labels: bags",
        "registry brings 450 samples, labels: coarse",
        "hospital brings 185 samples, labels: subset, private",
        "All 10 classes can be separated",
        "training starts with 3 sites",
        "round 1 of 1: 3 of 3 sites",
        "test accuracy after 1 round",
        "predicted right",  # potluck evaluate
    ):
        assert expected in said
    assert consortium.run.finished


def test_it_ends_with_the_bytes_of_the_same_study_in_one_process(consortium, tmp_path):
    sites = [f"sites/{name}.toml" for name in ("wards", "registry", "hospital")]
    listed = f"federation.sites={json.dumps(sites)}"
    settings = ["rounds=1", listed, "run.engine=sequential"]
    study = read_study(consortium.folder / "study.toml", settings)
    run_study(study, prepare(study), tmp_path / "run", lambda record: None)
    one, two = load_model(consortium.run), load_model(RunFolder.open(tmp_path / "run"))
    assert torch.equal(one.state.theta, two.state.theta)
    for sent, kept in zip(one.history, two.history, strict=True):
        assert sent["test"] == kept["test"]
        for site, metrics in sent["sites"].items():
            assert metrics == pytest.approx(kept["sites"][site], rel=1e-5)


def test_the_history_has_bytes_for_every_site_and_no_failures(consortium):
    for record in consortium.run.history():
        assert record["failed"] == {}
        assert record["bytes"].keys() == {"wards", "registry", "hospital"}
        parameters = 4 * len(load_model(consortium.run).network.layout)
        assert all(parameters < record["bytes"][site]["up"] for site in ("wards", "registry"))


def test_a_key_that_is_not_registered_is_refused_in_words(consortium):
    code, said = consortium.refused["key"]
    assert code == 2
    assert "does not admit this site: its key is not registered" in said


def test_a_server_with_another_certificate_is_refused_in_words(consortium):
    code, said = consortium.refused["authority"]
    assert code == 2
    assert "is not the one that this site knows" in said


def test_a_plain_text_connection_is_refused(consortium):
    assert consortium.plain == "refused"


def test_on_the_wire_there_are_no_inputs_and_no_labels(consortium):
    data = consortium.folder / "data"
    with (data / "wards.csv").open() as file:
        rows = list(csv.reader(file))[1:40]
    sent, received = consortium.wire("wards")
    assert len(sent) > 20_000
    for row in rows:
        pixels = np.array(row[:64], dtype=np.float64)
        for kind in (np.uint8, np.float32, np.float64):
            assert pixels.astype(kind).tobytes() not in sent + received
            assert (pixels / 255).astype(np.float32).tobytes() not in sent + received
    assert b"ward " not in sent + received  # what its bags are called
    codes = b"".join(consortium.wire("registry"))
    assert not any(name in codes for name in (b"straight", b"curly"))  # and its labels


def test_on_the_wire_there_are_no_bag_priors_and_no_sizes(consortium):
    with (consortium.folder / "data" / "wards-shares.csv").open() as file:
        shares = [row[1:] for row in list(csv.reader(file))[1:]]
    everything = b"".join(b"".join(consortium.wire(site)) for site in ("wards", "registry"))
    for row in shares:
        assert np.array(row, dtype=np.float64).tobytes() not in everything
        assert np.array(row, dtype=np.float32).tobytes() not in everything
        assert not any(value.encode() in everything for value in row if len(value) > 6)


def test_on_the_wire_a_private_site_hears_of_no_class_and_no_site_but_its_own(consortium):
    sent, received = consortium.wire("hospital")
    assert b"seven" in sent  # it tells the coordinator its classes, so this is the right wire
    for name in [*OTHERS, "wards", "registry"]:
        assert name.encode() not in received, name
    assert b'"classes"' not in received.replace(b"\\", b"")
    kept = (consortium.folder / "sites" / "hospital-work").rglob("*")
    stored = b"".join(path.read_bytes() for path in kept if path.is_file())
    assert not any(name.encode() in stored for name in OTHERS)


def test_on_the_wire_no_other_site_hears_of_the_private_one(consortium):
    for site in ("wards", "registry"):
        received = consortium.wire(site)[1]
        assert b"hospital" not in received
        assert b"seven" not in received
