"""The server of the live page: what it answers, and what it refuses."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from urllib.parse import quote, urlsplit

import pytest
from watched_runs import record, recorded, served

from potluck.cli import COMMANDS
from potluck.errors import PotluckError
from potluck.watch.server import is_loopback, serving

POTLUCK = [sys.executable, "-m", "potluck"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = recorded(tmp_path_factory.mktemp("runs") / "run", 3, 5, 9)
    with served(folder.path) as address:
        yield address


def ask(address, path, method="GET", **headers):
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


@pytest.mark.parametrize("path", ["/", "/style.css", "/page.js", "/chart.js", "/icon.svg"])
def test_the_page_is_served_with_a_strict_policy(address, path):
    status, body, headers = ask(address, path)
    assert status == 200
    assert body
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in body


def test_head_answers_without_the_body(address):
    status, body, headers = ask(address, "/", "HEAD")
    assert status == 200
    assert body == b""
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(address, method):
    assert ask(address, "/state", method)[0] == 501


@pytest.mark.parametrize(
    "path",
    [
        "/study.json",
        "/../study.json",
        "/page/../../study.json",
        "/%2e%2e/study.json",
        "//etc/passwd",
        "/history.jsonl",
        "/state/",
        "/[",
    ],
)
def test_there_is_nothing_but_the_page_and_the_state(address, path):
    status, body, _ = ask(address, path)
    assert status == 404
    assert body == b"There is nothing here; the page is at /.\n"


def test_a_name_that_a_web_site_made_up_for_this_machine_is_refused(address):
    assert ask(address, "/state", Host="evil.example")[0] == 403
    assert ask(address, "/state", Host="[:::")[0] == 403
    for host in ("localhost:8017", "127.0.0.1", "[::1]:8017"):
        assert ask(address, "/state", Host=host)[0] == 200


@pytest.mark.parametrize("after", ["x", "-1", "1e3", "9" * 10, "²"])
def test_after_must_be_a_number_of_rounds(address, after):
    assert ask(address, f"/state?after={quote(after)}")[0] == 400


def test_only_rounds_that_the_page_lacks_are_sent(address):
    state = json.loads(ask(address, "/state?after=3")[1])
    assert [record["round"] for record in state["records"]] == [4, 5]
    assert state["after"] == 3


def test_a_port_that_is_taken_is_explained(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = pytest.raises(PotluckError, match="--port 0 for any that is free")
        with free, serving(tmp_path, port=port):
            pass


def test_addresses_of_this_machine_only():
    assert all(map(is_loopback, ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "example.org", "192.168.1.7", ""]))


def test_the_command_serves_the_newest_run_until_it_is_stopped(tmp_path):
    recorded(tmp_path / "runs" / "old", 2, 1, 3)
    newest = recorded(tmp_path / "runs" / "new", 2, 1, 3)
    for file in (tmp_path / "runs" / "old").iterdir():
        os.utime(file, (1, 1))
    process = subprocess.Popen(
        [*POTLUCK, "watch", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        state = json.loads(ask(address, "/state")[1])
        assert state["folder"] == "new"
        newest.append(record(2, ["clinic 0", "clinic 1"]))
        assert json.loads(ask(address, "/state")[1])["done"] == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0
        assert process.stdout.read() == "the page is closed.\n"
    finally:
        process.kill()
        process.wait()


def test_listening_on_other_addresses_comes_with_a_warning(tmp_path):
    recorded(tmp_path / "run", 2, 1, 3)
    process = subprocess.Popen(
        [*POTLUCK, "watch", "run", "--port", "0", "--host", "0.0.0.0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = f"http://127.0.0.1:{process.stdout.readline().split('//0.0.0.0:')[1].split()[0]}"
        assert ask(address, "/state", Host="gateway.example")[0] == 200
        process.terminate()
        assert "The page has no password" in process.communicate(timeout=120)[1]
    finally:
        process.kill()
        process.wait()


def test_a_folder_without_a_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = COMMANDS["Train"]["watch"]
    with pytest.raises(PotluckError, match=r"there is no run in .*runs to watch; say which"):
        command()
    with pytest.raises(PotluckError, match="not a run folder"):
        command(tmp_path)
