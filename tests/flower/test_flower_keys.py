"""Keys and certificates, who may talk to the server, and processes that end when they should."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from deployment import ENVIRONMENT, free_port, until
from typer.testing import CliRunner

from potluck.cli import app
from potluck.errors import PotluckError
from potluck.flower.coordinator import Door, expected_sites, open_run_folder, serving
from potluck.flower.keys import CoordinatorKeys, Invitation, make_keys, valid_until
from potluck.flower.processes import Guarded
from potluck.flower.superlink import OnlySites, allowed
from potluck.study.schema import parse_study


@pytest.fixture
def keys(tmp_path):
    make_keys(tmp_path, ["station", "herbarium"], ["train.example.org", "10.0.0.5"], 8501)
    return tmp_path


def potluck(*arguments):
    """Run a command in this process and give (exit status, what it said)."""
    result = CliRunner().invoke(app, [str(part) for part in arguments])
    if isinstance(result.exception, PotluckError):
        return 2, str(result.exception)  # as `main` has it
    return result.exit_code, result.output


def test_the_server_is_vouched_for_by_the_authority_under_all_its_names(keys):
    own = CoordinatorKeys(keys / "coordinator")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(own.certificate, own.key)
    for name in ("train.example.org", "10.0.0.5", "localhost", "127.0.0.1"):
        shake_hands(server, Invitation(keys / "sites" / "station").authority, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"):
        shake_hands(server, own.authority, "elsewhere.org")


def test_another_authority_does_not_vouch_for_it(keys, tmp_path):
    make_keys(tmp_path / "other", [], ["train.example.org"], 1)
    own = CoordinatorKeys(keys / "coordinator")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(own.certificate, own.key)
    other = CoordinatorKeys(tmp_path / "other" / "coordinator")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, other.authority, "train.example.org")


def shake_hands(server, authority, name):
    """TLS between a client and a server in memory."""
    client = ssl.create_default_context(cafile=str(authority))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert ends[0].cipher() is not None


def test_secrets_are_readable_by_their_owner_only(keys):
    for path in ("coordinator/ca.key", "coordinator/server.key", "sites/station/key"):
        assert stat.S_IMODE((keys / path).stat().st_mode) == 0o600
    for folder in ("coordinator", "sites/station"):
        assert stat.S_IMODE((keys / folder).stat().st_mode) == 0o700


def test_a_site_gets_its_own_key_and_nothing_of_the_coordinator(keys):
    found = {path.name for path in (keys / "sites" / "station").iterdir()}
    assert found == {"key", "key.pub", "ca.crt", "invitation.json"}
    invitation = Invitation(keys / "sites" / "station")
    invitation.check()
    assert (invitation.site, invitation.address) == ("station", "train.example.org:8501")
    assert (keys / "coordinator" / "sites" / "station.pub").read_bytes() == (
        keys / "sites" / "station" / "key.pub"
    ).read_bytes()


def test_repeating_adds_sites_and_changes_nothing(keys):
    before = {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()}
    assert make_keys(keys, ["station", "survey"], ["elsewhere"], 9) == ["survey"]
    assert all(path.read_bytes() == content for path, content in before.items())
    assert Invitation(keys / "sites" / "survey").address == "train.example.org:8501"
    assert list(CoordinatorKeys(keys / "coordinator").sites()) == ["herbarium", "station", "survey"]


def test_certificates_end_when_they_should(tmp_path):
    make_keys(tmp_path, [], ["localhost"], 1, days=10)
    own = CoordinatorKeys(tmp_path / "coordinator")
    days = (valid_until(own.certificate).timestamp() - time.time()) / 86400
    assert 9.9 < days < 10.1
    authority = x509.load_pem_x509_certificate(own.authority.read_bytes())
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert isinstance(authority.public_key(), ec.EllipticCurvePublicKey)


@pytest.mark.parametrize("name", ["", "../evil", "a/b", ".hidden", "x" * 70])
def test_a_name_that_is_no_file_name_is_refused(name, tmp_path):
    with pytest.raises(PotluckError, match="is no name for a site"):
        make_keys(tmp_path, [name], ["localhost"])


def scope(path, client):
    return {"type": "http", "path": path, "client": (client, 1)}


@pytest.mark.parametrize(
    ("path", "client", "passes"),
    [
        ("/v1/fleet/pull-messages", "203.0.113.7", True),
        ("/v1/control/start-run", "203.0.113.7", False),
        ("/v1/control/register-node", "203.0.113.7", False),
        ("/v1/runtime/acquire-task", "203.0.113.7", False),
        ("/docs", "203.0.113.7", False),
        ("/v1/fleet", "203.0.113.7", False),
        ("//v1/fleet/x", "203.0.113.7", False),
        ("/v1/control/start-run", "127.0.0.1", True),
        ("/v1/control/start-run", "::1", True),
    ],
)
def test_other_machines_may_use_what_is_for_sites_and_nothing_else(path, client, passes):
    assert allowed(scope(path, client)) is passes


def test_a_request_that_may_not_pass_does_not_reach_the_server():
    reached, sent = [], []

    async def app(scope, receive, send):
        reached.append(scope["path"])

    async def send(message):
        sent.append(message)

    middleware = OnlySites(app)
    asyncio.run(middleware(scope("/v1/control/start-run", "203.0.113.7"), None, send))
    assert (reached, sent[0]["status"]) == ([], 403)
    asyncio.run(middleware(scope("/v1/fleet/x", "203.0.113.7"), None, send))
    assert reached == ["/v1/fleet/x"]


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def gone(pid):
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_a_command_ends_with_its_children_when_it_is_stopped(tmp_path, monkeypatch):
    polite = STUBBORN.replace("signal.signal(signal.SIGINT, signal.SIG_IGN)", "")
    started = Guarded.start([sys.executable, "-c", polite], tmp_path, tmp_path / "log", os.environ)
    until(lambda: started.said().strip(), "the command runs")
    child = int(started.said())
    started.stop()
    assert not started.running
    until(lambda: gone(child), "the child is gone", 120)


def test_a_command_ends_when_whoever_started_it_is_killed(tmp_path):
    starter = f"""
