"""See what came of runs: report, compare, sweep, reproduce."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.options import Overrides, Scale

if TYPE_CHECKING:
    from potluck.study.limit import Limit
    from potluck.study.papers import Paper
    from potluck.study.reproduction import Plan
    from potluck.study.sweep import Sweep


def report(
    folder: Path,
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file to write; report.html in the run folder when left out."),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Also write each figure as PDF.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Also write each figure as PNG.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Also write each figure as SVG.")] = False,
) -> None:
    """Write a report of a run: one HTML file that opens offline.

    FOLDER is a run folder; the run may still be going on.

    Accuracy and loss, classes and confusions, what each site brought, what labels turned out to
    mean, each site's participation, drift and contribution, time and traffic, and the command to
    do it again. Figures go to a folder named figures beside the report.

    Example: potluck report runs/irises-1a2b3c4d --pdf
    """
    from potluck.report.style import Format
    from potluck.report.write import write_report

    wanted: dict[Format, bool] = {"pdf": pdf, "png": png, "svg": svg}
    page, *figures = write_report(folder, out, [kind for kind, asked in wanted.items() if asked])
    typer.echo(f"report: {page}")
    if figures:
        typer.echo(f"{len(figures)} figures: {figures[0].parent}")


def compare(
    folders: list[Path],
    metric: Annotated[
        str,
        typer.Option(
            help="accuracy, validated, error, validated-error, loss, worst-class, "
            "correspondence-error or seconds."
        ),
    ] = "accuracy",
    x: Annotated[
        str | None,
        typer.Option(
            "--x", metavar="KEY", help="The key of the study to compare along, e.g. local.lr."
        ),
    ] = None,
    test: Annotated[str, typer.Option(help="The paired test: t or wilcoxon.")] = "t",
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for the page, the table (Markdown, LaTeX, CSV) and figures."),
    ] = None,
) -> None:
    """Compare finished runs: mean ± sd over seeds, paired tests, figures.

    FOLDERS are run folders, or folders that hold them, such as a sweep's.

    Runs are grouped by what differs in their studies apart from the seed. Where a number differs
    (or --x says which key), it becomes the columns of the table and the axis of a figure.

    Example: potluck compare runs/* --out comparison
    """
    from potluck import console
    from potluck.report.compare import compare as compared
    from potluck.report.comparing import write_comparison

    found = compared(folders, metric, x, test)  # type: ignore[arg-type]  # checked there
    console.show_table(found.table())
    if out is not None:
        page, *others = write_comparison(found, out)
        typer.echo(f"comparison: {page} (and {len(others)} files: Markdown, LaTeX, CSV, figures)")


def sweep(
    files: list[Path],
    out: Annotated[Path, typer.Option(help="The folder for all runs and the comparison.")],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "-g",
            "--grid",
            metavar="KEY=VALUES",
            help="Values to try for a key, e.g. -g local.lr=0.1,0.01 (repeatable).",
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods to try, e.g. likelihood,fedul.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds, from 0 on; 3 when left out.")
    ] = None,
    override: Overrides = None,
    scale: Scale = None,
    metric: Annotated[
        str, typer.Option(help="What to compare by; see potluck compare.")
    ] = "accuracy",
    x: Annotated[
        str | None, typer.Option("--x", metavar="KEY", help="The key to compare along.")
    ] = None,
) -> None:
    r"""Run many studies in one go: studies × methods × settings × seeds; then compare them.

    FILES are study files, or one sweep file: a TOML file with studies = \[…], and optionally
    methods, seeds, scale, overrides, and a \[grid] of values to try.

    Finished runs are skipped and stopped ones resumed: give the same command again to go on, or a
    larger sweep to train only what is new.

    Example: potluck sweep study.toml -g local.lr=0.1,0.01 --methods likelihood,fedul
    --seeds 5 --out sweep
    """
    from potluck import console
    from potluck.report.compare import compare as compared
    from potluck.report.comparing import write_comparison
    from potluck.study.sweep import rounds_done, run_studies

    planned = _planned(files, grid, methods, seeds, override, scale)
    studies = planned.studies()
    total = sum(study.rounds for study in studies)
    done = sum(rounds_done(study, out) for study in studies)
    typer.echo(f"{len(studies)} runs of {total:,} rounds in all, {done:,} of them done: {out}")
    try:
        with console.sweeping(total, done) as on_round:
            ran = run_studies(studies, out, on_round)
    except KeyboardInterrupt:
        typer.echo("stopped; finished rounds are kept. Go on with the same command.", err=True)
        raise typer.Exit(130) from None
    failed = [one for one in ran if one.error is not None]
    for one in failed:
        console.complain(f"{one.path}: {one.error}")
    if len(failed) < len(ran):
        found = compared([one.path for one in ran if one.error is None], metric, x)
        console.show_table(found.table())
        typer.echo(f"comparison: {write_comparison(found, out)[0]}")
    if failed:
        typer.echo(f"{len(failed)} of {len(ran)} runs failed and are left out.", err=True)
        raise typer.Exit(1)


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PAPER [EXPERIMENT…]]…")] = None,
    scale: Annotated[
        str, typer.Option(help="full, as in the paper, or a scale of the study files: small.")
    ] = "full",
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A row or a column of the tables to train (repeatable)."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="How many seeds; the paper's number when left out."),
    ] = None,
    first_seed: Annotated[
        int, typer.Option(min=0, help="The first seed; --seeds 1 --first-seed 2 is seed 2 alone.")
    ] = 0,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop in time, and say what is left.")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA", help="The folder of all data sets: DATA/mnist, DATA/cifar10, …"
        ),
    ] = None,
    override: Overrides = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="The folder of results; benchmarks/results/papers of the source when left out."
        ),
    ] = None,
    runs: Annotated[Path, typer.Option(help="The folder of run folders.")] = Path(
        "runs", "reproduce"
    ),
    papers: Annotated[
        Path | None,
        typer.Option(help="The folder of papers; examples/papers of the source when left out."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Run nothing; write the page of all results to this Markdown file."),
    ] = None,
) -> None:
    """Run the experiments of papers and show their tables beside ours.

    PAPER is one of the papers in examples/papers, EXPERIMENT one of its tables or figures, all of
    them when left out. Give several, also of other papers, to run one after another. With nothing
    but --minutes, all experiments that have their data run, the most wanted first. With nothing at
    all, they are listed: how many runs each has and what data it needs.

    The results of each finished run are kept at once, as JSON: give the same command again to go
    on, or more seeds to train only what is new. Runs that tables share are trained once.

    With --minutes, a run that would not be finished in time, going by earlier ones of the same
    method, waits for the next time, unless it takes more than so many minutes by itself. A run that
    is under way when time is up stops after a checkpoint. The same command goes on from there.

    To share the work, give each process or machine other seeds, or other rows, and a --results
    folder of its own. Then put all their files into one folder, under different names, and give the
    command for all of it with --minutes 0: it trains nothing and writes the whole table, after
    which the copies can go.

    Example: potluck reproduce fedul table-1-mnist-iid table-e9 --only FedUL --seeds 3 --path data
    """
    from potluck.report.reproduction import page as page_of
    from potluck.report.reproduction import reproductions
    from potluck.study.files import writing
    from potluck.study.limit import Limit
    from potluck.study.papers import read_experiments, read_papers
    from potluck.study.reproduction import (
        all_results,
        check_data,
        default_folders,
        plan,
        with_data,
        with_earlier_seeds,
    )

    limit = Limit(minutes)
    papers, results = default_folders(papers, results)
    if page is not None:
        text = page_of(reproductions(read_papers(papers), all_results(results)))
        with writing(page):
            page.write_text(text, encoding="utf-8")
        typer.echo(f"page: {page}")
        return
    if not names and minutes is None:
        _list_papers(read_papers(papers), papers, scale)
        return
    plans = []
    for paper, experiment in read_experiments(papers, names or []):
        numbers = range(first_seed, first_seed + (seeds or paper.seeds(experiment)))
        planned = plan(paper, experiment, scale, numbers, override or [], path, only or [])
        plans.append(with_earlier_seeds(planned, results, path))
    if names:
        check_data(plans)
    else:
        everything, plans = plans, with_data(plans)
        there = {planned.name for planned in plans}
        for planned in everything:
            if planned.name not in there:
                typer.echo(f"{planned.name}: left out, since its data are not there")
    failed = _train(plans, results, runs, limit)
    if minutes is not None:
        _say_what_is_left(plans, results, runs)
    if failed:
        typer.echo(f"{failed} runs failed and are left out.", err=True)
        raise typer.Exit(1)


def _train(plans: "list[Plan]", results: Path, runs: Path, limit: "Limit") -> int:
    """Run experiments one after another and show each table; how many runs failed."""
    from potluck import console
    from potluck.report.reproduction import measured
    from potluck.study.reproduction import progress_of
    from potluck.study.reproduction import reproduce as train

    failed = []
    for planned in plans:  # those that get no time, too: their results may have come from elsewhere
        count, done, total, rounds = progress_of(planned, results, runs)
        typer.echo(f"{planned.name}: {count} runs, {done} of them done")
        try:
            with console.sweeping(total, rounds) as on_round:
                failed += train(planned, results, runs, measured, on_round, limit)
        except KeyboardInterrupt:
            typer.echo("stopped; finished rounds are kept. Go on with the same command.", err=True)
            raise typer.Exit(130) from None
        _show_table(planned, planned.file(results))
    for line in failed:
        console.complain(line)
    return len(failed)


def _show_table(planned: "Plan", file: Path) -> None:
    """The table of an experiment beside the paper's, and what became of its claims."""
    from potluck import console
    from potluck.report.reproduction import Reproduction
    from potluck.study.papers import FULL
    from potluck.study.reproduction import read_results

    if not file.exists():
        return
    scale = planned.scale
    found = Reproduction(planned.paper, planned.experiment, scale, read_results(file))
    console.show_table(found.table())
    for claim in found.claims:
        typer.echo(f"- {claim.line}")
    verdict = found.verdict if scale == FULL else f"scale {scale}, no verdict on the paper"
    typer.echo(f"{verdict}: {file}")


def _say_what_is_left(plans: "list[Plan]", results: Path, runs: Path) -> None:
    """Which runs had no time."""
    from potluck.study.reproduction import progress_of

    waiting = False
    for planned in plans:
        count, done, total, rounds = progress_of(planned, results, runs)
        if done < count:
            left = f"{count - done} of {count} runs, {total - rounds:,} rounds"
            typer.echo(f"left: {planned.name}: {left}")
            waiting = True
    if waiting:
        typer.echo("Go on with the same command.")


def _list_papers(everything: "list[Paper]", folder: Path, scale: str) -> None:
    from potluck.errors import PotluckError
    from potluck.study.papers import data_set
    from potluck.study.reproduction import plan

    if not everything:
        raise PotluckError(f"{folder}: no papers here; say where they are with --papers DIR.")
    for paper in everything:
        typer.echo(f"{paper.name}: {paper.content.title}")
        for experiment in paper.content.experiments:
            cells = plan(paper, experiment, scale, [0]).distinct()
            data = ", ".join(dict.fromkeys(data_set(cell.study)[0] for cell in cells))
            runs = f"{len(cells) * paper.seeds(experiment)} runs"
            typer.echo(f"  {experiment.name:<24} {runs:>8}  {data:<13}  {experiment.title}")
    typer.echo("Run one, or all of a paper: potluck reproduce PAPER [EXPERIMENT]")


def _planned(
    files: list[Path],
    grid: list[str] | None,
    methods: str | None,
    seeds: int | None,
    override: list[str] | None,
    scale: str | None,
) -> "Sweep":
    from potluck.errors import PotluckError
    from potluck.study.sweep import Sweep, is_sweep_file, parse_values, read_sweep

    if not any(is_sweep_file(file) for file in files):
        return Sweep(
            files=tuple(files),
            methods=tuple(name.strip() for name in (methods or "").split(",") if name.strip()),
            grid=dict(map(parse_values, grid or ())),
            seeds=tuple(range(seeds or 3)),
            overrides=tuple(override or ()),
            scale=scale,
        )
    if len(files) > 1:
        raise PotluckError("give either one sweep file or study files, not both.")
    if grid or methods or scale:
        raise PotluckError(
            f"{files[0]} is a sweep file: say grid, methods and scale there, or give its studies "
            "themselves on the command line."
        )
    planned = read_sweep(files[0])
    return replace(
        planned,
        seeds=planned.seeds if seeds is None else tuple(range(seeds)),
        overrides=(*planned.overrides, *(override or ())),
    )
