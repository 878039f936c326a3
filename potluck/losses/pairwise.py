"""Losses that combine classifiers over subsets of the classes into one over all of them.

Breitholtz et al. 2025, Federated Learning with Heterogeneous and Private Label Sets, after
Wu, Lin and Weng 2003. A classifier a over the classes Y agrees with p over all classes when
a_y p_y' = a_y' p_y for all pairs y, y' in Y: that is, when p restricted to Y is a multiple of a.
"""

from torch import Tensor


def pairwise(teacher: Tensor, student: Tensor, held: Tensor) -> Tensor:
    """Σ_{y ≠ y' ∈ Y} (a_y p_y' − a_y' p_y)², equation (5), without the double sum.

    By Lagrange's identity the sum is 2 (‖a‖² ‖p‖² − (a·p)²) over Y, or 2 ‖a‖² ‖r‖² with r the
    part of p orthogonal to a. That form costs O(K) and rounds to no negative values.

    Args:
      teacher: (..., K) a: probabilities over Y, 0 elsewhere.
      student: (..., K) p: probabilities over all classes.
      held:    (..., K) 1 on Y and 0 elsewhere; all 0 for no teacher, whose loss is 0.

    Returns:
      (...) losses.
    """
    square = (teacher**2).sum(-1, keepdim=True)
    own = student * held
    along = (teacher * own).sum(-1, keepdim=True) / square.clamp_min(1e-30)
    return 2 * square.squeeze(-1) * ((own - along * teacher) ** 2).sum(-1)


def probability_mse(teacher: Tensor, student: Tensor, held: Tensor) -> Tensor:
    """Σ_{y ∈ Y} (a_y − p_y)², equation (6); arguments and result as in `pairwise`."""
    return (held * (teacher - student) ** 2).sum(-1)
