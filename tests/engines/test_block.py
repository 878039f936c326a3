"""Memory for the tensors of some sites: what is copied into it, and what is there already."""

import torch

from potluck.engines.block import Block, Still
from potluck.engines.trees import Lengths, copy_all

OWN, ROOM = Lengths(samples=2, symbols=3, pool=2), Lengths(samples=4, symbols=4, pool=4)


def samples(value):
    return {"inputs": torch.full((2, 5), value), "symbols": torch.zeros(2, dtype=torch.int64)}


def test_what_lies_in_a_still_block_is_not_copied_again():
    block, tree = Still(samples(0.0), OWN, ROOM, sites=2), samples(1.0)
    pairs = block.place(1, tree)
    copy_all(pairs)
    assert len(pairs) == 2
    assert block.tree["inputs"][1, :2].eq(1).all()
    assert not block.tree["inputs"][0].any()
    assert block.place(1, tree) == []
    assert len(block.place(0, tree)) == 2  # another row does not have it
    changed = {**tree, "inputs": torch.full((2, 5), 3.0)}
    ((target, value),) = block.place(1, changed)
    assert value is changed["inputs"]
    assert target.data_ptr() == block.tree["inputs"][1].data_ptr()


def test_what_nobody_looked_at_is_copied_once_somebody_does():
    block, tree = Still(samples(0.0), OWN, ROOM, sites=1), samples(1.0)
    ((_, value),) = block.place(0, tree, unread={0})
    assert value is tree["symbols"]
    ((_, value),) = block.place(0, tree)
    assert value is tree["inputs"]


def moving(vector, seen):
    return {"vector": vector, "method": {"beliefs": torch.full((2, 3), seen)}}


def test_what_sites_share_is_copied_to_all_of_them_at_once():
    theta = torch.arange(4.0)
    block = Block(moving(theta, 0.0), OWN, ROOM, sites=3)
    pairs = block.place_all([moving(theta, 1.0), moving(theta, 2.0)])
    copy_all(pairs)
    assert len(pairs) == 2  # the beliefs
    assert block.tree["vector"].tolist() == [theta.tolist(), theta.tolist(), [0.0] * 4]
    assert block.tree["method"]["beliefs"][:, :2, 0].tolist() == [[1, 1], [2, 2], [0, 0]]


def test_sites_that_start_elsewhere_get_their_own():
    block = Block(moving(torch.zeros(4), 0.0), OWN, ROOM, sites=2)
    copy_all(block.place_all([moving(torch.ones(4), 0.0), moving(torch.full((4,), 2.0), 0.0)]))
    assert block.tree["vector"].tolist() == [[1.0] * 4, [2.0] * 4]
