"""Gradient alignment: H v is the gradient of the cosine, by every way to work it out."""

import torch
from torch.nn.functional import cosine_similarity

from potluck.losses.alignment import alignment_direction, hessian_product, probe


def loss(theta):
    """A smooth function of five numbers with a Hessian that changes from place to place."""
    a, b, c, d, e = theta
    return torch.sin(a * b) + torch.exp(c * 0.3) * d + (e - a) ** 4 + 0.5 * (theta**2).sum()


def gradient_at(theta):
    theta = theta.detach().requires_grad_()
    return torch.autograd.grad(loss(theta), theta)[0]


def cosine_at(theta, target):
    return cosine_similarity(gradient_at(theta), target, dim=0)


def points():
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        yield torch.randn(2, 5, generator=generator, dtype=torch.float64)


def by_forward_difference(theta, target, share):
    gradient = gradient_at(theta)
    direction = alignment_direction(gradient, target)
    position, radius = probe(theta, direction, share)
    return hessian_product(gradient, gradient_at(position), direction, radius)


def test_forward_difference_matches_the_numeric_gradient_of_the_cosine():
    for theta, target in points():
        step = 1e-5 * torch.eye(5, dtype=torch.float64)
        numeric = torch.stack(
            [(cosine_at(theta + e, target) - cosine_at(theta - e, target)) / 2e-5 for e in step]
        )
        found = by_forward_difference(theta, target, share=1e-7)
        torch.testing.assert_close(found, numeric, rtol=1e-4, atol=1e-6)


def test_forward_difference_matches_double_backward():
    for theta, target in points():
        variable = theta.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(variable), variable, create_graph=True)
        cosine = cosine_similarity(gradient, target, dim=0)
        (exact,) = torch.autograd.grad(cosine, variable)
        torch.testing.assert_close(
            by_forward_difference(theta, target, share=1e-7), exact, rtol=1e-4, atol=1e-6
        )
        # At the share that training uses, the error is of the order of the share.
        error = (by_forward_difference(theta, target, share=1e-3) - exact).norm() / exact.norm()
        assert error < 0.05


def test_direction_is_orthogonal_to_the_gradient():
    for gradient, target in points():
        assert abs(alignment_direction(gradient, target) @ gradient) < 1e-12


def test_no_direction_where_the_angle_is_undefined_or_already_zero():
    vector, nothing = torch.tensor([1.0, 2.0, -1.0]), torch.zeros(3)
    for gradient, target in ((nothing, vector), (vector, nothing), (vector, 3 * vector)):
        direction = alignment_direction(gradient, target)
        assert direction.norm() < 1e-6
        position, radius = probe(vector, direction)
        assert torch.isfinite(position).all()
        assert hessian_product(gradient, gradient, direction, radius).norm() == 0
