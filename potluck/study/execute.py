"""Run a study into a run folder, or go on with one that was stopped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from potluck.engines import ServerState, run, start
from potluck.errors import PotluckError
from potluck.history import Record
from potluck.study import checkpoint
from potluck.study.build import Prepared, prepare
from potluck.study.inventory import write_inventory
from potluck.study.model_files import save_model
from potluck.study.outcome import write_outcome
from potluck.study.runfolder import RunFolder
from potluck.study.schema import Study, parse_study
from potluck.study.stocktaking import take_inventory, take_outcome
from potluck.training import Trained

OnRound = Callable[[Record], None]


def run_study(study: Study, prepared: Prepared, out: Path, on_round: OnRound) -> Trained:
    """Run a study from its first round.

    Args:
      study:    the study.
      prepared: what `prepare` made of it.
      out:      the run folder to make.
      on_round: called with each round's record.
    """
    folder = RunFolder.create(out, study.resolved(), study.hash())
    state = start(prepared.network, prepared.recipe, prepared.federation, prepared.device)
    return _go_on(study, prepared, folder, state, on_round)


def run_name(study: Study, *more: object) -> str:
    """A folder name for a run: the study's name and whatever else in plain letters, and its hash.

    Args:
      study: the study.
      more:  what else to say, where many runs lie side by side.
    """
    words = " ".join(map(str, (study.name, *more))).lower()
    plain = "".join(c if c.isalnum() else " " for c in words).split()
    return "-".join([*(plain or ["study"]), study.hash()[:8]])


def open_run(out: Path) -> tuple[Study, RunFolder]:
    """The study of a run folder, and the folder."""
    folder = RunFolder.open(out)
    return parse_study(folder.study(), str(out / "study.json")), folder


def resume_run(
    study: Study, prepared: Prepared, folder: RunFolder, on_round: OnRound, skip: int = 0
) -> Trained:
    """Go on with a run from its newest checkpoint; the result is as if it had never stopped.

    Args:
      study:    the study of the run folder.
      prepared: what `prepare` made of it.
      folder:   the run folder.
      on_round: called with each further round's record.
      skip:     how many of the newest checkpoints to pass over (a damaged one, say).
    """
    if folder.finished:
        raise PotluckError(f"{folder.path}: this run is finished; there is nothing to resume.")
    state = last_state(study, prepared, folder, skip)
    return _go_on(study, prepared, folder, state, on_round)


def last_state(study: Study, prepared: Prepared, folder: RunFolder, skip: int = 0) -> ServerState:
    """Where a run goes on from; its history ends there too. See `resume_run`."""
    if checkpoint.available(folder.checkpoints):
        state = checkpoint.load(folder.checkpoints, study.hash(), prepared.device, skip)
    else:
        # Stopped before the first checkpoint: nothing is lost by starting over.
        state = start(prepared.network, prepared.recipe, prepared.federation, prepared.device)
    folder.truncate_history(state.round)
    return state


def _go_on(
    study: Study, prepared: Prepared, folder: RunFolder, state: ServerState, on_round: OnRound
) -> Trained:
    if study.run.threads is not None:
        torch.set_num_threads(study.run.threads)
    write_inventory(folder.path, take_inventory(prepared.federation))
    with keeping(study, folder, on_round) as keep:
        state = run(
            prepared.network,
            prepared.recipe,
            prepared.federation,
            prepared.engine,
            state,
            keep,
            study.run.evaluate_every,
        )
    return conclude(study, prepared, folder, state)


@contextmanager
def keeping(
    study: Study, folder: RunFolder, on_round: OnRound
) -> Iterator[Callable[[ServerState, Record], None]]:
    """What to do after each round: write its record, and perhaps a checkpoint.

    Afterwards, all checkpoints are written.
    """
    every = study.run.checkpoint_every
    with checkpoint.Writer(study.hash(), folder.checkpoints) as writer:

        def keep(state: ServerState, record: Record) -> None:
            folder.append(record)
            if state.round % every == 0 or state.round == study.rounds:
                writer.save(state)
            on_round(record)

        yield keep


def conclude(study: Study, prepared: Prepared, folder: RunFolder, state: ServerState) -> Trained:
    """Examine the final model and write it; from then on the run is finished."""
    trained = Trained(prepared.federation.space, prepared.network, state, folder.history())
    write_outcome(folder.path, take_outcome(trained, prepared.federation))
    columns = None if prepared.columns is None else list(prepared.columns)
    save_model(
        folder,
        trained,
        model=study.model,
        input_shape=tuple(prepared.federation.sites[0].inputs.shape[1:]),
        made={
            "study": study.name,
            "method": study.method["name"],
            "columns": columns,
            "inputs": str(prepared.federation.sites[0].inputs.dtype).removeprefix("torch."),
        },
    )
    return trained


__all__ = ["OnRound", "open_run", "prepare", "resume_run", "run_name", "run_study"]
