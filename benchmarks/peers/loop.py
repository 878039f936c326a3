"""The loop that most papers' code has: one user after another with `torch.optim`."""

import torch
from problem import Clock, Data, Problem
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

State = dict[str, Tensor]


def train(problem: Problem, data: Data, clock: Clock) -> nn.Module:
    model = problem.network()
    generator = torch.Generator().manual_seed(problem.seed)
    for _ in range(problem.all_rounds):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        total = {name: torch.zeros_like(value) for name, value in before.items()}
        for user in torch.randperm(problem.users, generator=generator)[: problem.cohort].tolist():
            model.load_state_dict(before)
            local_epoch(model, problem, data.inputs[user], data.classes[user], generator)
            for name, value in model.state_dict().items():
                total[name] += value
        model.load_state_dict({name: value / problem.cohort for name, value in total.items()})
        clock.tick()
    return model


def local_epoch(
    model: nn.Module, problem: Problem, inputs: Tensor, classes: Tensor, generator: torch.Generator
) -> None:
    """One user's training."""
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=problem.lr)
    for index in torch.randperm(len(inputs), generator=generator).split(problem.batch):
        optimiser.zero_grad()
        cross_entropy(model(inputs[index]), classes[index]).backward()
        optimiser.step()
