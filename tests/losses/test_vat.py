"""The adversarial divergence: it finds the worst direction, and its gradient is the right one."""

import pytest
import torch

from potluck.losses.vat import adversarial_divergence


def problem(dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(5, 3, generator=generator, dtype=dtype)
    inputs = torch.randn(4, 5, generator=generator, dtype=dtype)
    noise = torch.randn(4, 5, generator=generator, dtype=dtype)
    return weight, inputs, noise


def kl(weight, inputs, shifted):
    p, q = (inputs @ weight).log_softmax(1), (shifted @ weight).log_softmax(1)
    return (p.exp() * (p - q)).sum(1)


def test_one_power_iteration_by_hand():
    weight, inputs, noise = problem()
    found = adversarial_divergence(lambda x: x @ weight, inputs, noise, epsilon=0.1)
    # for a linear model the divergence's Hessian is W (diag p − p pᵀ) Wᵀ
    p = (inputs @ weight).softmax(1)
    fisher = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    hessian = weight @ fisher @ weight.T
    direction = (hessian @ (noise / noise.norm(dim=1, keepdim=True)).unsqueeze(2)).squeeze(2)
    direction = direction / direction.norm(dim=1, keepdim=True)
    assert torch.allclose(found, kl(weight, inputs, inputs + 0.1 * direction), rtol=1e-2)


def test_the_found_disturbance_is_worse_than_random_ones_of_its_length():
    weight, inputs, noise = problem(torch.float32)
    found = adversarial_divergence(lambda x: x @ weight, inputs, noise, epsilon=0.5)
    generator = torch.Generator().manual_seed(8)
    random = torch.randn(300, 4, 5, generator=generator)
    random = 0.5 * random / random.norm(dim=2, keepdim=True)
    typical = torch.stack([kl(weight, inputs, inputs + shift) for shift in random]).median(0)[0]
    assert (found > 1.5 * typical).all()


def test_the_gradient_is_that_of_the_disturbed_prediction_alone():
    weight, inputs, noise = problem()
    moving = weight.clone().requires_grad_()
    adversarial_divergence(lambda x: x @ moving, inputs, noise, epsilon=0.3).sum().backward()
    # the same with the target and the direction computed beforehand
    fixed = weight.clone().requires_grad_()
    probe = (1e-3 * noise / noise.norm(dim=1, keepdim=True)).requires_grad_()
    (slope,) = torch.autograd.grad(kl(weight, inputs, inputs + probe).sum(), probe)
    shifted = inputs + 0.3 * slope / slope.norm(dim=1, keepdim=True)
    target = (inputs @ weight).softmax(1)
    cross = -(target * (shifted @ fixed).log_softmax(1)).sum()
    cross.backward()
    assert torch.allclose(moving.grad, fixed.grad, atol=1e-6)
    assert moving.grad.abs().max() > 1e-3


def test_a_model_that_ignores_its_inputs_has_no_divergence():
    bias = torch.zeros(3, requires_grad=True)
    inputs, noise = torch.randn(4, 5), torch.randn(4, 5)
    found = adversarial_divergence(lambda x: 0 * x[:, :3] + bias, inputs, noise, epsilon=6.0)
    assert found.tolist() == pytest.approx([0.0] * 4)
