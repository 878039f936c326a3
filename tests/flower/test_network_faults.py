"""Processes that are killed, hang or send nonsense, as real processes under TLS.

One run of three rounds has it all. In round 1 a site is killed (-9) while it trains, and another
hangs past the deadline; that one sends NaN in all other rounds. In round 2 the coordinator is
killed, in round 3 the coordinator and a site. Each is started again as a person would.

Nothing depends on the machine's speed. Round 1 has a deadline, and is tried again if it is too
short for the site that is well, the only one that can answer; later rounds have all the time, and
so has a site that was killed to come back.
"""

import csv
import json
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from deployment import BIN, ENVIRONMENT, belonging, free_port, kill, kill_all, stage, until
from federations import over_flower, site_folders
from inprocess import InProcessGrid

from potluck.flower.keys import make_keys
from potluck.study.build import load_federation
from potluck.study.model_files import load_model
from potluck.study.runfolder import RunFolder
from potluck.study.schema import read_study

CLASSES = ["ant", "bee", "cicada"]
SITES = ["steady", "shaky", "poison"]

STUDY = """
rounds = 3
model = "linear"
federated = "scaffold"

[local]
lr = 0.1
steps = 4
batch_size = 16
optimiser = { name = "sgd", momentum = 0.9 }
optimiser_state = "keep"

[run]
threads = 1
device = "cpu"

[federation]
classes = ["ant", "bee", "cicada"]
sites = ["steady.toml", "shaky.toml", "poison.toml"]
test = { kind = "table", path = "test.csv", label = "insect" }

[network]
sites = ["steady", "shaky", "poison"]
retries = 20
absence = 600
"""

LONG = 600
"""Seconds; nothing waits for it."""

SITE = """
name = "{name}"
classes = ["ant", "bee", "cicada"]
data = {{ kind = "table", path = "{name}.csv", label = "insect" }}
view = {{ kind = "exact" }}
"""


def write_files(folder):
    """A study and its sites: three clouds of points; one site's numbers overflow."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(3, 4) * 3
    for name in (*SITES, "test"):
        classes = torch.randint(0, 3, (90,), generator=generator)
        points = centres[classes] + torch.randn(90, 4, generator=generator)
        if name == "poison":
            points = points.sign() * 3e38
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = [[*row, CLASSES[k]] for row, k in zip(points.tolist(), classes, strict=True)]
            csv.writer(file).writerows([["a", "b", "c", "d", "insect"], *rows])
        (folder / f"{name}.toml").write_text(SITE.format(name=name))
    (folder / "study.toml").write_text(STUDY)


def a_deadline():
    """Seconds: enough for a site that is well, on a machine that stays as busy as it now is."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import potluck.flower.client_app"], env=ENVIRONMENT)
    return round(4 + 5 * (time.monotonic() - began))


