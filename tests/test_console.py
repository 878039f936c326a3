"""What the terminal shows can be read in a narrow one."""

import pytest
from rich.console import Console

from potluck import console
from potluck.report.tables import Table

COLUMNS = ["method", *(f"{count} labels" for count in range(2, 8))]


def printed(monkeypatch: pytest.MonkeyPatch, table: Table, width: int) -> str:
    narrow = Console(width=width, highlight=False, record=True)
    monkeypatch.setattr(console, "out", narrow)
    console.show_table(table)
    return narrow.export_text()


@pytest.mark.parametrize("width", [50, 80, 200])
def test_columns_that_do_not_fit_follow_below(monkeypatch, width):
    rows = [[name, *(f"{n}{n}.{n}{n}" for n in range(6))] for name in ("FedAvg, private", "FedRS")]
    told = printed(monkeypatch, Table(COLUMNS, rows), width)
    assert max(map(len, told.splitlines())) <= width
    assert "…" not in told
    for text in (*COLUMNS, *(cell for row in rows for cell in row)):
        assert text in told
    parts = told.count("┏")
    assert told.count("FedAvg, private") == parts
    assert parts == {50: 3, 80: 2, 200: 1}[width]


def test_a_table_whose_first_column_does_not_tell_rows_apart_stays_in_one_piece(monkeypatch):
    rows = [["FedUL", f"{count} sets", *("0.86 ± 0.09",) * 5] for count in (10, 20)]
    assert printed(monkeypatch, Table(COLUMNS, rows), 60).count("┏") == 1
