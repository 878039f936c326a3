"""The demonstration: seven sites, seven kinds of labels, one classifier."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import mean, stdev

import torch

from potluck.engines import Recipe
from potluck.federation import Federation
from potluck.study.build import load_federation, make_recipe
from potluck.study.schema import Study, parse_study
from potluck.study.sitefile import read_toml_text
from potluck.training import train


@dataclass(frozen=True)
class Row:
    """Test accuracy of one way to train, over the seeds."""

    name: str
    labels: str
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return mean(self.accuracies)

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0


@dataclass(frozen=True)
class Outcome:
    """What the demonstration found: each site alone, all together, and with all labels."""

    alone: tuple[Row, ...]
    together: Row
    supervised: Row

    @property
    def best_alone(self) -> Row:
        """The site that does best by itself."""
        return max(self.alone, key=lambda row: row.mean)


def demo_study(seed: int = 0) -> Study:
    """The study that the demonstration runs."""
    text = files("potluck").joinpath("templates/digits.toml").read_text(encoding="utf-8")
    return parse_study({**read_toml_text(text, "the demo"), "seed": seed}, "the demo")


def settings(federation: Federation) -> Iterator[tuple[str, str, Federation]]:
    """The ways to train that are compared: (name, kind of labels, federation)."""
    for site in federation.sites:
        yield site.name, site.view.kind, replace(federation, sites=(site,))
    yield "the federation", "all of the above", federation
    yield "full supervision", "exact, on the same images", federation.revealed()


def run_demo(
    on_trained: Callable[[], None], seeds: tuple[int, ...], rounds: int | None = None
) -> Outcome:
    """Train every setting with every seed.

    Args:
      on_trained: called after each training.
      seeds:      of the split, the labels and the training.
      rounds:     how many; the study's own number when left out.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # these models are too small to share among cores
    try:
        results = [_one_seed(demo_study(seed), rounds, on_trained) for seed in seeds]
    finally:
        torch.set_num_threads(threads)
    rows = [
        Row(name, labels, tuple(accuracy[name] for accuracy in results))
        for name, labels, _ in settings(load_federation(demo_study())[0])
    ]
    return Outcome(tuple(rows[:-2]), rows[-2], rows[-1])


def _one_seed(study: Study, rounds: int | None, on_trained: Callable[[], None]) -> dict[str, float]:
    recipe = make_recipe(study)
    recipe = replace(recipe, rounds=rounds or recipe.rounds)
    federation, _ = load_federation(study)
    accuracy = {}
    for name, _, part in settings(federation):
        accuracy[name] = _accuracy(part, recipe)
        on_trained()
    return accuracy


def _accuracy(federation: Federation, recipe: Recipe) -> float:
    assert federation.test is not None
    return train(replace(federation, test=None), recipe).evaluate(*federation.test).accuracy
