"""Who is there: `presence.json` in a run folder says which sites of a federation can be reached.

    {"north clinic": {"present": false, "since": "2026-03-01T09:30:00+00:00",
                      "reason": "no reply within 120 s"}}

The coordinator writes it whenever somebody comes or goes; `potluck watch` shows it. A run on one
machine has no such file: every site is present.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from potluck.errors import PotluckError
from potluck.study.files import written_whole

FILE = "presence.json"


@dataclass(frozen=True)
class Presence:
    """Whether a site can be reached.

    Args:
      present: whether it can.
      since:   when that began, as ISO 8601 text with its time zone.
      reason:  why it cannot, in a few words; empty for a site that is present.
    """

    present: bool
    since: str
    reason: str = ""

    @classmethod
    def now(cls, present: bool, reason: str = "") -> "Presence":
        """A presence that begins now."""
        return cls(present, datetime.now(UTC).isoformat(timespec="seconds"), reason)


def update_presence(
    known: Mapping[str, Presence], news: Mapping[str, Presence]
) -> dict[str, Presence]:
    """What is known once news has arrived; a site that stays as it was keeps its `since`.

    Args:
      known: what was known before.
      news:  what was found out, for some or all sites.
    """
    return {**known, **{name: _lasting(known.get(name), new) for name, new in news.items()}}


def write_presence(folder: Path, sites: Mapping[str, Presence]) -> None:
    """Write who is there; readers see the old file or the new one, never half of one.

    Args:
      folder: the run folder.
      sites:  the presence of each site, by name.
    """
    text = json.dumps({name: asdict(presence) for name, presence in sites.items()}, indent=1)
    with written_whole(folder / FILE) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_presence(folder: Path) -> dict[str, Presence]:
    """Who is there, by name; empty when the run has no such file.

    Args:
      folder: the run folder.

    Raises:
      PotluckError: the file is not what `write_presence` writes.
    """
    path = folder / FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): _presence(entry) for name, entry in stored.items()}
    except FileNotFoundError:
        return {}
    except (AttributeError, TypeError, ValueError) as error:
        raise PotluckError(
            f"{path}: not a table of sites with present, since and reason ({error}). Delete it; "
            "the coordinator writes it anew."
        ) from None
    except OSError as error:
        raise PotluckError(f"{path}: cannot be read ({error.strerror}).") from None


def _presence(entry: Mapping[str, object]) -> Presence:
    found = Presence(**entry)  # type: ignore[arg-type]  # checked in the next line
    if not isinstance(found.present, bool) or not isinstance(found.reason, str):
        raise ValueError(f"{entry}")
    datetime.fromisoformat(found.since)
    return found


def _lasting(old: Presence | None, new: Presence) -> Presence:
    """The news, with the old beginning if the site is merely still there, or still away."""
    if old is None or old.present != new.present:
        return new
    return replace(new, since=old.since)
