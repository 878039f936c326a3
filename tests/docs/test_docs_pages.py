"""Every command and every code block of the documentation does what the page says."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from pages import DOCS, REPOSITORY, Reader, blocks, compare

from potluck import console
from potluck.federated import FEDERATED
from potluck.methods import METHODS

# Pages whose blocks need more than a page's seconds, and who runs them.
ELSEWHERE = {
    "consortium.md": "tests/flower: several processes at a time",
    "reproduction.md": "benchmarks: hours on a GPU",
}

PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in DOCS.rglob("*.md")
    if "_build" not in path.parts and path.name not in ELSEWHERE
)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_can_be_followed(name, tmp_path, monkeypatch):
    page = DOCS / name
    for script in page.parent.glob("*.py"):
        if script.name != "conf.py":
            shutil.copy(script, tmp_path)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # Not by COLUMNS: another test may have made the console already.
    monkeypatch.setattr(console.out, "_width", 100)
    Reader(tmp_path, page).follow()


def test_blocks_are_found_with_their_files_and_lines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n```bash\npotluck list \\\n  views # all\n```\n\n```text\n…\n```\nprose\n"
        "```{code-block} toml\n:caption: a/b.toml\n\nx = 1\n```\n````text\n```bash\n```\n````\n"
    )
    found = [(block.language, block.file, block.line, block.follows) for block in blocks(page)]
    assert found == [
        ("bash", None, 3, False),
        ("text", None, 8, True),
        ("toml", "a/b.toml", 12, False),
        ("text", None, 17, True),
    ]
    assert [block.text for block in blocks(page)][2] == "x = 1\n"


def test_shown_output_must_have_been_printed_in_that_order():
    printed = "first  line\nsecond 42 line\nthird\n"
    compare("first line\n…\nsecond … line\nthird", printed)
    for wrong in ("second 43 line", "third\nfirst line", "second"):
        with pytest.raises(AssertionError, match="shown but not printed"):
            compare(wrong, printed)


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("furo", reason="the site needs potluck[docs]")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "cache"), str(DOCS), str(tmp_path / "html")],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page, known in {"methods": METHODS, "federated": FEDERATED}.items():
        html = (tmp_path / "html" / "api" / f"{page}.html").read_text(encoding="utf-8")
        assert {name for name in known if f"<h2>{name}<" not in html} == set()
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        elsewhere = re.findall(
            r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="(?:https?:)?//[^"]+"',
            page.read_text(encoding="utf-8"),
        )
        assert not elsewhere, f"{page.name} loads from another machine: {elsewhere}"
