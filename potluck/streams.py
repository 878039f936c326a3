"""Random streams: every draw has an address, so results do not depend on who ran first."""

import hashlib

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
