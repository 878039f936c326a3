"""Accuracy in the sites' own label space, by the correspondence that each recorded (figure 2a).

    python superclass.py RUN_FOLDER

A finished run of FedMT keeps each site's correspondence in its last checkpoint. The test samples'
labels in that space are the declared correspondence's most likely ones.
"""

import sys
from pathlib import Path

from potluck.methods.fedmt import estimated_view
from potluck.study import checkpoint
from potluck.study.build import load_federation
from potluck.study.model_files import load_model
from potluck.study.runfolder import RunFolder
from potluck.study.schema import read_study


def main(run: Path) -> None:
    """Print the accuracy of every site's recorded view on the test set."""
    folder = RunFolder.open(run)
    federation, _ = load_federation(read_study(run / "study.json"))
    assert federation.test is not None
    inputs, classes = federation.test
    trained = load_model(folder)
    state = checkpoint.load(folder.checkpoints, folder.study_hash())
    for site in federation.sites:
        if site.name not in state.sites:
            continue  # it sat all rounds out
        view = estimated_view(site.view, state.sites[site.name])
        predicted = view.project(trained.probabilities(inputs)).argmax(1)
        right = predicted == site.view.codebook.argmax(0)[classes]
        print(f"{site.name}: {right.double().mean():.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
