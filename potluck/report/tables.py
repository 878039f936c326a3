"""A table of text and numbers, as HTML, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Cell:
    """A text, perhaps the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; the first column names the row.

    Args:
      columns: their headings.
      rows:    as many cells each; plain texts are cells that are not the best.
      caption: what the table has.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""

    def cells(self) -> list[list[Cell]]:
        """The rows, with every text as a cell."""
        return [
            [cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows
        ]

    def html(self) -> str:
        """A `<table>` in which the first cell of a row is its heading."""
        cells = self.cells()
        words = [all(map(_wordy, column)) for column in zip(*cells, strict=True)] or [False]
        head = "".join(
            f'<th scope="col"{_left(word)}>{escape(name)}</th>'
            for name, word in zip(self.columns, words, strict=False)
        )
        rows = [_html_row(row, words) for row in cells]
        label = escape(self.caption or ", ".join(self.columns), quote=True)
        caption = f'<p class="caption">{escape(self.caption)}</p>' if self.caption else ""
        body = "\n".join(rows)
        return (
            f'{caption}<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
            f"<table><thead><tr>{head}</tr></thead>\n"
            f"<tbody>{body}</tbody></table></div>"
        )

    def markdown(self) -> str:
        """A table as GitHub reads it; the best cells are bold."""
        lines = [
            _markdown_row([_escaped(name, "|") for name in self.columns]),
            _markdown_row(["---", *["---:"] * (len(self.columns) - 1)]),
        ]
        for row in self.cells():
            texts = [_escaped(cell.text, "|") for cell in row]
            best = [cell.best for cell in row]
            lines.append(
                _markdown_row([f"**{t}**" if b else t for t, b in zip(texts, best, strict=True)])
            )
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A `tabular` for the package booktabs; the best cells are bold."""
        lines = [
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            r"\toprule",
            " & ".join(map(latex_text, self.columns)) + r" \\",
            r"\midrule",
        ]
        for row in self.cells():
            texts = [latex_text(cell.text) for cell in row]
            best = [cell.best for cell in row]
            shown = [rf"\textbf{{{t}}}" if b else t for t, b in zip(texts, best, strict=True)]
            lines.append(" & ".join(shown) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def csv(self) -> str:
        """Comma-separated values, without marks for the best."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([cell.text for cell in row] for row in self.cells())
        return buffer.getvalue()


def latex_text(text: str) -> str:
    """Plain text with LaTeX's own characters escaped and ± in mathematics."""
    special = {c: "\\" + c for c in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {"±": r"$\pm$", "−": "$-$", "<": "$<$", ">": "$>$", "×": r"$\times$"}
    special |= {"†": r"$^\dagger$", "≥": r"$\geq$", "–": "--"}
    return "".join(special.get(character, character) for character in text)


def _html_row(row: Sequence[Cell], words: Sequence[bool]) -> str:
    first, *others = row
    cells = "".join(
        f'<td class="best">{escape(cell.text)}</td>'
        if cell.best
        else f"<td{_left(word)}>{escape(cell.text)}</td>"
        for cell, word in zip(others, words[1:], strict=True)
    )
    return f'<tr><th scope="row">{escape(first.text)}</th>{cells}</tr>'


def _wordy(cell: Cell) -> bool:
    """Whether a cell has words rather than a number; nothing is neither."""
    return not cell.text or cell.text[0].isalpha() or ": " in cell.text


def _left(word: bool) -> str:
    return ' class="word"' if word else ""


def _markdown_row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _escaped(text: str, character: str) -> str:
    return text.replace(character, "\\" + character)
