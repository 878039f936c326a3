"""What came of a run: `evaluation.json` and `evaluation.safetensors` in its folder.

Written after the last round, for `potluck report`, which sees the run folder and no data: what
the final model takes for what on the test set, how well calibrated it is, and the meaning of
labels that sites have estimated (the correspondence of FedMT).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from potluck.study.array_files import Array, read_arrays, write_arrays
from potluck.study.files import read_sealed

STEM = "evaluation"


@dataclass(frozen=True, eq=False)
class Tested:
    """What the final model does on the test set: an `Examination` (`engines/evaluation.py`).

    Args:
      confusion:   (K, K) how many samples of the row's class were predicted as the column's.
      calibration: (BINS, 3) for the predictions whose probability falls into a bin: how many
                   there are, the sum of these probabilities, how many are right.
    """

    confusion: Array
    calibration: Array


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a run.

    Args:
      rounds:         after how many rounds.
      test:           the final model on the test set; None without one.
      correspondence: for each site that estimated what its labels mean, (Z, K) P(label | class).
    """

    rounds: int
    test: Tested | None
    correspondence: Mapping[str, Array]


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write an outcome into a run folder."""
    sites = list(outcome.correspondence)
    arrays = {f"correspondence.{i}": outcome.correspondence[site] for i, site in enumerate(sites)}
    if outcome.test is not None:
        arrays["confusion"] = outcome.test.confusion
        arrays["calibration"] = outcome.test.calibration
    write_arrays(folder / STEM, arrays, {"rounds": outcome.rounds, "correspondence": sites})


def read_outcome(folder: Path) -> Outcome | None:
    """The outcome in a run folder; None for a run that is not finished, or older than this file."""
    path = (folder / STEM).with_suffix(".json")
    if not path.exists():
        return None
    facts = read_sealed(path)
    arrays = read_arrays(folder / STEM, facts)
    test = None
    if "confusion" in arrays:
        test = Tested(arrays["confusion"], arrays["calibration"])
    found = {
        site: arrays[f"correspondence.{index}"]
        for index, site in enumerate(facts["correspondence"])
    }
    return Outcome(facts["rounds"], test, found)
