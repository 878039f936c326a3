"""How strongly the least-squares head is damped: against the probability of all targets."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from potluck.methods.head_sums import evidence_ridge, sums


def problem(samples: int, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (n, 6), and one-hot classes that follow from the first three, but for noise."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(samples, 6, generator=generator, dtype=torch.float64)
    scores = features[:, :3] + noise * torch.randn(samples, 3, generator=generator)
    return features, torch.nn.functional.one_hot(scores.argmax(1), 3).double()


def ridge_of(features: torch.Tensor, targets: torch.Tensor) -> float:
    gram, rows = sums(features, targets).values()
    return evidence_ridge(gram, rows)


@pytest.mark.parametrize(("samples", "noise"), [(8, 0.1), (20, 1.0), (60, 0.1), (60, 5.0)])
def test_no_other_ridge_makes_the_targets_more_probable(samples, noise):
    features, targets = problem(samples, noise, seed=samples)
    with_one = torch.cat([features, torch.ones(samples, 1, dtype=torch.float64)], 1)
    scale = (with_one**2).sum(0).mean()

    def log_probability(ridge: float) -> float:
        shape = torch.eye(samples) + with_one @ with_one.T / (ridge * scale)
        squares = sum(row @ torch.linalg.solve(shape, row) for row in targets.T)
        variance = squares / targets.numel()  # the best one
        normal = MultivariateNormal(torch.zeros(samples, dtype=torch.float64), variance * shape)
        return float(normal.log_prob(targets.T).sum())

    found = log_probability(ridge_of(features, targets))
    assert all(log_probability(10**power) <= found + 1e-6 for power in (-4, -3, -2, -1, 0, 1))


def test_noise_and_few_samples_ask_for_more_ridge():
    assert ridge_of(*problem(40, 5.0, 0)) > ridge_of(*problem(40, 0.1, 0))
    assert ridge_of(*problem(20, 1.0, 1)) > ridge_of(*problem(2000, 1.0, 1))


def test_a_class_that_nobody_has_changes_nothing():
    features, targets = problem(30, 1.0, 2)
    more = torch.cat([targets, torch.zeros(30, 2, dtype=torch.float64)], 1)
    assert ridge_of(features, more) == ridge_of(features, targets)
