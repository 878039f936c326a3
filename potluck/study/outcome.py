"""What came of a run: `evaluation.json` and `evaluation.safetensors` in its folder.

Written after the last round, for `potluck report`, which sees the run folder and no data: what
the final model takes for what on the test set, how well calibrated it is, and the meaning of
labels that sites have estimated (the correspondence of FedMT).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from potluck.engines import ServerState
from potluck.engines.evaluation import Examination, examine
from potluck.federation import Federation
from potluck.study.files import read_sealed, read_tensors, write_pair
from potluck.study.inventory import secret_labels
from potluck.training import Trained

STEM = "evaluation"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a run.

    Args:
      rounds:         after how many rounds.
      test:           the final model on the test set; None without one.
      correspondence: for each site that estimated what its labels mean, (Z, K) P(label | class).
    """

    rounds: int
    test: Examination | None
    correspondence: Mapping[str, Tensor]


def take_outcome(trained: Trained, federation: Federation) -> Outcome:
    """Examine a trained model.

    Args:
      trained:    the model and the server's final state.
      federation: who took part.
    """
    test = None
    if federation.test is not None:
        inputs, classes = federation.test
        test = examine(trained.probabilities(inputs), classes.cpu())
    return Outcome(trained.state.round, test, _correspondences(trained.state, federation))


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write an outcome into a run folder."""
    sites = list(outcome.correspondence)
    tensors = {f"correspondence.{i}": outcome.correspondence[site] for i, site in enumerate(sites)}
    if outcome.test is not None:
        tensors["confusion"] = outcome.test.confusion
        tensors["calibration"] = outcome.test.calibration
    write_pair(folder / STEM, tensors, {"rounds": outcome.rounds, "correspondence": sites})


def read_outcome(folder: Path) -> Outcome | None:
    """The outcome in a run folder; None for a run that is not finished, or older than this file."""
    path = (folder / STEM).with_suffix(".json")
    if not path.exists():
        return None
    facts = read_sealed(path)
    tensors = read_tensors(folder / STEM, facts, "cpu")
    test = None
    if "confusion" in tensors:
        test = Examination(tensors["confusion"], tensors["calibration"])
    found = {
        site: tensors[f"correspondence.{index}"]
        for index, site in enumerate(facts["correspondence"])
    }
    return Outcome(facts["rounds"], test, found)


def _correspondences(state: ServerState, federation: Federation) -> dict[str, Tensor]:
    """What sites that label in another space believe their labels to mean, if the method asks."""
    found = {}
    for site in federation.sites:
        kept = state.sites.get(site.name)
        matrix = None if kept is None else kept.method.get("correspondence")
        if matrix is not None and site.view.kind != "exact" and not secret_labels(site):
            found[site.name] = matrix.float().cpu()
    return found
