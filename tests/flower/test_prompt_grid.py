"""Waiting for replies: sites that come back are waited for, those that are lost are not."""

from types import SimpleNamespace

import pytest

from potluck.flower import grid
from potluck.flower.grid import PromptGrid


class Flower:
    """Stands for Flower's grid: it says of a site that is asked about while away that it is gone.

    Args:
      away: for each look, the nodes that are not connected then; the last holds for all later ones.
    """

    def __init__(self, *away):
        self.away, self.looks, self.pulled = away, 0, []

    def _now(self):
        return self.away[min(self.looks, len(self.away)) - 1]

    def push_messages(self, messages):
        return [message.metadata.message_id for message in messages]

    def get_node_ids(self):
        self.looks += 1
        return [node for node in (1, 2) if node not in self._now()]

    def pull_messages(self, ids):
        self.pulled.append(list(ids))
        said = {one: "gone" if int(one) in self._now() else "trained" for one in ids}
        return [
            SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=one), said=what)
            for one, what in said.items()
        ]


def asked(flower, timeout=None, absence=0.1):
    """What is heard of nodes 1 and 2."""
    messages = [
        SimpleNamespace(metadata=SimpleNamespace(message_id=str(node), dst_node_id=node))
        for node in (1, 2)
    ]
    replies = PromptGrid(flower, absence).send_and_receive(messages, timeout=timeout)
    return {reply.metadata.reply_to_message_id: reply.said for reply in replies}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(grid, "INTERVAL", 0.01)


def test_nobody_is_asked_about_a_site_until_it_is_back():
    flower = Flower({2}, {2}, set())
    assert asked(flower) == {"1": "trained", "2": "trained"}
    assert flower.pulled == [["1"], ["2"]]
    assert flower.looks == 3


def test_a_site_that_stays_away_is_given_up():
    flower = Flower({2})
    assert asked(flower) == {"1": "trained", "2": "gone"}
    assert flower.looks > 3


def test_nobody_is_waited_for_beyond_the_deadline():
    assert asked(Flower({2}), timeout=0.1, absence=float("inf")) == {"1": "trained"}


def test_no_messages_no_replies():
    assert PromptGrid(Flower(set()), 0.1).send_and_receive([]) == []
