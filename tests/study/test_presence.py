"""Who is there: the file that the coordinator writes and the live page reads."""

import json
from datetime import datetime

import pytest

from potluck.errors import PotluckError
from potluck.study.presence import Presence, read_presence, update_presence, write_presence

AWAY = Presence(False, "2026-01-01T10:00:00+00:00", "no reply within 120 s")


def test_what_is_written_is_read(tmp_path):
    sites = {"north": Presence.now(True), "Süd\n": AWAY}
    write_presence(tmp_path, sites)
    assert read_presence(tmp_path) == sites
    assert json.loads((tmp_path / "presence.json").read_text())["Süd\n"] == {
        "present": False,
        "since": "2026-01-01T10:00:00+00:00",
        "reason": "no reply within 120 s",
    }


def test_no_file_says_nothing_about_anybody(tmp_path):
    assert read_presence(tmp_path) == {}


def test_now_has_a_time_zone():
    assert datetime.fromisoformat(Presence.now(True).since).tzinfo is not None


def test_a_site_that_stays_away_is_away_since_it_went():
    news = {"north": Presence.now(False, "connection refused"), "south": Presence.now(True)}
    known = update_presence({"north": AWAY, "west": AWAY}, news)
    assert known["north"] == Presence(False, AWAY.since, "connection refused")
    assert known["south"] == news["south"]
    assert known["west"] == AWAY


def test_a_site_that_comes_back_is_here_since_then():
    news = {"north": Presence.now(True)}
    assert update_presence({"north": AWAY}, news) == news


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"north": true}',
        '{"north": {"present": true}}',
        '{"north": {"present": "no", "since": "2026-01-01", "reason": ""}}',
        '{"north": {"present": true, "since": "yesterday", "reason": ""}}',
        '{"north": {"present": true, "since": 3, "reason": ""}}',
        '{"north": {"present": true, "since": "2026-01-01", "reason": "", "ip": "10.0.0.1"}}',
    ],
)
def test_a_damaged_file_is_refused_with_the_remedy(tmp_path, text):
    (tmp_path / "presence.json").write_text(text)
    with pytest.raises(PotluckError, match=r"presence\.json: not a table of sites .* Delete it"):
        read_presence(tmp_path)
