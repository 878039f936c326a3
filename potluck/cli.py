"""The command line: parse, call, print."""

from collections.abc import Iterator
from contextlib import contextmanager
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

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        help="Replace a value of the study, e.g. -o rounds=5 -o local.lr=0.01 "
        "-o simulation.sites.0.samples=50 (repeatable).",
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=r"Use the values of the study's \[scales.NAME], e.g. small."),
]


# What an argument is, a command's own text says: some versions of typer and click together do
# not show the help of arguments.
@app.command()
def run(
    study: Path,
    override: Overrides = None,
    scale: Scale = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make; runs/NAME-HASH when left out.")
    ] = None,
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
    from potluck.study.execute import prepare, run_study
    from potluck.study.explain import about
    from potluck.study.schema import read_study

    checked = read_study(study, override or (), scale)
    with about(study):
        prepared = prepare(checked)
    console.show_sites(prepared.federation, prepared.federation.identifiability())
    folder = out or Path("runs") / f"{_slug(checked.name)}-{checked.hash()[:8]}"
    console.out.print(f"run folder: {folder}", markup=False, soft_wrap=True)
    with _resumable(folder), console.progress(checked.rounds, title=checked.name) as on_round:
        trained = run_study(checked, prepared, folder, on_round)
    console.show_result(trained, folder)


@app.command()
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
) -> None:
    """Go on with a run that was stopped; the result is as if it had never been.

    FOLDER is the run folder that [bold]potluck run[/] made. The study is read from it: the study
    file may have changed or gone, but the data must still be where it was.
    """
    from potluck import console
    from potluck.study import checkpoint
    from potluck.study.execute import open_run, prepare, resume_run
    from potluck.study.explain import about

    study, opened = open_run(folder)
    done = next(iter(checkpoint.available(opened.checkpoints)[previous:]), 0)
    with about(folder):
        prepared = prepare(study)
    with _resumable(folder), console.progress(study.rounds, done, study.name) as on_round:
        trained = resume_run(study, prepared, opened, on_round, previous)
    console.show_result(trained, folder)


@app.command()
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
    from potluck.study.build import prepare, study_classes
    from potluck.study.explain import about
    from potluck.study.schema import read_study
    from potluck.study.sitefile import is_site_file, load_site

    if is_site_file(file):
        site, _ = load_site(file, study_classes(study, file))
        console.show_site(site)
        return
    checked = read_study(file, override or (), scale)
    with about(file):
        prepared = prepare(checked)
    found = prepared.federation.identifiability()
    console.show_sites(prepared.federation, found)
    console.show_shortfalls(found)
    console.show_plan(checked, prepared, file)


@app.command()
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


@app.command()
def predict(
    folder: Path,
    data: Path,
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("predictions.csv"),
    site: Annotated[
        Path | None, typer.Option(help="Predict the labels of this site file instead of classes.")
    ] = None,
) -> None:
    """Predict classes for new samples: one row each, with the probability of every class.

    FOLDER is the folder of a finished run. DATA is a table (CSV, Parquet), an NPZ file, a folder
    of images, or a site file, whose labels are then not looked at. Rows are written in the order
    in which they are read; images in alphabetical order.

    With --site, predictions are in that site's own labels (its coarse codes, its bags).

    Example: potluck predict runs/irises-1a2b3c4d new.csv --out new-predictions.csv
    """
    from potluck import console
    from potluck.study.predictions import predict_file

    count, names = predict_file(folder, data, site, out)
    console.out.print(
        f"{count:,} predictions over {len(names)} labels: {out}", markup=False, soft_wrap=True
    )


@app.command()
def evaluate(
    folder: Path,
    data: Annotated[
        Path | None,
        typer.Option(help="A site file with labels to compare with; the study's test set if none."),
    ] = None,
) -> None:
    """Evaluate a finished run on its test set, or on a site file's labelled samples.

    FOLDER is the folder of a finished run.

    A site file may use any view that says what is right: predictions are compared in its own
    labels (its coarse codes, its bags).

    Example: potluck evaluate runs/irises-1a2b3c4d --data sites/station.toml
    """
    from potluck import console
    from potluck.study.predictions import evaluate_run

    evaluation, names = evaluate_run(folder, data)
    console.show_evaluation(evaluation, names)


@app.command()
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


@app.command(name="list")
def list_choices(what: Annotated[str | None, typer.Argument()] = None) -> None:
    """List what a study file can choose from, with options and their defaults.

    WHAT is one of: methods, federated, models, optimisers, schedules, engines, partitions,
    datasets, views (in site files), "simulated views" (in simulations); all when left out.
    """
    from potluck import console
    from potluck.study.catalogue import catalogue

    for title, rows in catalogue(what).items():
        console.show_choices(title, rows)


@app.command()
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


def main() -> None:
    """Run the command line; a problem that the user can mend is one sentence, no traceback."""
    from potluck.errors import PotluckError

    try:
        app()
    except PotluckError as error:
        from potluck import console

        console.complain(error)
        raise SystemExit(2) from None


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Say how to go on when the user interrupts a run."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped; finished rounds are kept. Go on: potluck resume {folder}", err=True)
        raise typer.Exit(130) from None


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split()) or "study"


if __name__ == "__main__":
    main()
