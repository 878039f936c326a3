"""The architecture page lists the rooms that there are."""

import re

from pages import DOCS, REPOSITORY

PACKAGE = REPOSITORY / "potluck"


def rooms():
    """Names in the list of rooms, as they are written there."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^    potluck/\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    inside, _, outside = listed.partition("\n    tests/")
    return re.findall(r"(?:^      |;  )([a-z_]+(?:/|\.py))", inside, re.MULTILINE), (
        ["tests/", *re.findall(r"^    ([a-z]+/)", outside, re.MULTILINE)]
    )


def test_every_room_of_the_package_is_listed_and_every_listed_room_is_there():
    listed, _ = rooms()
    there = {f"{path.name}/" for path in PACKAGE.iterdir() if path.is_dir()}
    there |= {path.name for path in PACKAGE.glob("*.py")}
    assert sorted(listed) == sorted(there - {"__pycache__/", "__init__.py"})


def test_every_listed_folder_of_the_repository_is_there():
    _, folders = rooms()
    assert len(folders) == 4
    assert all((REPOSITORY / folder).is_dir() for folder in folders)


def test_every_file_that_the_page_names_is_there():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_/]+\.py)`", text))
    assert len(named) > 10
    missing = {
        name for name in named if not any((top / name).is_file() for top in (PACKAGE, REPOSITORY))
    }
    assert missing == set()
