"""Local optimisers, step for step against torch.optim."""

import pytest
import torch

import potluck as pl
from potluck.errors import PotluckError

PAIRS = {
    "plain": (pl.SGD(), torch.optim.SGD, {}),
    "decay": (pl.SGD(weight_decay=0.1), torch.optim.SGD, {"weight_decay": 0.1}),
    "momentum": (pl.SGD(momentum=0.9), torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (
        pl.SGD(momentum=0.8, nesterov=True, weight_decay=0.05),
        torch.optim.SGD,
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
    ),
    "adam": (pl.Adam(), torch.optim.Adam, {}),
    "adam-settings": (
        pl.Adam(beta1=0.7, beta2=0.9, epsilon=1e-3, weight_decay=0.2),
        torch.optim.Adam,
        {"betas": (0.7, 0.9), "eps": 1e-3, "weight_decay": 0.2},
    ),
    "adamw": (pl.AdamW(), torch.optim.AdamW, {}),
    "adamw-settings": (
        pl.AdamW(beta1=0.7, beta2=0.9, epsilon=1e-3, weight_decay=0.3),
        torch.optim.AdamW,
        {"betas": (0.7, 0.9), "eps": 1e-3, "weight_decay": 0.3},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_steps_equal_torch_optim(name):
    ours, theirs, settings = PAIRS[name]
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(7, generator=generator, dtype=torch.float64)
    parameter = torch.nn.Parameter(theta.clone())
    reference = theirs([parameter], lr=0.05, **settings)
    state = ours.start(theta)
    for step in range(12):
        gradient = torch.randn(7, generator=generator, dtype=torch.float64)
        lr = 0.05 / (1 + step // 4)  # the learning rate may change on the way
        reference.param_groups[0]["lr"] = lr
        parameter.grad = gradient.clone()
        reference.step()
        before = {part: value.clone() for part, value in state.items()}
        theta, new = ours.step(theta, gradient, state, lr)
        assert torch.allclose(theta, parameter.detach(), rtol=1e-12, atol=1e-14)
        assert all(torch.equal(before[part], state[part]) for part in state)  # pure
        state = new


@pytest.mark.parametrize("sgd", [pl.SGD(), pl.SGD(0.5), pl.SGD(0.9), pl.SGD(0.9, nesterov=True)])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_accumulated_is_how_far_unit_gradients_go(sgd, steps):
    theta = torch.zeros(1, dtype=torch.float64)
    state = sgd.start(theta)
    for _ in range(steps):
        theta, state = sgd.step(theta, torch.ones(1, dtype=torch.float64), state, 1.0)
    assert sgd.accumulated(steps) == pytest.approx(-float(theta), rel=1e-12)


@pytest.mark.parametrize(
    ("optimiser", "message"),
    [
        (pl.SGD(momentum=1.0), "local.optimiser.momentum is 1.0; it must be at least 0 and below"),
        (pl.SGD(momentum=-0.1), "local.optimiser.momentum is -0.1"),
        (pl.SGD(nesterov=True), "nesterov looks ahead along the momentum, but that is 0"),
        (pl.Adam(beta1=1.0), "local.optimiser.beta1 is 1.0"),
        (pl.AdamW(beta2=-1.0), "local.optimiser.beta2 is -1.0"),
    ],
)
def test_settings_that_cannot_train_are_refused(optimiser, message):
    with pytest.raises(PotluckError, match=message):
        pl.LocalTraining(optimiser=optimiser).check()
