"""Get to know Potluck: demo, new, list."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to average over.")] = 3,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Fewer rounds, for a quick look.")
    ] = None,
) -> None:
    """See the idea: seven sites with seven kinds of labels train one classifier of digits.

    Trains each site alone, all of them together, and a classifier with exact labels for all
    images, and compares them on a test set.
    """
    from potluck import console
    from potluck.demo import demo_study, run_demo, settings
    from potluck.study.build import load_federation

    federation, _ = load_federation(demo_study())
    console.show_sites(federation, federation.identifiability())
    trainings = seeds * sum(1 for _ in settings(federation))
    with console.counting(trainings, f"training, {seeds} seeds") as advance:
        outcome = run_demo(advance, tuple(range(seeds)), rounds)
    console.show_demo(outcome)


def new(
    folder: Path,
    kind: Annotated[
        str, typer.Option(help="simulation: a data set split into sites; tables: sites with CSVs.")
    ] = "simulation",
) -> None:
    """Write a study to start from, with comments, that runs as it is.

    FOLDER is made; it must be empty or not there yet.

    Example: potluck new irises --kind tables
    """
    from potluck import console
    from potluck.study.starters import write_starter

    study = write_starter(folder, kind)
    console.out.print(
        f"Wrote {study}. Next: potluck check {study}, then potluck run {study}",
        markup=False,
        soft_wrap=True,
    )


def list_choices(what: Annotated[str | None, typer.Argument()] = None) -> None:
    """List what a study file can choose from, with options and their defaults.

    WHAT is one of: methods, federated, models, optimisers, schedules, engines, partitions,
    datasets, views (in site files), "simulated views" (in simulations); all when left out.
    """
    from potluck import console
    from potluck.study.catalogue import catalogue

    for title, rows in catalogue(what).items():
        console.show_choices(title, rows)
