"""What people see in the terminal: tables, progress, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from potluck.history import Record, best_round
from potluck.report.tables import Table as Contents

if TYPE_CHECKING:  # what is shown brings its own code; showing a table needs no torch
    from potluck.demo import Outcome, Row
    from potluck.engines import Evaluation
    from potluck.federation import Federation, Site
    from potluck.labels import Identifiability
    from potluck.labels.identifiability import Contribution
    from potluck.study.build import Prepared
    from potluck.study.execute import OnRound
    from potluck.study.schema import Study
    from potluck.training import Trained

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def complain(message: object) -> None:
    """Say what went wrong, on standard error."""
    err.print(f"[bold red]error:[/] {escape(str(message))}", soft_wrap=True)


def show_sites(federation: Federation, found: Identifiability) -> None:
    """A table of what each site brings, and whether it suffices together."""
    _print_table(federation.everyone, found)
    colour = "green" if found.complete else "yellow"
    out.print(f"[{colour}]{escape(found.verdict())}[/]", soft_wrap=True)


def show_shortfalls(found: Identifiability) -> None:
    """Who cannot tell all classes apart alone, who helps, and what only weak evidence separates."""
    lines = found.shortfalls()
    for line in lines[:10]:
        out.print(line, markup=False, soft_wrap=True)
    if len(lines) > 10:
        out.print(f"… and {len(lines) - 10} more sites like these.", markup=False)
    for line in found.cautions():
        out.print(line, markup=False, soft_wrap=True)


def show_site(site: Site, found: Identifiability) -> None:
    """What a checked site file brings by itself; other sites may supply what it lacks."""
    _print_table([site], found)
    if not found.complete:
        out.print(
            "By itself, the site cannot tell all classes apart. Other sites may supply what it "
            "lacks: potluck check on the study says.",
            soft_wrap=True,
        )
    out.print("[green]The site file is in order.[/]")


def _print_table(sites: Sequence[Site], found: Identifiability) -> None:
    table = Table(title="What each site brings", title_justify="left")
    table.add_column("site")
    table.add_column("labels")
    table.add_column("samples", justify="right")
    table.add_column("example of a label")
    table.add_column("tells apart by itself")
    for site in sites:
        table.add_row(
            escape(site.name),
            site.view.kind + (", private" if site.view.private else ""),
            f"{len(site):,}",
            escape(_example(site)),
            _alone(site, found.sites[site.name]),
        )
    out.print(table)


def _alone(site: Site, contribution: Contribution) -> str:
    """How far a site's labels go without the other sites', however many samples it had."""
    classes, parts = len(site.view.space), contribution.alone + 1
    if parts == classes:
        return f"all {classes} classes"
    if parts == 1:
        return "nothing"
    if parts == int(site.view.held.sum()):
        return f"{parts} of {classes} classes"
    if parts == classes - sum(len(group) - 1 for group in contribution.groups):
        return f"{parts} groups of classes"
    return f"{contribution.alone} of {classes - 1} contrasts"


def _example(site: Site) -> str:
    symbol = int(site.symbols[0])
    name = site.view.symbols.names[symbol]
    if site.view.kind == "unlabeled":
        return "(none)"
    if site.view.kind == "bags":
        mix = site.view.proportions[symbol]
        top = mix.topk(min(2, len(mix)))
        shares = ", ".join(
            f"{float(p):.0%} {site.view.space.names[int(k)]}"
            for p, k in zip(top.values, top.indices, strict=True)
        )
        return f"bag {name}: {shares}" + (", …" if top.values.sum() < 0.995 else "")
    return name if len(name) <= 40 else name[:39] + "…"


def _bar(*columns: ProgressColumn) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=out,
        disable=not out.is_terminal,
    )


@contextmanager
def progress(rounds: int, done: int = 0, title: str = "training") -> Iterator[OnRound]:
    """A live bar with accuracy and time left; nothing when the output is not a terminal.

    Yields:
      a function that takes each round's record.
    """
    bar = _bar(TextColumn("{task.fields[accuracy]}"))
    with bar:
        task = bar.add_task(escape(title), total=rounds, completed=done, accuracy="")

        said: set[str] = set()

        def advance(record: Record) -> None:
            for remark in record.get("engine", ()):
                if remark not in said:
                    out.print(remark, markup=False, soft_wrap=True)
                    said.add(remark)
            bar.advance(task)
            if test := record.get("test"):
                bar.update(task, accuracy=f"accuracy {test['accuracy']:.1%}")

        yield advance


def show_evaluation(evaluation: Evaluation, names: Sequence[str]) -> None:
    """Accuracy, loss, and accuracy per class."""
    out.print(f"accuracy [bold]{evaluation.accuracy:.2%}[/], loss {evaluation.loss:.4f}")
    table = Table(title="Per label", title_justify="left")
    table.add_column("label")
    table.add_column("predicted right", justify="right")
    for name, value in zip(names, evaluation.per_class, strict=True):
        shown = "no samples" if value != value else f"{value:.1%}"
        table.add_row(escape(name), shown)
    out.print(table)


def show_choices(title: str, rows: Sequence[tuple[str, str, Mapping[str, str]]]) -> None:
    """A table of named things: name, what it is, options with defaults."""
    table = Table(title=title, title_justify="left")
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is")
    table.add_column("options")
    for name, what, options in rows:
        listed = ", ".join(f"{key} = {value}" for key, value in options.items())
        table.add_row(escape(name), escape(what), escape(listed))
    out.print(table)


@contextmanager
def counting(total: int, title: str) -> Iterator[Callable[[], None]]:
    """A live bar over `total` pieces of work.

    Yields:
      a function to call after each.
    """
    bar = _bar()
    with bar:
        task = bar.add_task(escape(title), total=total)
        yield lambda: bar.update(task, advance=1)


@contextmanager
def sweeping(total: int, done: int) -> Iterator[Callable[[Study, Record], None]]:
    """A live bar over the rounds of many studies, which says whose turn it is.

    Yields:
      a function that takes a study and each of its rounds' records.
    """
    bar = _bar()
    with bar:
        task = bar.add_task("sweep", total=total, completed=done)

        def advance(study: Study, record: Record) -> None:
            said = f"{study.name}: {study.method['name']}, seed {study.seed}"
            bar.update(task, advance=1, description=escape(said))

        yield advance


def show_table(table: Contents) -> None:
    """A table of texts, with the best cells in bold, and how to read it.

    Where the first column tells rows apart, columns that do not fit beside it follow below.
    """
    cells = table.cells()
    widths = [
        max(map(len, [name, *(row[number].text for row in cells)]))
        for number, name in enumerate(table.columns)
    ]
    apart = len({row[0].text for row in cells}) == len(cells)
    for columns in _beside(widths, out.width) if apart else [range(len(widths))]:
        shown = Table()
        for number in columns:
            shown.add_column(escape(table.columns[number]), justify="right" if number else "left")
        for row in cells:
            texts = ((row[number].best, escape(row[number].text)) for number in columns)
            shown.add_row(*(f"[bold]{text}[/]" if best else text for best, text in texts))
        out.print(shown)
    out.print(table.caption, markup=False, soft_wrap=True)


def _beside(widths: Sequence[int], room: int) -> list[list[int]]:
    """Numbers of the columns of each part of a table: the first column, and others that fit."""
    borders = 3  # and spaces, of a column
    parts: list[list[int]] = [[0]]
    left = room - widths[0] - borders - 1
    for number, width in enumerate(widths[1:], 1):
        if len(parts[-1]) > 1 and width + borders > left:
            parts.append([0])
            left = room - widths[0] - borders - 1
        parts[-1].append(number)
        left -= width + borders
    return parts


def show_result(trained: Trained, folder: Path) -> None:
    """The outcome of a run, where it lies, and what to do with it."""
    test = trained.history[-1].get("test")
    if test is not None:
        out.print(
            f"test accuracy after {trained.state.round} rounds: [bold]{test['accuracy']:.2%}[/]"
        )
    best = best_round(trained.history)
    if best is not None and "test" in best:
        out.print(
            f"test accuracy after round {best['round']}, the best in validation: "
            f"[bold]{best['test']['accuracy']:.2%}[/]"
        )
    out.print(f"model and history: {folder}", markup=False, soft_wrap=True)
    out.print(
        f"next: potluck report {folder}, potluck evaluate {folder}, or potluck predict {folder} "
        "DATA",
        markup=False,
        soft_wrap=True,
    )


def show_plan(study: Study, prepared: Prepared, command: str) -> None:
    """What a run would do, and the command for it."""
    recipe, size = prepared.recipe, len(prepared.network.layout)
    sites = len(prepared.federation.sites)
    taking_part = (
        f"all {sites}" if recipe.cohort in (None, sites) else f"{recipe.cohort} of {sites}"
    )
    out.print(
        f"A run trains {study.model['name']} ({size:,} parameters) by {study.method['name']} and "
        f"{study.federated['name']}: {recipe.rounds} rounds with {taking_part} sites, on "
        f"{prepared.device.type}.",
        markup=False,
        soft_wrap=True,
    )
    out.print(f"[green]The study is in order.[/] Next: {escape(command)}", soft_wrap=True)


def show_demo(outcome: Outcome) -> None:
    """Each site alone, the federation, and full supervision."""
    table = Table(title="Test accuracy, mean ± sd over seeds", title_justify="left")
    table.add_column("trained on")
    table.add_column("labels")
    table.add_column("accuracy", justify="right")
    for row in outcome.alone:
        _add_row(table, row, style="dim" if row is not outcome.best_alone else "")
    table.add_section()
    _add_row(table, outcome.together, style="bold green")
    _add_row(table, outcome.supervised)
    out.print(table)
    gain = outcome.together.mean - outcome.best_alone.mean
    out.print(
        f"Together, the sites reach {outcome.together.mean:.1%}: {100 * gain:.1f} points above "
        f"the best site alone ({escape(outcome.best_alone.name)}, {outcome.best_alone.mean:.1%}), "
        f"and {100 * (outcome.supervised.mean - outcome.together.mean):.1f} below what exact "
        "labels for all the same images would give.",
        soft_wrap=True,
    )


def _add_row(table: Table, row: Row, style: str = "") -> None:
    accuracy = f"{100 * row.mean:.1f} ± {100 * row.deviation:.1f} %"
    table.add_row(escape(row.name), escape(row.labels), accuracy, style=style)
