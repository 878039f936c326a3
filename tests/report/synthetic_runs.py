"""Run folders of any size without any training, for what reads run folders."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from potluck.engines import ServerState
from potluck.engines.evaluation import examine
from potluck.federation import Federation, Site
from potluck.labels import LabelSpace, candidates, coarse, exact, noisy, unlabeled
from potluck.models import build
from potluck.models.network import Network
from potluck.study.inventory import write_inventory
from potluck.study.model_files import save_model
from potluck.study.outcome import Outcome, Tested, write_outcome
from potluck.study.runfolder import RunFolder, hash_of
from potluck.study.stocktaking import take_inventory
from potluck.training import Trained

SAMPLES = 60


def study(seed: int = 0, rounds: int = 3, **changes: Any) -> dict[str, Any]:
    """A resolved study, as far as reports look at it."""
    return {
        "name": "synthetic",
        "seed": seed,
        "rounds": rounds,
        "model": {"name": "linear"},
        "method": {"name": "fedmt", "correspondence": "estimated"},
        "federated": {"name": "fedavg"},
        "local": {"lr": 0.1},
        "run": {"device": "cpu"},
        "folder": ".",
        **changes,
    }


def synthetic_federation(sites: int, classes: int, generator: torch.Generator) -> Federation:
    """Sites of five kinds in turn, with random labels that the kind allows."""
    space = LabelSpace(tuple(f"class {k}" for k in range(classes)))
    groups = max(2, classes // 5)
    mapping = {f"group {g}": list(space.names[g::groups]) for g in range(groups)}
    flip = torch.full((classes, classes), 0.2 / (classes - 1)).fill_diagonal_(0.8)
    made = []
    for number in range(sites):
        truth = torch.randint(classes, (SAMPLES,), generator=generator)
        inputs = torch.rand(SAMPLES, 4, generator=generator)
        mask = torch.rand(SAMPLES, classes, generator=generator) < 0.3
        mask[torch.arange(SAMPLES), truth] = True
        kinds = (
            ("exact", exact(space), truth),
            ("coarse", coarse(space, mapping), truth % groups),
            ("noisy", noisy(space, flip), truth),
            ("candidates", candidates(space, mask), mask),
            ("unlabelled", unlabeled(space), None),
        )
        name, view, labels = kinds[number % len(kinds)]
        made.append(Site.of(f"{name} site {number:02d}", inputs, view, labels, truth))
    test = torch.arange(20 * classes) % classes
    return Federation.of(made, test=(torch.rand(len(test), 4, generator=generator), test))


def synthetic_run(
    path: Path,
    rounds: int = 3,
    sites: int = 5,
    classes: int = 4,
    accuracy: float = 0.9,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    finished: bool = True,
) -> RunFolder:
    """Write a run folder whose numbers are made up.

    Args:
      path:     where.
      rounds:   how many rounds.
      sites:    how many sites.
      classes:  how many classes.
      accuracy: of the last round.
      seed:     of the study and of the numbers.
      changes:  what else differs in the study.
      finished: whether the run came to its end.
    """
    generator = torch.Generator().manual_seed(seed)
    federation = synthetic_federation(sites, classes, generator)
    resolved = study(seed, rounds, **(changes or {}))
    folder = RunFolder.create(path, resolved, hash_of(resolved))
    write_inventory(path, take_inventory(federation))
    names = [site.name for site in federation.sites]
    for number in range(1, rounds + 1):
        cohort = [name for i, name in enumerate(names) if (i + number) % 4]
        draws = torch.rand(len(names), 6, generator=generator).double()
        folder.append(
            {
                "round": number,
                "lr": 0.1,
                "cohort": cohort,
                "sat_out": [name for name in cohort if "unlabelled" in name],
                "sites": {
                    name: {
                        "loss": 2 / number + float(draws[i, 0]),
                        "samples": 60.0,
                        "steps": 4.0,
                        "drift": float(draws[i, 1]),
                        "confident": float(draws[i, 2]),
                        "pseudo_label_accuracy": float(draws[i, 3]),
                        "correspondence_error": float(draws[i, 4]) / number,
                    }
                    for i, name in enumerate(names)
                    if name in cohort and "unlabelled" not in name
                },
                "updates": {
                    name: {
                        "weight": 1 / len(cohort),
                        "contribution": float(draws[i, 5]) / len(cohort),
                        "agreement": 0.5,
                    }
                    for i, name in enumerate(names)
                    if name in cohort and "unlabelled" not in name
                },
                "bytes": {name: {"down": 40_000, "up": 40_000} for name in cohort},
                "test": {
                    "accuracy": accuracy * number / rounds,
                    "loss": 2 / number,
                    "per_class": [accuracy] * classes,
                },
                "seconds": 0.5,
            }
        )
    if finished:
        _finish(folder, federation, generator, rounds)
    return folder


def _finish(
    folder: RunFolder, federation: Federation, generator: torch.Generator, rounds: int
) -> None:
    assert federation.test is not None
    truth, count = federation.test[1], len(federation.space)
    scores = torch.randn(len(truth), count, generator=generator)
    scores[torch.arange(len(truth)), truth] += 4
    estimated = {
        site.name: (site.view.codebook.float() + 0.05)
        .div(1 + 0.05 * len(site.view.codebook))
        .numpy()
        for site in federation.sites
        if site.view.kind == "coarse"
    }
    found = examine(scores.softmax(1), truth)
    test = Tested(found.confusion.numpy(), found.calibration.numpy())
    write_outcome(folder.path, Outcome(rounds, test, estimated))
    network = Network(build("linear", (4,), count))
    state = ServerState(rounds, *network.initial())
    trained = Trained(federation.space, network, state, folder.history())
    made = {"columns": None}
    save_model(folder, trained, model={"name": "linear"}, input_shape=(4,), made=made)
