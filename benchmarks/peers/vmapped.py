"""What an expert writes by hand for one model: `torch.compile` over a `vmap`ped SGD step."""

import torch
from problem import Clock, Data, Problem
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

Parameters = dict[str, Tensor]


def train(problem: Problem, data: Data, clock: Clock) -> nn.Module:
    model = problem.network().train()
    theta = {name: value.detach().clone() for name, value in model.named_parameters()}

    def loss(own: Parameters, inputs: Tensor, classes: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, own, (inputs,)), classes)

    def step(own: Parameters, inputs: Tensor, classes: Tensor) -> Parameters:
        slope = grad(loss)(own, inputs, classes)
        return {name: value - problem.lr * slope[name] for name, value in own.items()}

    together = torch.compile(vmap(step, randomness="different"))
    generator = torch.Generator().manual_seed(problem.seed)
    rows = torch.arange(problem.cohort)[:, None]
    for _ in range(problem.all_rounds):
        cohort = torch.randperm(problem.users, generator=generator)[: problem.cohort]
        order = torch.rand(problem.cohort, problem.samples, generator=generator).argsort(1)
        inputs, classes = data.inputs[cohort], data.classes[cohort]
        own = {
            name: value.expand(problem.cohort, *value.shape).clone()
            for name, value in theta.items()
        }
        for index in order.split(problem.batch, 1):
            own = together(own, inputs[rows, index], classes[rows, index])
        theta = {name: value.mean(0) for name, value in own.items()}
        clock.tick()
    model.load_state_dict(theta)
    return model
