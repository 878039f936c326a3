"""Turning a local gradient towards a global one."""

from torch import Tensor


def alignment_direction(gradient: Tensor, target: Tensor) -> Tensor:
    """The direction whose product with the Hessian is the gradient of the cosine.

    For a loss with gradient g(θ), Hessian H(θ), and a fixed target G,

        ∇_θ cos(g(θ), G) = H v,   v = (G/‖G‖ − cos(g, G) · g/‖g‖) / ‖g‖,

    so that aligning costs one Hessian-vector product and no graph of a graph.

    Args:
      gradient: (P,) g.
      target:   (P,) G.

    Returns:
      (P,) v, orthogonal to g; 0 where g or G is 0, for which no angle is defined.
    """
    size = gradient.norm()
    own, other = _unit(gradient), _unit(target)
    across = other - (own @ other) * own
    return across / size.clamp(min=1e-12) * (size > 0)


def hessian_product(gradient: Tensor, probed: Tensor, direction: Tensor, radius: Tensor) -> Tensor:
    """H v by a forward difference of gradients.

    Args:
      gradient:  (P,) the gradient at θ.
      probed:    (P,) the gradient at θ + radius · v/‖v‖, which `probe` gives.
      direction: (P,) v.
      radius:    () how far the probe went.

    Returns:
      (P,) H v, with an error of the order of the radius.
    """
    return (probed - gradient) * (direction.norm() / radius)


def probe(theta: Tensor, direction: Tensor, share: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Where to take the second gradient for `hessian_product`.

    The step is a share of ‖θ‖: far above float32's rounding, and far below the scale on which
    gradients turn, however wide the model.

    Args:
      theta:     (P,) the current parameters.
      direction: (P,) v.
      share:     length of the step relative to ‖θ‖.

    Returns:
      (P,) the probe, and () its distance from θ.
    """
    radius = (share * theta.norm()).clamp(min=1e-8)
    return theta + radius * _unit(direction), radius


def _unit(vector: Tensor) -> Tensor:
    """(P,) of length 1, or 0."""
    return vector / vector.norm().clamp(min=1e-12)
