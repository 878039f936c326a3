"""Scalars for TensorBoard: `potluck run --tensorboard DIR`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from potluck.errors import PotluckError
from potluck.history import Record
from potluck.study.execute import OnRound


@contextmanager
def logged(
    on_round: OnRound, directory: Path | None, classes: Sequence[str], done: int = 0
) -> Iterator[OnRound]:
    """`on_round`, and the scalars of each round written for TensorBoard.

    Args:
      on_round:  what else is to be called with each round's record.
      directory: where the event file goes; None to write none.
      classes:   names of the target classes.
      done:      rounds done already, for a run that goes on: what was logged beyond them is void.
    """
    if directory is None:
        yield on_round
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise PotluckError(
            f"--tensorboard needs the package {error.name}, which is not installed here; install "
            "it: pip install 'potluck[tensorboard]', or leave out --tensorboard."
        ) from None

    with SummaryWriter(str(directory), purge_step=done + 1) as writer:

        def log(record: Record) -> None:
            for tag, value in scalars(record, classes).items():
                writer.add_scalar(tag, value, record["round"])
            writer.flush()
            on_round(record)

        yield log


def scalars(record: Record, classes: Sequence[str]) -> dict[str, float]:
    """A round's numbers by their names in TensorBoard, which groups them by the first part.

    Args:
      record:  the round's.
      classes: names of the target classes.
    """
    found = {"run/learning rate": record["lr"], "run/seconds": record.get("seconds")}
    if test := record.get("test"):
        found |= {"model/accuracy": test["accuracy"], "model/loss": test["loss"]}
        accuracies = zip(classes, test["per_class"], strict=False)
        found |= {f"accuracy by class/{name}": value for name, value in accuracies}
    found["model/validation"] = record.get("validation")
    for site, metrics in record["sites"].items():
        found |= {f"{name} by site/{site}": value for name, value in metrics.items()}
    return {tag: value for tag, value in found.items() if value is not None and value == value}
