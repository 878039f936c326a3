"""Train: run, resume, check, audit."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.options import Overrides, Scale

TensorBoard = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Also log to TensorBoard, in a folder of DIR."),
]


def run(
    study: Path,
    override: Overrides = None,
    scale: Scale = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make; runs/NAME-HASH when left out.")
    ] = None,
    tensorboard: TensorBoard = None,
) -> None:
    """Train the federation that a study file describes.

    STUDY is a TOML file ([bold]potluck new[/] writes one to start from), or the study.json of a
    run to repeat.

    Everything is checked before training starts. The run folder gets the resolved study, one
    history line per round, checkpoints, and at the end the model with its label space. A run
    that is stopped, however it is stopped, goes on with [bold]potluck resume[/].

    Example: potluck run study.toml -o rounds=5 --out runs/short
    """
    from potluck import console
    from potluck.study.execute import prepare, run_name, run_study
    from potluck.study.explain import about
    from potluck.study.schema import read_study
    from potluck.study.tensorboard import logged

    checked = read_study(study, override or (), scale)
    with about(study):
        prepared = prepare(checked)
    console.show_sites(prepared.federation, prepared.federation.identifiability())
    folder = out or Path("runs") / run_name(checked)
    console.out.print(f"run folder: {folder}", markup=False, soft_wrap=True)
    log = tensorboard and tensorboard / folder.name
    with (
        _resumable(folder),
        console.progress(checked.rounds, title=checked.name) as advance,
        logged(advance, log, prepared.federation.space.names) as on_round,
    ):
        trained = run_study(checked, prepared, folder, on_round)
    console.show_result(trained, folder)


def resume(
    folder: Path,
    previous: Annotated[
        int,
        typer.Option(
            "--previous",
            count=True,
            help="Pass over the newest checkpoint, which is damaged (repeatable).",
        ),
    ] = 0,
    tensorboard: TensorBoard = None,
) -> None:
    """Go on with a run that was stopped; the result is as if it had never been.

    FOLDER is the run folder that [bold]potluck run[/] made. The study is read from it: the study
    file may have changed or gone, but the data must still be where it was.
    """
    from potluck import console
    from potluck.study import checkpoint
    from potluck.study.execute import open_run, prepare, resume_run
    from potluck.study.explain import about
    from potluck.study.tensorboard import logged

    study, opened = open_run(folder)
    done = next(iter(checkpoint.available(opened.checkpoints)[previous:]), 0)
    with about(folder):
        prepared = prepare(study)
    log = tensorboard and tensorboard / folder.name
    with (
        _resumable(folder),
        console.progress(study.rounds, done, study.name) as advance,
        logged(advance, log, prepared.federation.space.names, done) as on_round,
    ):
        trained = resume_run(study, prepared, opened, on_round, previous)
    console.show_result(trained, folder)


def check(
    file: Path,
    study: Annotated[
        Path | None, typer.Option(help="For a site file: the study whose classes it must fit.")
    ] = None,
    override: Overrides = None,
    scale: Scale = None,
) -> None:
    """Check a study or a site file without training: data, labels, and whether they suffice.

    FILE is a study file, or a site file together with --study.

    For a study, also says which classes the federation can tell apart from the labels its
    sites have, before any time is spent on training. A site can check its own file before
    anything leaves it.

    Example: potluck check sites/survey.toml --study study.toml
    """
    from potluck import console
    from potluck.labels import identifiability
    from potluck.study.build import prepare, study_classes
    from potluck.study.explain import about
    from potluck.study.schema import read_study
    from potluck.study.sitefile import is_site_file, load_site

    if is_site_file(file):
        site, _ = load_site(file, study_classes(study, file))
        console.show_site(site, identifiability({site.name: site.view}))
        return
    checked = read_study(file, override or (), scale)
    with about(file):
        prepared = prepare(checked)
    found = prepared.federation.identifiability()
    console.show_sites(prepared.federation, found)
    console.show_shortfalls(found)
    given = [part for setting in override or () for part in ("-o", setting)]
    command = ["potluck", "run", str(file), *(["--scale", scale] if scale else []), *given]
    console.show_plan(checked, prepared, shlex.join(command))


def audit(study: Path, override: Overrides = None, scale: Scale = None) -> None:
    """List exactly what each site receives and sends, and check that promises are kept.

    STUDY is a study file.

    The first rounds are rehearsed on a few samples with the real engine, and the messages
    listed as they are. The audit fails when a private site would learn anything of the other
    classes, not even their number, or when a site would send a value per sample.

    Example: potluck audit study.toml
    """
    from potluck import console
    from potluck.audit import audit as rehearse
    from potluck.study.build import prepare
    from potluck.study.explain import about
    from potluck.study.schema import read_study

    with about(study):
        prepared = prepare(read_study(study, override or (), scale))
        found = rehearse(prepared.federation, prepared.recipe, prepared.network)
    for line in found.lines():
        console.out.print(line, markup=False, soft_wrap=True)
    found.check()


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Say how to go on when the user interrupts a run."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped; finished rounds are kept. Go on: potluck resume {folder}", err=True)
        raise typer.Exit(130) from None
