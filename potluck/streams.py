"""Random streams: every draw has an address, so results do not depend on who ran first."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, *address: int | str) -> int:
    """A 63-bit seed for the draws at an address.

    Args:
      seed:    the study's seed.
      address: e.g. (round, site, "batches"). Different addresses give independent streams.
    """
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in address)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stream(seed: int, *address: int | str) -> torch.Generator:
    """A CPU generator for the draws at an address; see `derive`."""
    return torch.Generator().manual_seed(derive(seed, *address))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Layers that draw for themselves (dropout) use this seed; nothing else is disturbed."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        # Not torch.manual_seed: it would also reseed accelerators that were not forked.
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
