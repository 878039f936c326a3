"""Sites that fail, and coordinators that are stopped: the round goes on, and nothing is lost."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from federations import a_grid, a_study, in_process, over_flower
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict

from potluck.errors import PotluckError
from potluck.flower import strategy
from potluck.flower.memory import Memory
from potluck.flower.wire import pack, pack_tensors, unpack_tensors
from potluck.study.model_files import load_model
from potluck.study.presence import read_presence
from potluck.study.runfolder import RunFolder


def theta(run):
    return load_model(run).state.theta


def changed(message: Message, reply: Message, **parts) -> Message:
    """The reply with other parts."""
    content = RecordDict({**reply.content, **parts})
    return Message(content, reply_to=message)


def with_delta(change):
    def tamper(message, reply):
        delta = unpack_tensors(reply.content["delta"])["delta"]
        return changed(message, reply, delta=pack_tensors({"delta": change(delta)}))

    return tamper


def with_facts(**facts):
    def tamper(message, reply):
        known = json.loads(reply.content["facts"]["json"])
        record = ConfigRecord({"json": json.dumps({**known, **facts})})
        return changed(message, reply, facts=record)

    return tamper


def nan(delta):
    delta[3] = float("nan")
    return delta


FAULTS = {
    "nan": (with_delta(nan), "not finite numbers"),
    "infinite": (with_delta(lambda delta: delta / 0), "not finite numbers"),
    "too short": (with_delta(lambda delta: delta[:-1]), r"shape \(\d+,\), expected"),
    "a scalar": (with_delta(lambda delta: delta[0]), r"shape \(\), expected"),
    "doubles": (with_delta(lambda delta: delta.double()), "type torch.float64"),
    "no samples": (with_facts(samples=0), "trained on 0 samples"),
    "too many samples": (with_facts(samples=10**9), "but it declared 40"),
    "odd buffers": (
        lambda message, reply: changed(
            message, reply, buffers=pack_tensors({"running": torch.zeros(3)})
        ),
        "buffers are not those of the model",
    ),
    "odd weights": (
        lambda message, reply: changed(
            message, reply, weights=pack_tensors({"weights": torch.full((11,), -1.0)})
        ),
        "weights are not",
    ),
    "an unknown part": (
        lambda message, reply: changed(message, reply, labels=pack_tensors({"y": torch.ones(2)})),
        'a part "labels"',
    ),
    "no facts": (
        lambda message, reply: Message(RecordDict({"x": ArrayRecord()}), reply_to=message),
        "no readable facts",
    ),
    "nothing": (lambda message, reply: Message(pack({}), reply_to=message), "no update"),
    "a problem": (
        lambda message, reply: Message(pack({"problem": "the disk is full"}), reply_to=message),
        "the disk is full",
    ),
    "an error": (
        lambda message, reply: Message(Error(code=3, reason="node gone"), reply_to=message),
        "failed: node gone",
    ),
    "no reply": (lambda message, reply: None, "did not answer within 9 seconds"),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Three rounds in which nothing happens."""
    return in_process(a_study(rounds=3), tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_site_that_fails_is_left_out_and_named_with_the_reason(fault, tmp_path, undisturbed):
    tampering, reason = FAULTS[fault]

    def tamper(site, message, reply):
        spoilt = message.metadata.message_type == "train" and message.metadata.group_id == "2"
        return tampering(message, reply) if spoilt and site == "clinic" else reply

    study = a_study(rounds=3, network={"deadline": 9})
    run = over_flower(study, a_grid(study, tmp_path, tamper), tmp_path / "run")
    first, second, third = run.history()
    assert first["failed"] == third["failed"] == {}
    assert list(second["failed"]) == ["clinic"]
    assert re.search(reason, second["failed"]["clinic"])
    assert "clinic" not in second["sites"]
    assert set(second["sites"]) == set(third["sites"]) - {"clinic"}
    # What came before is untouched, and what comes after is like the undisturbed run.
    before = undisturbed.history()
    assert first["sites"] == before[0]["sites"]
    assert abs(third["test"]["loss"] - before[2]["test"]["loss"]) < 0.2


def test_a_round_without_a_site_is_the_round_of_a_federation_in_which_it_was_away(tmp_path):
    # The update that was lost must leave no trace at the site either: SCAFFOLD's control variate,
    # the beliefs of its samples, its optimiser.
    study = a_study(
        rounds=3,
        federated="scaffold",
        method="candidate-targets",
        local={
            "lr": 0.1,
            "steps": 3,
            "optimiser_state": "keep",
            "optimiser": {"name": "sgd", "momentum": 0.9},
        },
    )

    def lost(site, message, reply):
        return None if message.metadata.group_id == "2" and site == "undecided" else reply

    class Away:
        def __init__(self):
            self.grid = a_grid(study, tmp_path / "away", self)

        def __call__(self, site, message, reply):
            last = site == "archive" and message.metadata.message_type == "train"
            if last:  # between rounds
                done = int(message.metadata.group_id)
                self.grid.away = {"undecided"} if done == 1 else set()
            return reply

    one = over_flower(study, a_grid(study, tmp_path / "lost", lost), tmp_path / "lost" / "run")
    away = Away()
    two = over_flower(study, away.grid, tmp_path / "away" / "run")
    assert "did not answer" in one.history()[1]["failed"]["undecided"]
    assert two.history()[1]["failed"] == {"undecided": "is not connected"}
    assert read_presence(one.path)["undecided"].present  # it is back by the end
    assert torch.equal(theta(one), theta(two))


def waited(monkeypatch, policy, present):
    """Who is there in two rounds that want the sites a and b, and how often one looked."""
    monkeypatch.setattr(strategy, "INTERVAL", 0.01)
    looks = []

    def nodes(_):
        looks.append(len(looks) + 1)
        return present(len(looks))

    rounds = strategy.Rounds(SimpleNamespace(policy=policy, nodes=nodes), None, None)
    rounds._grid = None
    return [(dict(rounds._connected(["a", "b"])), len(looks)) for _ in range(2)]


def test_a_site_that_comes_back_in_time_is_waited_for(monkeypatch):
    def back(look):
        return {"a": 1} if look < 3 else {"a": 1, "b": 2}

    policy = strategy.Policy(absence=600)
    assert waited(monkeypatch, policy, back) == [({"a": 1, "b": 2}, 3), ({"a": 1, "b": 2}, 4)]


def test_a_site_that_stays_away_is_waited_for_once(monkeypatch):
    for policy in (strategy.Policy(absence=0.1), strategy.Policy(deadline=0.1, absence=0.1)):
        (first, looks), (second, more) = waited(monkeypatch, policy, lambda _: {"a": 1})
        assert first == second == {"a": 1}
        assert looks > 2
        assert more == looks + 1


def test_no_site_is_waited_for_beyond_the_deadline(monkeypatch):
    policy = strategy.Policy(deadline=0.05, absence=600)
    (first, _), _ = waited(monkeypatch, policy, lambda _: {"a": 1})
    assert first == {"a": 1}


def test_a_round_with_too_few_answers_does_not_count_and_is_tried_again(tmp_path, undisturbed):
    tries = []

    def tamper(site, message, reply):
        if message.metadata.message_type != "train" or message.metadata.group_id != "2":
            return reply
        tries.append(site)
        return None if tries.count(site) == 1 and site != "clinic" else reply

    study = a_study(rounds=3, network={"deadline": 9, "minimum": 3})
    run = over_flower(study, a_grid(study, tmp_path, tamper), tmp_path / "run")
    assert torch.equal(theta(run), theta(undisturbed))
    record = run.history()[1]
    assert record["failed"] == {}
    (before,) = record["tried"]
    assert set(before) == {"registry", "wards", "undecided", "secretive", "archive"}


def test_a_run_stops_when_rounds_fail_again_and_again_and_goes_on_later(tmp_path, undisturbed):
    broken = True

    def tamper(site, message, reply):
        return None if broken and message.metadata.group_id == "2" else reply

    study = a_study(rounds=3, network={"deadline": 9, "retries": 1})
    grid = a_grid(study, tmp_path, tamper)
    with pytest.raises(PotluckError, match=r"round 2: fewer than 1 sites answered, 2 times"):
        over_flower(study, grid, tmp_path / "run")
    assert len(RunFolder.open(tmp_path / "run").history()) == 1
    broken = False
    assert torch.equal(theta(over_flower(study, grid, tmp_path / "run")), theta(undisturbed))


class Killed(BaseException):
    """Nobody catches this: like a kill, but for what is on disk."""


@pytest.mark.parametrize(
    ("when", "site"),
    [("1", "archive"), ("4", "wards"), ("5", "clinic")],
)
def test_a_coordinator_killed_in_a_round_resumes_to_the_same_bytes(when, site, tmp_path):
    # A checkpoint every other round: sites must remember further back than the last round.
    study = a_study(
        rounds=5,
        federated="scaffold",
        method="candidate-targets",
        run={"device": "cpu", "checkpoint_every": 2},
    )
    killed = []

    def tamper(name, message, reply):
        if message.metadata.group_id == when and name == site and not killed:
            killed.append(name)
            raise Killed
        return reply

    grid = a_grid(study, tmp_path, tamper)
    with pytest.raises(Killed):
        over_flower(study, grid, tmp_path / "run")
    run = over_flower(study, grid, tmp_path / "run")
    whole = in_process(study, tmp_path / "whole")
    assert torch.equal(theta(run), theta(whole))
    assert [r["sites"] for r in run.history()] == [r["sites"] for r in whole.history()]


def test_sites_forget_what_no_coordinator_will_ask_for(tmp_path):
    study = a_study(rounds=8, run={"device": "cpu", "checkpoint_every": 2})
    grid = a_grid(study, tmp_path)
    over_flower(study, grid, tmp_path / "run")
    folder = next(node.folder for node in grid.nodes.values() if node.name == "clinic")
    # In round 8, seven are done; a coordinator may go back to two checkpoints before: round 3.
    assert Memory(folder).remembered("0123abcd") == [3, 4, 5, 6, 7, 8]


def test_a_site_that_lost_its_memory_says_so_and_may_begin_anew(tmp_path):
    study = a_study(rounds=3, federated="scaffold")

    def tamper(site, message, reply):
        if site == "clinic" and message.metadata.group_id == "1":
            for path in (folder / "runs").rglob("round-*"):
                path.unlink()
        return reply

    grid = a_grid(study, tmp_path, tamper)
    folder = next(node.folder for node in grid.nodes.values() if node.name == "clinic")
    run = over_flower(study, grid, tmp_path / "run")
    _, second, third = run.history()
    assert "kept after round 1 is gone" in second["failed"]["clinic"]
    assert "--forget" in second["failed"]["clinic"]
    assert third["failed"].keys() == {"clinic"}
    presence = read_presence(run.path)
    assert [name for name, one in presence.items() if not one.present] == ["clinic"]
    assert "is gone" in presence["clinic"].reason
    grid = a_grid(study, tmp_path / "again", tamper)
    node = next(node for node in grid.nodes.values() if node.name == "clinic")
    folder, node.forget = node.folder, True
    run = over_flower(study, grid, tmp_path / "again" / "run")
    assert [record["failed"] for record in run.history()] == [{}, {}, {}]


def test_a_site_whose_data_changed_during_the_run_is_left_out(tmp_path):
    study = a_study(rounds=2)

    def tamper(site, message, reply):
        if site == "clinic" and message.metadata.group_id == "1":
            memory = Memory(folder)
            holding = memory.data()
            memory.keep_data(
                type(holding)(holding.site.subset(torch.arange(10)), holding.columns, None)
            )
        return reply

    grid = a_grid(study, tmp_path, tamper)
    folder = next(node.folder for node in grid.nodes.values() if node.name == "clinic")
    run = over_flower(study, grid, tmp_path / "run")
    assert "has changed since it was admitted" in run.history()[1]["failed"]["clinic"]
