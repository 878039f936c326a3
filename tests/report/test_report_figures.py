"""Figures at full size: no text lies on another, none is too small to read."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from synthetic_runs import synthetic_run

from potluck.report.figures import FIGURES
from potluck.report.figures.lines import median
from potluck.report.run import read_run
from potluck.report.style import arranged, house_style, name_rows, new_figure
from potluck.study.inventory import Brought

SMALLEST = 6.5


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "run"
    synthetic_run(path, rounds=12, sites=80, classes=100)
    return read_run(path)


def boxes(figure):
    """Every visible text with the box it fills, as it is drawn."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    found = []
    for axes in figure.axes:
        labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        names = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        texts = {id(t): t for t in [*axes.texts, *labels, *names]}
        for text in texts.values():
            inside = text not in labels or _shown(axes, text)
            if isinstance(text, Text) and text.get_visible() and text.get_text() and inside:
                found.append((text, text.get_window_extent(renderer)))
    return found


def _shown(axes, label):
    """Ticks outside the limits have labels that are not drawn."""
    x, y = label.get_position()
    horizontal = label in axes.get_xticklabels()
    low, high = sorted(axes.get_xlim() if horizontal else axes.get_ylim())
    return low <= (x if horizontal else y) <= high


@pytest.fixture(scope="module", params=[name for name in FIGURES if name != "method-numbers"])
def drawn(request, large):
    """Every figure, arranged, and where its texts are."""
    with house_style():
        figure = arranged(FIGURES[request.param](large).figure)
        return figure, boxes(figure)


def test_no_text_lies_on_another_with_80_sites_and_100_classes(drawn):
    _, placed = drawn
    assert placed
    for text, _ in placed:
        assert text.get_fontsize() >= SMALLEST, text.get_text()
    for i, (one, box) in enumerate(placed):
        for other, place in placed[i + 1 :]:
            # A point of blank space around glyphs counts to their boxes.
            over = min(box.x1, place.x1) - max(box.x0, place.x0) > 1.5
            apart = min(box.y1, place.y1) - max(box.y0, place.y0) < 1.5
            assert not over or apart, f"{one.get_text()} lies on {other.get_text()}"


def test_nothing_is_drawn_beyond_the_edges(drawn):
    figure, placed = drawn
    for text, box in placed:
        assert box.x0 > -1, text.get_text()
        assert box.y0 > -1, text.get_text()
        assert box.x1 < figure.bbox.width + 1, text.get_text()
        assert box.y1 < figure.bbox.height + 1, text.get_text()


def test_room_is_made_for_the_widest_name_not_for_the_one_with_most_letters():
    names = ["jl", "mmmmmmmmmm", "iiiiiiiiiiii"]
    with house_style():
        figure = new_figure(2)
        name_rows(figure.subplots(), names)
        placed = boxes(arranged(figure))
    left = {text.get_text(): box.x0 for text, box in placed if text.get_text() in names}
    assert 0 < left["mmmmmmmmmm"] < left["iiiiiiiiiiii"]


def test_rows_of_names_go_from_top_to_bottom(large):
    with house_style():
        figure = arranged(FIGURES["sites"](large).figure)
        names = [(text, box) for text, box in boxes(figure) if text.get_text() in large.sites]
    assert [text.get_text() for text, _ in names] == list(large.sites)
    assert all(above.y0 > below.y0 for (_, above), (_, below) in pairwise(names))


def test_the_median_does_not_jump_with_who_takes_part():
    nan = np.nan
    values = np.array([[1.0, nan, 1.0], [nan, 3.0, nan], [nan, nan, 2.0]])
    np.testing.assert_array_equal(median(values), [1.0, 2.0, 2.0])


def test_where_sites_told_only_their_size_only_sizes_are_shown(tmp_path):
    """As over a network, where the coordinator knows no more."""
    synthetic_run(tmp_path / "r", sites=3)
    run = read_run(tmp_path / "r")
    facts = [replace(site.facts, symbols=None, information=None) for site in run.inventory.sites]
    run = replace(run, inventory=replace(run.inventory, sites=tuple(map(Brought, facts))))
    with house_style():
        drawn = FIGURES["brought"](run)
        assert len(drawn.figure.axes) == 1
        assert FIGURES["correspondence"](run) is None
    assert "180 samples in all" in drawn.alt
