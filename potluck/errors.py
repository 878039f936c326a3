"""Errors for people: what is wrong, where, and what to do about it."""

from collections.abc import Iterable
from difflib import get_close_matches


class PotluckError(Exception):
    """Something a user can mend; the message says where and how, so no traceback is needed."""


def one_of(what: str, given: object, known: Iterable[str]) -> str:
    """Say that a name is unknown, which one was probably meant, and which there are.

    Args:
      what:  the kind of thing, e.g. "class" or "model".
      given: the name that was not found.
      known: all valid names.

    Returns:
      One sentence or two, e.g. `unknown model "resnt18"; did you mean "resnet18"?`, and the
      names that are known.
    """
    names = [str(name) for name in known]
    close = get_close_matches(str(given), names, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else "."
    shown = ", ".join(names[:20]) + (f", … ({len(names)} in all)" if len(names) > 20 else "")
    return f'unknown {what} "{given}"{hint} Known: {shown}.'
