"""A live page of a run: `potluck watch`."""

from potluck.watch.server import serving

__all__ = ["serving"]
