"""Where the evidence about each class comes from: numbers, picture, and what is not told."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from synthetic_runs import synthetic_run

from potluck.report.figures.evidence import class_evidence, evidence
from potluck.report.run import read_run
from potluck.report.style import KINDS, house_style
from potluck.report.write import write_report
from potluck.study.inventory import Brought


@pytest.fixture
def run(tmp_path):
    """Five sites: exact, coarse, noisy, candidates, unlabelled; 60 samples each, four classes."""
    synthetic_run(tmp_path / "r", sites=5)
    return read_run(tmp_path / "r")


def drawn(run):
    with house_style():
        return evidence(run)


def test_few_sites_are_sources_themselves(run):
    found = class_evidence(run)
    assert found.sources == tuple(run.brought)
    assert found.kinds == ("exact", "coarse", "noisy", "candidates", "unlabeled")
    counts = run.brought["exact site 00"].truth
    assert found.amounts[0] == pytest.approx(counts)
    assert found.amounts[4] == pytest.approx(0)
    assert all(0 < amount < 60 for amount in found.amounts[1:4].sum(1))


def test_many_sites_are_summed_by_kind(tmp_path):
    synthetic_run(tmp_path / "r", sites=20)
    run = read_run(tmp_path / "r")
    found = class_evidence(run)
    assert found.sources == ("exact", "coarse", "noisy", "candidates", "unlabeled")
    by_hand = sum(
        site.worth * site.classes for site in run.brought.values() if site.facts.kind == "noisy"
    )
    assert found.amounts[2] == pytest.approx(by_hand)


def test_bars_are_as_long_as_the_evidence_and_coloured_by_kind(run):
    found = class_evidence(run)
    (axes,) = drawn(run).figure.axes
    order = np.argsort(-found.total, kind="stable")
    bars = [part for part in axes.collections if isinstance(part, PolyCollection)]
    end = 0.0
    for source, own in enumerate(bars):
        assert to_hex(own.get_facecolor()[0]).upper() == KINDS[found.kinds[source]].upper()
        corners = own.get_paths()[0].vertices
        assert corners[:, 0].min() == pytest.approx(end)
        end = corners[:, 0].max()
        assert end == pytest.approx(found.amounts[: source + 1, order[0]].sum())
    names = [text.get_text() for text in axes.texts]
    assert names == [run.classes[k] for k in order]


def test_the_words_say_who_brings_most(run):
    found = class_evidence(run)
    most = run.classes[int(found.total.argmax())]
    assert f"Most evidence: {most}, worth" in drawn(run).alt
    assert "the largest part from exact site 00 (exact labels)" in drawn(run).alt


def test_the_table_of_the_page_sums_up(run):
    page = write_report(run.path)[0].read_text(encoding="utf-8")
    found = class_evidence(run)
    assert "The evidence about every class" in page
    assert f"<td>{found.total[0]:,.1f}</td></tr>" in page


def test_sites_that_do_not_tell_are_counted_not_shown(run):
    first, *others = run.inventory.sites
    sites = (Brought(first.facts), *others)
    partly = replace(run, inventory=replace(run.inventory, sites=sites))
    assert class_evidence(partly).untold == 1
    assert "not told, and left out: 1." in drawn(partly).caption


def test_a_run_from_before_has_the_page_without_this_figure(run):
    sites = tuple(replace(site, worth=None) for site in run.inventory.sites)
    older = replace(run, inventory=replace(run.inventory, sites=sites))
    assert class_evidence(older) is None
    assert drawn(older) is None
