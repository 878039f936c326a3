"""Losses: pure functions from tensors to tensors."""

from potluck.losses.likelihood import log_posterior, view_nll
from potluck.losses.soft import soft_cross_entropy

__all__ = ["log_posterior", "soft_cross_entropy", "view_nll"]
