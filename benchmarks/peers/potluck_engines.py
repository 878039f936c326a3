"""Potluck, through its Python API, on one of its engines."""

from problem import Clock, Data, Problem
from torch import nn

import potluck as pl
from potluck.engines import ENGINES


def train(problem: Problem, data: Data, clock: Clock, engine: str, **options: bool) -> nn.Module:
    space = pl.LabelSpace.numbered(10)
    view = pl.exact(space)
    sites = [
        pl.Site.of(f"user {number}", inputs, view, classes)
        for number, (inputs, classes) in enumerate(zip(data.inputs, data.classes, strict=True))
    ]
    recipe = pl.Recipe(
        rounds=problem.all_rounds,
        seed=problem.seed,
        cohort=problem.cohort,
        local=pl.LocalTraining(lr=problem.lr, batch_size=problem.batch),
    )
    trained = pl.train(
        pl.Federation.of(sites),
        recipe,
        problem.network(),
        engine=ENGINES[engine](**options),
        on_round=lambda *_: clock.tick(),
    )
    return trained.module()