class Play:
    """The parties and what is known of them."""

    def __init__(self, folder, scene, port):
        self.folder, self.scene, self.port = folder, scene, port
        self.run = folder / "run"
        self.sites = {}

    def coordinate(self, deadline=LONG):
        keys = self.folder / "keys" / "coordinator"
        command = ("coordinate", "study.toml", "--keys", keys, "--out", "run")
        self.coordinator = self.scene.start(
            "coordinator",
            *(BIN / "potluck", *command, "--bind", "127.0.0.1"),
            *("-o", f"network.deadline={deadline}"),
        )

    def join(self, name):
        invitation = self.folder / "keys" / "sites" / name
        self.sites[name] = self.scene.start(
            name, BIN / "potluck", "join", f"{name}.toml", "--invitation", invitation
        )

    def home(self, name):
        return self.folder / f"{name}-work"

    def events(self, name):
        path = self.home(name) / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rounds(self):
        return len(RunFolder(self.run).history())

    def training(self, name, number):
        """Whether a site has received the message of a round."""
        log = self.home(name) / "flower.log"
        return log.exists() and f"ROUND {number}]" in log.read_text(errors="replace")

    def trained(self, name, number):
        return any(e.get("round") == number and e["did"] == "trained" for e in self.events(name))

    def hold(self, name):
        """Stop a site's program, from round 1 on: the handshake needs it."""
        if self.training(name, 1):
            for pid in belonging(str(self.home(name)), "flwr-clientapp"):
                kill(pid, signal.SIGSTOP)

    def let_go(self, name):
        for pid in belonging(str(self.home(name)), "flwr-clientapp"):
            kill(pid, signal.SIGCONT)

    def unfinished(self, true, what):
        """Wait until something is true; one site is held, so that the round waits for it too."""

        def look():
            self.alive()
            self.hold("poison")
            return true()

        until(look, what)

    def alive(self):
        assert self.coordinator.process.poll() is None, self.coordinator.said()
        return True


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    port = free_port()
    write_files(folder)
    make_keys(folder / "keys", SITES, ["127.0.0.1"], port)
    with stage(folder) as scene:
        play = Play(folder, scene, port)
        play.coordinate(a_deadline())
        for name in SITES:
            play.join(name)

        play.unfinished(lambda: play.training("shaky", 1), "shaky trains")
        kill_all(play.sites["shaky"], play.home("shaky"))
        play.unfinished(lambda: play.trained("steady", 2), "steady has trained round 2")
        kill_all(play.coordinator, play.run / "network")
        assert play.rounds() == 1
        play.let_go("poison")
        play.coordinate()
        play.join("shaky")

        until(lambda: play.alive() and play.rounds() == 2, "round 2 is over")
        play.unfinished(lambda: play.training("shaky", 3), "shaky trains again")
        kill_all(play.coordinator, play.run / "network")
        kill_all(play.sites["shaky"], play.home("shaky"))
        assert play.rounds() == 2
        play.let_go("poison")
        play.coordinate()
        play.join("shaky")
        assert play.coordinator.wait() == 0, play.coordinator.said()
        yield play


def test_the_run_completes_in_spite_of_everything(play):
    run = RunFolder.open(play.run)
    assert run.finished
    assert [record["round"] for record in run.history()] == [1, 2, 3]
    assert "training goes on with round 2" in play.coordinator.said()
    assert "training goes on with round 3" in play.coordinator.said()


def test_the_history_names_every_site_that_failed_and_why(play):
    (first, second, third), said = RunFolder.open(play.run).history(), play.coordinator.said()
    # Killed: nobody hears of it, or Flower notices that it is gone, perhaps before a second try.
    gone = "did not answer within|Node Unavailable|is not connected"
    assert re.search(gone, first["failed"]["shaky"])
    assert "did not answer within" in first["failed"]["poison"]  # hung
    assert set(first["sites"]) == {"steady"}
    for record in (second, third):
        assert record["failed"].keys() == {"poison"}
        assert "not finite" in record["failed"]["poison"]
        assert set(record["sites"]) == {"steady", "shaky"}
    assert re.search("round 1: shaky (did not answer|failed|is not connected)", said)


def test_what_was_learned_is_what_those_who_answered_taught_to_the_last_bit(play, tmp_path):
    # The same rounds in one process, without those answers that the history says are missing.
    study = read_study(play.folder / "study.toml")
    missing = [set(record["failed"]) for record in RunFolder.open(play.run).history()]

    def tamper(site, message, reply):
        number = message.metadata.group_id
        return None if number and site in missing[int(number) - 1] else reply

    federation, columns = load_federation(study)
    grid = InProcessGrid(site_folders(federation, tmp_path / "sites", columns), tamper)
    oracle = load_model(over_flower(study, grid, tmp_path / "run"))
    assert torch.equal(load_model(RunFolder.open(play.run)).state.theta, oracle.state.theta)


def test_the_model_is_within_noise_of_the_undisturbed_one(play, tmp_path):
    study = read_study(
        play.folder / "study.toml", ['federation.sites=["steady.toml", "shaky.toml"]']
    )
    federation, columns = load_federation(study)
    grid = InProcessGrid(site_folders(federation, tmp_path / "sites", columns))
    undisturbed = over_flower(study, grid, tmp_path / "run").history()[-1]["test"]
    disturbed = RunFolder.open(play.run).history()[-1]["test"]
    assert disturbed["accuracy"] > 0.8
    assert abs(disturbed["accuracy"] - undisturbed["accuracy"]) < 0.1


def test_a_site_that_was_killed_goes_on_from_what_it_kept(play):
    # Round 1 did not count for it, so round 2 starts from nothing, and round 3 from round 2.
    events = play.events("shaky")
    assert [e["round"] for e in events if e["did"] == "trained"][-1] == 3
    assert not any("is gone" in str(e.get("why")) for e in events)
