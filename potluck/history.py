"""The history of a run: a record for each round, of plain numbers, names and lists."""

from collections.abc import Sequence
from typing import Any

Record = dict[str, Any]
"""What happened in one round; `engines/rounds.py` makes it, a line of `history.jsonl` keeps it."""


def best_round(history: Sequence[Record]) -> Record | None:
    """The record of the round whose model did best in validation, the first of equals.

    Choosing by validation, never by test, is what makes its test accuracy an honest number.

    Returns:
      the record; None when the run had no validation.
    """
    validated = [record for record in history if "validation" in record]
    return max(validated, key=lambda record: record["validation"], default=None)
