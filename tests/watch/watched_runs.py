"""Run folders for the tests of the live page."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from potluck.study.build import prepare
from potluck.study.execute import run_study
from potluck.study.runfolder import RunFolder
from potluck.study.schema import Study, parse_study
from potluck.watch import serving

STUDY = {
    "name": "three <b>registries</b>",
    "rounds": 9,
    "run": {"device": "cpu"},
    "simulation": {
        "dataset": "digits",
        "sites": [
            {"name": "north", "samples": 40, "view": {"kind": "exact"}},
            {"name": "south", "samples": 40, "view": {"kind": "candidates", "rho": 0.2}},
            {"name": "<i>archive</i>", "samples": 40, "view": {"kind": "unlabeled"}},
        ],
    },
}


def study(**changes) -> Study:
    return parse_study({**STUDY, **changes}, "study")


def recorded(path: Path, sites: int, rounds: int, of: int) -> RunFolder:
    """A run folder as a long run with many sites leaves it, without the training."""
    resolved = study(rounds=of)
    folder = RunFolder.create(path, resolved.resolved(), resolved.hash())
    names = [f"clinic {i}" for i in range(sites)]
    for number in range(1, rounds + 1):
        folder.append(record(number, names))
    return folder


def record(number: int, names: list[str]) -> dict:
    return {
        "round": number,
        "lr": 0.1,
        "cohort": names,
        "sat_out": names[:1],
        "sites": {
            name: {"loss": 2 / number + i / 100, "drift": 1 / number}
            for i, name in enumerate(names[1:])
        },
        "test": {"accuracy": 1 - 0.9**number, "loss": 2 / number, "per_class": []},
        "seconds": 0.5,
    }


class SteppedRun:
    """A real run whose rounds end when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._allowed = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._study = study()
        self._prepared = prepare(self._study)
        self._thread.start()
        while self._thread.is_alive() and not (folder / "study.json").exists():
            time.sleep(0.01)

    def step(self, rounds: int) -> None:
        """Let so many more rounds begin; the first needs no leave."""
        self._allowed.release(rounds)

    def end(self) -> None:
        self.step(self._study.rounds)
        self._thread.join(timeout=300)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        run_study(self._study, self._prepared, self.folder, lambda _: self._allowed.acquire())


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a run's page."""
    with serving(folder, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.address
        finally:
            server.shutdown()
            thread.join(timeout=120)
