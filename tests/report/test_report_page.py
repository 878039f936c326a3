"""The report as a page: complete in itself, legible to machines, safe, and honest about gaps."""

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
from synthetic_runs import synthetic_run

from potluck.errors import PotluckError
from potluck.report.figures import FIGURES
from potluck.report.run import read_run
from potluck.report.style import house_style
from potluck.report.write import write_figures, write_report


class Outline(HTMLParser):
    """What a page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action"):
                self.addresses.append(value)

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    place = tmp_path_factory.mktemp("page") / "run"
    folder = synthetic_run(place, changes={"name": "<b>wards & beds</b>"})
    return write_report(folder.path)[0].read_text(encoding="utf-8")


def test_the_page_asks_the_network_for_nothing(page):
    found = Outline(page)
    assert not {"script", "link", "iframe", "img"} & set(found.tags)
    assert all(address.startswith(("#", "data:")) for address in found.addresses)
    assert "url(http" not in page
    assert "@import" not in page


def test_the_page_has_landmarks_and_one_first_heading(page):
    tags = Outline(page).tags
    for tag in ("header", "nav", "main", "footer", "h1"):
        assert tags.count(tag) == 1
    assert '<html lang="en">' in page


def test_ids_are_unique_and_links_lead_somewhere(page):
    found = Outline(page)
    assert len(found.ids) == len(set(found.ids))
    linked = {address[1:] for address in found.addresses if address.startswith("#")}
    assert linked <= set(found.ids)


def test_every_figure_is_valid_svg_and_says_what_it_shows(page):
    figures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(figures) >= 10
    for figure in figures:
        root = ElementTree.fromstring(figure)
        assert root.get("role") == "img"
        assert len(root.get("aria-label")) > 40


def test_figures_take_ink_and_paper_from_the_page(page):
    for figure in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert "var(--ink)" in figure
        assert "#1c1b1a" not in figure
    assert "prefers-color-scheme: dark" in page


def test_names_cannot_smuggle_in_markup(page):
    assert "<b>wards" not in page
    assert "&lt;b&gt;wards &amp; beds&lt;/b&gt;" in page


def test_the_page_tells_all_that_was_asked_for(page):
    words = " ".join(" ".join(Outline(page).words).split())
    for title in (
        "Accuracy and loss over the rounds",
        "Accuracy of each class",
        "Confusion matrix",
        "Calibration",
        "What each site brought",
        "Where the evidence about each class comes from",
        "What labels mean: estimated and declared",
        "Error of the estimated meaning",
        "Pseudo-labels",
        "Sites in each round",
        "What the sites' training reports",
        "Time and traffic",
        "The resolved study",
    ):
        assert title in words
    assert re.search(r"potluck run \S+/run/study\.json --out again", words)
    assert "90.00%" in words


def test_a_run_that_goes_on_says_so(tmp_path):
    synthetic_run(tmp_path / "r", finished=False)
    page = write_report(tmp_path / "r")[0].read_text(encoding="utf-8")
    assert "This run is not finished: 3 of 3 rounds are done" in page
    assert "Confusion matrix" not in page


def test_a_run_from_before_says_what_is_missing_and_shows_the_rest(tmp_path):
    synthetic_run(tmp_path / "r")
    for path in (*(tmp_path / "r").glob("sites.*"), *(tmp_path / "r").glob("evaluation.*")):
        path.unlink()
    history = tmp_path / "r" / "history.jsonl"
    older = re.sub(r', "(updates|bytes)": \{.*?\}\}(?=[,}])', "", history.read_text())
    history.write_text(older)
    assert "agreement" not in older
    page = write_report(tmp_path / "r")[0].read_text(encoding="utf-8")
    assert "did not store what each site brought (sites.json)" in page
    assert "did not store the final evaluation (evaluation.json)" in page
    assert "Accuracy and loss over the rounds" in page
    assert "Sites in each round" in page


def test_figures_are_written_in_every_format_asked_for(tmp_path):
    synthetic_run(tmp_path / "r", sites=2, classes=2)
    with house_style():
        picture = FIGURES["cost"](read_run(tmp_path / "r"))
        first = write_figures({"cost": picture}, tmp_path / "a", ("pdf", "png", "svg"))
        again = write_figures({"cost": picture}, tmp_path / "b", ("pdf", "png", "svg"))
    starts = {".pdf": b"%PDF", ".png": b"\x89PNG", ".svg": b"<?xml"}
    assert [path.name for path in first] == ["cost.pdf", "cost.png", "cost.svg"]
    for path, twin in zip(first, again, strict=True):
        assert path.read_bytes().startswith(starts[path.suffix])
        assert path.read_bytes() == twin.read_bytes()


def test_a_place_that_cannot_be_written_to_is_explained(tmp_path):
    synthetic_run(tmp_path / "r", sites=1, classes=2, rounds=1)
    with pytest.raises(PotluckError, match=r"there is no folder .*nowhere; make it"):
        write_report(tmp_path / "r", tmp_path / "nowhere" / "out.html")
