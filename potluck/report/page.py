"""Assemble a page: one HTML file that needs nothing else and asks the network for nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from potluck.report.picture import Picture
from potluck.report.style import inline_svg
from potluck.report.tables import Table


@dataclass(frozen=True)
class Text:
    """A paragraph; a note is set apart."""

    text: str
    note: bool = False


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Text to be copied as it is."""

    text: str


@dataclass(frozen=True)
class Download:
    """A link that saves a text, which the page itself carries, to a file."""

    label: str
    file: str
    data: str


@dataclass(frozen=True, eq=False)
class Folded:
    """Something that is shown on request."""

    summary: str
    content: "Table | Code"


Block = Text | Points | Code | Download | Folded | Table | Picture


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a page under its own heading."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, eq=False)
class Page:
    """A page.

    Args:
      title:    its title and first heading.
      subtitle: a line below it.
      headline: names and values of the few numbers that matter most.
      notes:    what a reader must know before anything else.
      sections: its parts; empty ones are left out.
      footer:   the last line.
    """

    title: str
    subtitle: str
    headline: Sequence[tuple[str, str]]
    notes: Sequence[str]
    sections: Sequence[Section]
    footer: str

    def html(self) -> str:
        """The whole file."""
        sections = [section for section in self.sections if section.blocks]
        style = files("potluck.report").joinpath("page.css").read_text(encoding="utf-8")
        links = "".join(
            f'<li><a href="#{_anchor(i)}">{escape(section.title)}</a></li>'
            for i, section in enumerate(sections)
        )
        numbers = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in self.headline
        )
        numbers = f'<dl class="headline">{numbers}</dl>' if numbers else ""
        notes = "".join(f'<p class="note">{escape(note)}</p>' for note in self.notes)
        body = "\n".join(_section(i, section) for i, section in enumerate(sections))
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(self.title)}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>{escape(self.title)}</h1>
<p>{escape(self.subtitle)}</p>
</header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main id="main">
{numbers}
{notes}
{body}
</main>
<footer><p>{escape(self.footer)}</p></footer>
</body>
</html>
"""


def _section(number: int, section: Section) -> str:
    anchor = _anchor(number)
    blocks = "\n".join(
        _block(block, f"{anchor}-{i}", section.title) for i, block in enumerate(section.blocks)
    )
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title">{escape(section.title)}</h2>\n{blocks}</section>'
    )


def _block(block: Block, name: str, section: str) -> str:
    match block:
        case Text(text, note):
            return f'<p class="note">{escape(text)}</p>' if note else f"<p>{escape(text)}</p>"
        case Points(texts):
            return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
        case Code(text):
            return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
        case Download(label, file, data):
            return f'<p><a download="{escape(file)}" href="{escape(data)}">{escape(label)}</a></p>'
        case Folded(summary, content):
            inner = _block(content, name, section)
            return f"<details><summary>{escape(summary)}</summary>{inner}</details>"
        case Table():
            return block.html()
        case Picture(title, figure, caption, alt):
            heading = "" if title == section else f"<h3>{escape(title)}</h3>\n"
            return (
                f"{heading}<figure>{inline_svg(figure, name, alt)}"
                f"<figcaption>{escape(caption)}</figcaption></figure>"
            )


def _anchor(number: int) -> str:
    return f"part-{number + 1}"
