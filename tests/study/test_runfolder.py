import json
import math
import os
import resource
from pathlib import Path

import pytest

from potluck.errors import PotluckError
from potluck.study.runfolder import RunFolder, hash_of

STUDY = {"name": "wards", "rounds": 3, "local": {"lr": 0.1, "clip": None}, "classes": ["a", "ß"]}
HASH = hash_of(STUDY)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "wards", STUDY, HASH)


# The hash of a study


def test_the_hash_is_stable() -> None:
    """Runs of earlier versions must stay resumable: this value may never change."""
    assert hash_of({"b": [1, 2.5, None, True], "a": {"ü": "x"}}) == "5ae6711a7b0bec94"


def test_the_hash_sees_values_but_not_the_order_of_keys() -> None:
    assert hash_of(dict(reversed(STUDY.items()))) == HASH
    assert hash_of({**STUDY, "rounds": 4}) != HASH
    assert hash_of({**STUDY, "classes": ["ß", "a"]}) != HASH
    assert hash_of({**STUDY, "extra": None}) != HASH


def test_the_hash_survives_the_way_through_the_file(folder: RunFolder) -> None:
    assert hash_of(folder.study()) == HASH


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_study_with_a_number_that_is_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    study = {"local": {"clip": value}}
    with pytest.raises(PotluckError, match="not finite"):
        hash_of(study)
    with pytest.raises(PotluckError, match="not finite"):
        RunFolder.create(tmp_path / "run", study, "x")
    assert not (tmp_path / "run").exists()


# Creating and opening


def test_a_new_run_folder_holds_the_study(folder: RunFolder) -> None:
    again = RunFolder.open(folder.path)
    assert again == folder
    assert again.study() == STUDY
    assert again.study_hash() == HASH
    assert again.history() == []
    assert not again.finished
    assert [path.name for path in folder.path.iterdir()] == ["study.json"]


def test_the_hash_is_the_one_given(tmp_path: Path) -> None:
    """A caller may leave out of the hash what does not change the results."""
    assert RunFolder.create(tmp_path, STUDY, "mine").study_hash() == "mine"


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path, STUDY, HASH).study() == STUDY


def test_a_run_is_never_overwritten(folder: RunFolder) -> None:
    with pytest.raises(PotluckError, match="there is a run here already") as caught:
        RunFolder.create(folder.path, STUDY, HASH)
    assert f"potluck resume {folder.path}" in str(caught.value)
    assert "--out" in str(caught.value)


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(PotluckError, match=r"not empty.*potluck resume.*another --out"):
        RunFolder.create(tmp_path, STUDY, HASH)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_place_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(PotluckError, match=r"run: this is a file.*--out"):
        RunFolder.create(tmp_path / "run", STUDY, HASH)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PotluckError, match=r"cannot be written \(Not a directory\)"):
        RunFolder.create(tmp_path / "file" / "run", STUDY, HASH)


def test_opening_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(PotluckError, match=r"not a run folder: it has no study.json"):
        RunFolder.open(tmp_path)
    with pytest.raises(PotluckError, match=r"not a run folder: there is no such folder"):
        RunFolder.open(tmp_path / "nowhere")


def test_a_study_edited_after_the_run_started_is_refused(folder: RunFolder) -> None:
    path = folder.path / "study.json"
    path.write_text(path.read_text().replace('"rounds": 3', '"rounds": 5'))
    with pytest.raises(PotluckError, match=r"study.json: changed since it was written"):
        RunFolder.open(folder.path).study()


# The history


def test_history_gives_back_what_was_appended(folder: RunFolder) -> None:
    records = [{"round": i, "lr": 0.1 / i, "cohort": ["a", "東京"], "sites": {}} for i in (1, 2, 3)]
    for record in records:
        folder.append(record)
    assert folder.history() == records
    assert len((folder.path / "history.jsonl").read_text().splitlines()) == 3


def test_history_is_strict_json(folder: RunFolder) -> None:
    losses = {"loss": math.nan, "bound": -math.inf, "fine": 1.5}
    folder.append({"round": 1, "sites": {"a": losses}, "test": {"per_class": (math.inf, 0.5)}})
    text = (folder.path / "history.jsonl").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert folder.history() == [
        {
            "round": 1,
            "sites": {"a": {"loss": None, "bound": None, "fine": 1.5}},
            "test": {"per_class": [None, 0.5]},
        }
    ]


def test_a_half_written_last_line_is_dropped_wherever_it_ends(folder: RunFolder) -> None:
    for i in (1, 2):
        folder.append({"round": i, "lr": 0.1})
    path = folder.path / "history.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        assert [record["round"] for record in folder.history()] == [1]
    folder.truncate_history(1)
    folder.append({"round": 2, "lr": 0.1})
    assert path.read_bytes() == whole


@pytest.mark.parametrize("line", ["{", "", "7", '{"lr": 0.1}', '{"round": "2"}', "\x00"])
def test_a_damaged_line_is_named(folder: RunFolder, line: str) -> None:
    (folder.path / "history.jsonl").write_text(f'{{"round": 1}}\n{line}\n{{"round": 3}}\n')
    with pytest.raises(PotluckError, match=r"history.jsonl: line 2 .*backup"):
        folder.history()


def test_truncating_keeps_the_rounds_of_the_checkpoint(folder: RunFolder) -> None:
    for i in range(1, 6):
        folder.append({"round": i})
    folder.truncate_history(3)
    assert [record["round"] for record in folder.history()] == [1, 2, 3]
    folder.truncate_history(9)
    assert [record["round"] for record in folder.history()] == [1, 2, 3]
    folder.truncate_history(0)
    assert folder.history() == []


def test_truncating_a_history_that_was_never_begun(folder: RunFolder) -> None:
    folder.truncate_history(0)
    assert folder.history() == []


def test_a_failed_truncation_leaves_the_history_whole(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder.append({"round": 1})
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(PotluckError, match=r"history.jsonl: cannot be written \(No space left"):
        folder.truncate_history(0)
    assert folder.history() == [{"round": 1}]
    assert not list(folder.path.glob("*.tmp"))


def test_a_full_disk_while_appending_is_explained(folder: RunFolder) -> None:
    folder.append({"round": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(PotluckError, match=r"history.jsonl: cannot be written"):
            folder.append({"round": 2, "note": "x" * 200})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert folder.history() == [{"round": 1}]
