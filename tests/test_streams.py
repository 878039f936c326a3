"""Random streams by address."""

import itertools

import torch

from potluck.streams import derive, stream


def test_an_address_gives_the_same_stream_every_time():
    draws = [torch.rand(5, generator=stream(3, 7, "ward-3", "batches")) for _ in range(2)]
    assert torch.equal(*draws)


def test_seeds_do_not_change_between_versions():
    # Results on paper depend on these numbers: a change here changes every result.
    assert derive(0) == 4761921975702974394
    assert derive(3, 7, "ward-3", "batches") == 3859709716403760860


def test_different_addresses_give_different_streams():
    parts = [0, 1, 12, "0", "1", "12", "a", "b", "ab", ""]
    addresses = [
        (seed, *address)
        for seed in (0, 1, -1)
        for length in range(3)
        for address in itertools.product(parts, repeat=length)
    ]
    assert len({derive(*address) for address in addresses}) == len(addresses)


def test_numbers_and_texts_are_different_addresses():
    assert derive(0, 1) != derive(0, "1")
    assert derive(0, 1, 2) != derive(0, 12)
    assert derive(0, "ab", "c") != derive(0, "a", "bc")


def test_seeds_fit_a_generator():
    seeds = [derive(0, i) for i in range(1000)]
    assert min(seeds) >= 0
    assert max(seeds) < 2**63
    assert max(seeds) > 2**62  # all bits are used


def test_neighbouring_streams_are_not_correlated():
    draws = torch.stack([torch.randn(4000, generator=stream(0, i, "a")) for i in range(20)])
    correlation = torch.corrcoef(draws) - torch.eye(20)
    assert correlation.abs().max() < 0.08


def test_making_a_stream_leaves_the_global_one_alone():
    before = torch.get_rng_state()
    torch.rand(3, generator=stream(0, "x"))
    assert torch.equal(before, torch.get_rng_state())
