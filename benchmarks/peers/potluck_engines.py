"""Potluck, through its Python API, on one of its engines."""

import torch
from problem import Clock, Data, Problem
from torch import nn

import potluck as pl
from potluck.engines import ENGINES, start
from potluck.engines.rounds import one_round
from potluck.models import as_classifier
from potluck.models.network import Network


def train(problem: Problem, data: Data, clock: Clock, engine: str, **options: bool) -> nn.Module:
    space = pl.LabelSpace.numbered(10)
    view = pl.exact(space)
    sites = [
        pl.Site.of(f"user {number}", inputs, view, classes)
        for number, (inputs, classes) in enumerate(zip(data.inputs, data.classes, strict=True))
    ]
    federation = pl.Federation.of(sites)
    recipe = pl.Recipe(
        rounds=problem.planned,
        seed=problem.seed,
        cohort=problem.cohort,
        local=pl.LocalTraining(lr=problem.lr, batch_size=problem.batch),
    )
    recipe.check(federation)
    network, chosen = Network(as_classifier(problem.network())), ENGINES[engine](**options)
    state = start(network, recipe, federation, torch.device("cpu"))
    for _ in range(problem.all_rounds):
        state, _ = one_round(network, recipe, federation, chosen, state)
        clock.tick()
    clock.remarks = list(getattr(chosen, "remarks", []))
    return network.module(state.theta, state.buffers)
