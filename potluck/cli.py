"""The command line: parse, call, print."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="potluck",
    help="Federated learning where every site brings the labels it has.",
    epilog="Start with: potluck demo. Then: potluck new my-study, potluck check, potluck run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

StudyFile = Annotated[Path, typer.Argument(help="The study file (TOML), or a run's study.json.")]
RunPath = Annotated[Path, typer.Argument(help="A run folder that potluck run wrote.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("-o", "--override", help="Replace a value, e.g. -o method.tau=0.9 (repeatable)."),
]
Scale = Annotated[
    str | None, typer.Option(help="Use the study's [scales.NAME] values, e.g. small.")
]


@app.command()
def run(
    study: StudyFile,
    override: Overrides = None,
    scale: Scale = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make; runs/NAME-HASH when left out.")
    ] = None,
) -> None:
    """Train the federation that a study file describes.

    Everything is checked before training starts. The run folder gets the resolved study, one
    history line per round, checkpoints, and at the end the model with its label space. A run
    that is stopped, however it is stopped, goes on with [bold]potluck resume[/].
    """
    from potluck import console
    from potluck.study.execute import prepare, run_study
    from potluck.study.schema import read_study

    checked = read_study(study, override or (), scale)
    prepared = prepare(checked)
    console.show_sites(prepared.federation, prepared.federation.identifiability())
    folder = out or Path("runs") / f"{_slug(checked.name)}-{checked.hash()[:8]}"
    console.out.print(f"run folder: {folder}", markup=False)
    with console.progress(checked.rounds, title=checked.name) as on_round:
        trained = run_study(checked, prepared, folder, on_round)
    console.show_result(trained, folder)


@app.command()
def resume(
    folder: RunPath,
    previous: Annotated[
        int,
        typer.Option(
            "--previous", count=True, help="Pass over the newest checkpoint (a damaged one)."
        ),
    ] = 0,
) -> None:
    """Go on with a run that was stopped; the result is as if it had never been."""
    from potluck import console
    from potluck.study import checkpoint
    from potluck.study.execute import open_run, prepare, resume_run

    study, opened = open_run(folder)
    done = next(iter(checkpoint.available(opened.checkpoints)[previous:]), 0)
    with console.progress(study.rounds, done, title=study.name) as on_round:
        trained = resume_run(study, prepare(study), opened, on_round, previous)
    console.show_result(trained, folder)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A study file, or a site file.")],
    study: Annotated[
        Path | None, typer.Option(help="For a site file: the study whose classes it must fit.")
    ] = None,
    override: Overrides = None,
    scale: Scale = None,
) -> None:
    """Check a study or a site file without training: data, labels, and whether they suffice.

    For a study, also says which classes the federation can tell apart from the labels its
    sites have, before any time is spent on training.
    """
    from potluck import console
    from potluck.federation import Federation
    from potluck.study.build import prepare, study_classes
    from potluck.study.schema import read_study
    from potluck.study.sitefile import is_site_file, load_site

    if is_site_file(file):
        site, _ = load_site(file, study_classes(study, file))
        federation = Federation.of([site])
        console.show_sites(federation, federation.identifiability())
        console.out.print("[green]The site file is in order.[/]")
        return
    checked = read_study(file, override or (), scale)
    prepared = prepare(checked)
    console.show_sites(prepared.federation, prepared.federation.identifiability())
    console.show_plan(checked, prepared)
    console.out.print("[green]The study is in order.[/]")


@app.command()
def predict(
    folder: RunPath,
    data: Annotated[
        Path, typer.Argument(help="CSV/Parquet table, NPZ file, folder of images, or site file.")
    ],
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("predictions.csv"),
    site: Annotated[
        Path | None, typer.Option(help="Predict in the label space of this site file.")
    ] = None,
) -> None:
    """Predict classes for new samples: one row each, with the probability of every class.

    With --site, predictions are in that site's own labels (its coarse codes, its bags).
    """
    from potluck import console
    from potluck.study.predictions import predict_file

    count, names = predict_file(folder, data, site, out)
    console.out.print(f"{count:,} predictions over {len(names)} labels: {out}", markup=False)


@app.command()
def evaluate(
    folder: RunPath,
    data: Annotated[
        Path | None,
        typer.Option(help="A site file with labels to compare with; the study's test set if none."),
    ] = None,
) -> None:
    """Evaluate a finished run on its test set, or on a site file's labelled samples.

    A site file may use any view: predictions are compared in its own labels.
    """
    from potluck import console
    from potluck.study.predictions import evaluate_run

    evaluation, names = evaluate_run(folder, data)
    console.show_evaluation(evaluation, names)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    kind: Annotated[
        str, typer.Option(help="simulation: a data set split into sites; tables: sites with CSVs.")
    ] = "simulation",
) -> None:
    """Write a study to start from, with comments, that runs as it is."""
    from potluck import console
    from potluck.study.starters import write_starter

    study = write_starter(folder, kind)
    console.out.print(f"Wrote {study}. Next: potluck check {study}", markup=False)


@app.command(name="list")
def list_choices(
    what: Annotated[
        str | None,
        typer.Argument(help="methods, models, federated, views, partitions, datasets, …"),
    ] = None,
) -> None:
    """List what a study file can choose from, with options and their defaults."""
    from potluck import console
    from potluck.study.catalogue import catalogue

    for title, rows in catalogue(what).items():
        console.show_choices(title, rows)


@app.command()
def demo() -> None:
    """See the idea: seven sites with seven kinds of labels train one classifier of digits."""
    from potluck import console
    from potluck.demo import SEEDS, demo_study, run_demo, settings
    from potluck.study.build import load_federation

    federation, _ = load_federation(demo_study())
    console.show_sites(federation, federation.identifiability())
    trainings = len(SEEDS) * sum(1 for _ in settings(federation))
    with console.counting(trainings, f"training, {len(SEEDS)} seeds") as advance:
        outcome = run_demo(advance)
    console.show_demo(outcome)


def main() -> None:
    """Run the command line; a problem that the user can mend is one sentence, no traceback."""
    from potluck.errors import PotluckError

    try:
        app()
    except PotluckError as error:
        from potluck import console

        console.complain(error)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        typer.echo("stopped; what was computed is kept: potluck resume RUN goes on.", err=True)
        raise SystemExit(130) from None


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split()) or "study"