import os, sys, time
from pathlib import Path
from potluck.flower.processes import Guarded
polite = {STUBBORN.replace("signal.signal(signal.SIGINT, signal.SIG_IGN)", "")!r}
Guarded.start([sys.executable, "-c", polite], Path("."), Path("log"), os.environ)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", starter], cwd=tmp_path, env=ENVIRONMENT)
    log = tmp_path / "log"
    until(lambda: log.exists() and log.read_text().strip(), "the command runs")
    child = int(log.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: gone(child), "the command's child is gone", 120)


def study(**network):
    return parse_study(
        {"rounds": 1, "federation": {"classes": ["a", "b"]}, "network": network}, "study.toml"
    )


def test_the_study_may_name_the_sites_and_their_order(keys):
    own = CoordinatorKeys(keys / "coordinator")
    assert expected_sites(study(), own) == ("herbarium", "station")
    assert expected_sites(study(sites=["station", "herbarium"]), own) == ("station", "herbarium")
    with pytest.raises(PotluckError, match='lists "survey", which has no key'):
        expected_sites(study(sites=["survey"]), own)
    with pytest.raises(PotluckError, match=r"network\.minimum is 3, but only 2 sites"):
        expected_sites(study(minimum=3), own)


def test_a_run_folder_of_another_kind_is_not_taken_over(tmp_path):
    first = open_run_folder(study(), tmp_path / "run", ("a",), True)
    again = open_run_folder(study(deadline=5), tmp_path / "run", ("a",), True)
    assert again.path == first.path  # how failures are met may change
    assert again.study()["network"]["deadline"] == 5
    assert again.study_hash() == first.study_hash()
    other = study().model_copy(update={"rounds": 2})
    with pytest.raises(PotluckError, match="a run of another study"):
        open_run_folder(other, tmp_path / "run", ("a",), True)


def test_the_server_listens_with_authentication_and_encryption_or_to_this_machine_only(keys):
    arguments = Door(1234, "0.0.0.0", CoordinatorKeys(keys / "coordinator")).arguments
    assert "--enable-supernode-auth" in arguments
    assert "--insecure" not in arguments
    assert Door(1234, "127.0.0.1", None).arguments[:2] == ["--host", "127.0.0.1"]


def test_the_commands_explain_what_is_missing(tmp_path, monkeypatch):
    folder = tmp_path / "tables"
    assert potluck("new", folder, "--kind", "tables")[0] == 0
    monkeypatch.chdir(folder)
    code, said = potluck("keys", "keys", "--site", "herbarium")
    assert (code, "--host" in said) == (2, True)
    host = ("--host", "127.0.0.1", "--port", free_port())
    code, said = potluck("keys", "keys", *host, "--site", "herbarium")
    assert code == 0
    assert "for herbarium, over a safe channel" in said
    invitation = ("--invitation", "keys/sites/herbarium")
    code, said = potluck("join", "sites/herbarium.toml", *invitation)
    assert code == 2
    assert "say which target classes the study has" in said
    code, said = potluck("join", "sites/survey.toml", *invitation)
    assert code == 2
    assert 'the site\'s name is "survey", but the key' in said
    code, said = potluck("coordinate", "study.toml", "--keys", "keys")
    assert code == 2
    assert "there is no ca.crt" in said


def test_bad_data_is_explained_before_anything_is_started(tmp_path, monkeypatch):
    folder = tmp_path / "tables"
    potluck("new", folder, "--kind", "tables")
    monkeypatch.chdir(folder)
    potluck("keys", "keys", "--host", "127.0.0.1", "--site", "herbarium")
    table = folder / "data" / "herbarium.csv"
    table.write_text(table.read_text().replace("setosa", "setoza", 1))
    code, said = potluck(
        "join",
        "sites/herbarium.toml",
        *("--study", "study.toml", "--invitation", "keys/sites/herbarium"),
    )
    assert code == 2
    assert 'unknown label "setoza"; did you mean "setosa"?' in said
    assert not (folder / "sites" / "herbarium-work").exists()


def test_a_port_that_is_taken_is_explained(tmp_path, keys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = open_run_folder(study(), tmp_path / "run", ("station",), True)
        door = Door(taken.getsockname()[1], "127.0.0.1", CoordinatorKeys(keys / "coordinator"))
        with pytest.raises(PotluckError, match="cannot be used"), serving(run, door):
            pass


def test_facts_of_the_invitation_are_plain_json(keys):
    read = json.loads((keys / "sites" / "station" / "invitation.json").read_text())
    assert read == {"site": "station", "coordinator": "train.example.org:8501"}
