"""A figure with the words that belong to it."""

from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with the words that belong to it.

    Args:
      title:   what it shows, in a few words.
      figure:  the figure.
      caption: how to read it.
      alt:     its main numbers, for those who cannot see it.
    """

    title: str
    figure: Figure
    caption: str
    alt: str
