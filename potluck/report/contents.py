"""What the report of a run says, in which order."""

import base64
import json
import shlex
from collections.abc import Mapping

import numpy as np

from potluck import __version__
from potluck.history import best_round
from potluck.report.figures.classes import class_accuracy
from potluck.report.figures.correspondence import spaces
from potluck.report.figures.cost import told
from potluck.report.figures.evidence import class_evidence
from potluck.report.page import Block, Code, Download, Folded, Page, Points, Section, Text
from potluck.report.picture import Picture
from potluck.report.remarks import remarks
from potluck.report.run import SAT_OUT, TOOK_PART, Numbers, Run
from potluck.report.tables import Cell, Table

Pictures = Mapping[str, Picture]


def contents(run: Run, pictures: Pictures) -> Page:
    """The report of a run.

    Args:
      run:      the run.
      pictures: its figures, by name.
    """
    study = run.study
    return Page(
        title=f"{study['name']}",
        subtitle=f"Potluck run: {study['method']['name']} with {study['federated']['name']}, "
        f"{study['model']['name']}, seed {study['seed']}; folder {run.path.resolve().name}",
        headline=_headline(run),
        notes=_notes(run),
        sections=[
            _results(run, pictures),
            _classes(run, pictures),
            _brought(run, pictures),
            _meaning(run, pictures),
            _training(run, pictures),
            _cost(run, pictures),
            _again(run),
        ],
        footer=f"Written by potluck {__version__}. This page is complete in itself: it loads "
        "nothing from elsewhere.",
    )


def _headline(run: Run) -> list[tuple[str, str]]:
    _, accuracy = run.tested("accuracy")
    found = []
    if len(accuracy):
        found.append(("test accuracy, last round", f"{accuracy[-1]:.2%}"))
    best = best_round(run.history)
    if best is not None and "test" in best:
        found.append(
            (
                f"test accuracy, round {best['round']} (best in validation)",
                f"{best['test']['accuracy']:.2%}",
            )
        )
    found.append(("rounds", f"{len(run.history)} of {run.study['rounds']}"))
    found.append(("sites", f"{len(run.sites)}"))
    if run.brought:
        total = sum(site.facts.samples for site in run.brought.values())
        found.append(("training samples", f"{total:,}"))
    if run.classes:
        found.append(("classes", f"{len(run.classes)}"))
    if np.isfinite(run.seconds).any():
        found.append(("time", _duration(float(np.nansum(run.seconds)))))
    if run.traffic:
        sent = sum(float(np.nansum(table)) for table in run.traffic.values())
        found.append(("traffic, both ways", told(sent)))
    return found


def _notes(run: Run) -> list[str]:
    notes = []
    if not run.finished:
        notes.append(
            f"This run is not finished: {len(run.history)} of {run.study['rounds']} rounds are "
            "done. Confusion, calibration and estimated correspondences come with the last round."
        )
    older = f"The run was made by potluck {run.made_by['potluck']}, which did not store"
    if run.inventory is None:
        notes.append(
            f"{older} what each site brought (sites.json), so that this part is missing. "
            "Run the study anew to have it."
        )
    if run.finished and run.outcome is None:
        notes.append(
            f"{older} the final evaluation (evaluation.json), so that confusion, calibration and "
            "estimated correspondences are missing. Run the study anew to have them."
        )
    return notes


def _results(run: Run, pictures: Pictures) -> Section:
    blocks: list[Block] = []
    found = remarks(run)
    if found:
        blocks += [Text("Worth a second look:"), Points(found)]
    blocks += _shown(pictures, "progress")
    if "progress" not in pictures:
        blocks.append(Text("The study has neither a test set nor validation samples."))
    columns = ["round", "test accuracy", "test loss", "validation", "seconds"]
    rows = [
        [
            f"{record['round']}",
            _share(record.get("test", {}).get("accuracy")),
            _number(record.get("test", {}).get("loss")),
            _share(record.get("validation")),
            _number(record.get("seconds")),
        ]
        for record in run.history
    ]
    blocks.append(Folded("The numbers of every round", Table(columns, rows)))
    return Section("Results", blocks)


def _classes(run: Run, pictures: Pictures) -> Section:
    blocks = _shown(pictures, "classes")
    accuracy = class_accuracy(run)
    if accuracy is not None:
        blocks.append(Folded("The numbers of every class", _class_table(run, accuracy)))
    blocks += _shown(pictures, "confusion")
    if run.outcome is not None and run.outcome.test is not None:
        blocks.append(_confusions(run))
    return Section("Classes", [*blocks, *_shown(pictures, "calibration")])


def _class_table(run: Run, accuracy: Numbers) -> Table:
    test = None if run.outcome is None else run.outcome.test
    counts = None if test is None else test.confusion.sum(1).tolist()
    rows = [
        [name, "" if counts is None else f"{counts[k]:,}", _share(accuracy[k])]
        for k, name in enumerate(run.classes)
    ]
    return Table(["class", "test samples", "accuracy"], rows)


def _confusions(run: Run, most: int = 15) -> Block:
    assert run.outcome is not None
    assert run.outcome.test is not None
    counts = run.outcome.test.confusion.copy()
    totals = counts.sum(1)
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:most]
    rows = [
        [
            f"{run.classes[i]} taken for {run.classes[j]}",
            f"{counts[i, j]:,}",
            _share(counts[i, j] / totals[i]),
        ]
        for i, j in zip(*np.unravel_index(order, counts.shape), strict=True)
        if counts[i, j] > 0
    ]
    if not rows:
        return Text("No test sample was mistaken.")
    return Folded(
        "The largest confusions", Table(["confusion", "samples", "of the true class"], rows)
    )


def _brought(run: Run, pictures: Pictures) -> Section:
    if run.inventory is None:
        return Section("What each site brought", [])
    blocks: list[Block] = [Text(run.inventory.verdict), *_shown(pictures, "brought")]
    blocks.append(
        Text(
            f"Test samples: {run.inventory.test:,}. Samples that sites keep aside for validation: "
            f"{run.inventory.validation:,}."
        )
    )
    rows = []
    for name, site in run.brought.items():
        facts = site.facts
        kind = facts.kind + (", private" if facts.private else "")
        rows.append(
            [
                name,
                f"{kind}, at the server" if facts.server else kind,
                f"{facts.samples:,}",
                _share(facts.information),
                "" if site.evidence is None else f"{site.evidence.sum():,.0f}",
                _frequent(run, name),
            ]
        )
    columns = ["site", "labels", "samples", "a label tells", "worth", "most frequent labels"]
    caption = (
        "“A label tells” is 1 − H(class | label) / log K, averaged over the site's samples: 100% "
        "for exact labels, 0% for none. “Worth” is how many exact labels would be as much evidence "
        "about the classes."
    )
    blocks += [Table(columns, rows, caption), *_shown(pictures, "evidence")]
    if "evidence" in pictures:
        blocks.append(Folded("The evidence about every class", _evidence_table(run)))
    return Section("What each site brought", blocks)


def _evidence_table(run: Run) -> Table:
    found = class_evidence(run)
    assert found is not None
    rows = [
        [name, *(f"{amount:,.1f}" for amount in (*own, own.sum()))]
        for name, own in zip(run.classes, found.amounts.T, strict=True)
    ]
    return Table(["class", *found.sources, "all"], rows, "In exact labels.")


def _frequent(run: Run, name: str, most: int = 3) -> str:
    site = run.brought[name]
    if site.counts is None or site.facts.symbols is None or site.facts.kind == "unlabeled":
        return ""
    top = np.argsort(-site.counts, kind="stable")[:most].tolist()
    shown = [f"{site.facts.symbols[z]}: {int(site.counts[z])}" for z in top]
    return ", ".join(shown) + (", …" if len(site.facts.symbols) > most else "")


def _meaning(run: Run, pictures: Pictures) -> Section:
    blocks = _shown(pictures, "correspondence", "correspondence-error")
    rows = [
        [site, _number(error) if space.informative else "nothing declared"]
        for space in spaces(run)
        for site, error in space.errors().items()
    ]
    if rows:
        table = Table(["site", "distance from what was declared (Frobenius)"], rows)
        blocks.append(Folded("The final estimate of every site", table))
    return Section(
        "Labels in training", [*blocks, *_shown(pictures, "pseudo-labels", "method-numbers")]
    )


def _training(run: Run, pictures: Pictures) -> Section:
    blocks = _shown(pictures, "sites")
    blocks.append(_site_table(run))
    return Section("Sites in training", [*blocks, *_shown(pictures, "losses")])


def _site_table(run: Run) -> Table:
    half = len(run.history) // 2
    columns = {
        "samples": (run.metrics.get("samples"), _count),
        "weight": (run.updates.get("weight"), _share),
        "contribution": (run.updates.get("contribution"), _share),
        "agreement": (run.updates.get("agreement"), _number),
        "drift": (run.metrics.get("drift"), _number),
        "loss": (run.metrics.get("loss"), _number),
    }
    kept = {name: (table, form) for name, (table, form) in columns.items() if table is not None}
    rows: list[list[str | Cell]] = []
    for s, site in enumerate(run.sites):
        place = run.everyone.index(site)
        means = [form(_mean(table[place, half:])) for table, form in kept.values()]
        states = run.participation[s]
        took, out = int((states == TOOK_PART).sum()), int((states == SAT_OUT).sum())
        rows.append([site, run.kind(site), f"{took}", f"{out}", *means])
    return Table(
        ["site", "labels", "took part", "sat out", *kept],
        rows,
        "Rounds that a site took part in and sat out; then means over the second half of the run. "
        "Contribution: its part of the average update (they sum to 100% in each round). "
        "Agreement: the cosine between its update and the average.",
    )


def _cost(run: Run, pictures: Pictures) -> Section:
    return Section("Time and traffic", _shown(pictures, "cost"))


def _again(run: Run) -> Section:
    study = json.dumps(run.study, indent=1, ensure_ascii=False)
    data = "data:application/json;base64," + base64.b64encode(study.encode()).decode()
    versions = ", ".join(f"{name} {version}" for name, version in run.made_by.items())
    stored = shlex.quote(str(run.path / "study.json"))
    return Section(
        "Do it again",
        [
            Text("The same study, with every default filled in:"),
            Code(f"potluck run {stored} --out again"),
            Text(
                "Without the run folder, save the study from here first. On the same device, "
                f"engine and versions ({versions}) the result has the same bytes. Study hash: "
                f"{run.study_hash}."
            ),
            Download("Save study.json", "study.json", data),
            Folded("The resolved study", Code(study)),
        ],
    )


def _shown(pictures: Pictures, *names: str) -> list[Block]:
    return [pictures[name] for name in names if name in pictures]


def _mean(values: Numbers) -> float | None:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else None


def _share(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:.3g}"


def _count(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
