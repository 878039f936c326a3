"""Named things with options, checked against the signature of what they name."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from potluck.errors import PotluckError, one_of
from potluck.study.explain import complaint

Known = Mapping[str, Callable[..., Any]]

# What a caller supplies, not the user: never options.
_SUPPLIED = {"classes", "sites", "generator", "input_shape"}

_FINITE = ConfigDict(allow_inf_nan=False)


def complete(where: str, what: str, known: Known, given: Any, default: str) -> dict[str, Any]:
    """Check a named choice and fill in the defaults of its options.

    Args:
      where:   its place in the file, e.g. "method".
      what:    the kind of thing, for messages, e.g. "method".
      known:   the things there are, by name; their signatures say which options they take.
      given:   a name, or a table with `name` and options.
      default: the name that a table without one has options of.

    Returns:
      a table with `name` and every option.
    """
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or not isinstance(table.get("name", default), str):
        raise PotluckError(
            f'{where}: give a name, or a table with a name, e.g. {where} = "{default}".'
        )
    name = table.get("name", default)
    if name not in known:
        raise PotluckError(f"{where}.name: {one_of(what, name, known)}")
    accepted = options_of(known[name])
    completed: dict[str, Any] = {"name": name}
    for key in table:
        if key != "name" and key not in accepted:
            if not accepted:
                raise PotluckError(f'{where}.{key}: {what} "{name}" has no options; remove it.')
            raise PotluckError(f"{where}.{key}: {one_of(f'option of {name}', key, accepted)}")
    for key, (kind, value) in accepted.items():
        if key in table:
            completed[key] = _checked(f"{where}.{key}", kind, table[key])
        elif value is inspect.Parameter.empty:
            raise PotluckError(
                f'{where}.{key} is missing; {what} "{name}" needs it: '
                f'{where} = {{ name = "{name}", {key} = … }}.'
            )
        else:
            completed[key] = value
    return completed


def options_of(thing: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The options a function or class takes: {name: (type, default)}."""
    target = thing.__init__ if inspect.isclass(thing) else thing
    hints = get_type_hints(target)
    return {
        name: (hints.get(name, Any), parameter.default)
        for name, parameter in inspect.signature(thing).parameters.items()
        if name not in _SUPPLIED
    }


def make(known: Known, completed: Mapping[str, Any], **supplied: Any) -> Any:
    """Call the named thing with its options."""
    options = {key: value for key, value in completed.items() if key != "name"}
    return known[completed["name"]](**supplied, **options)


def _checked(where: str, kind: Any, value: Any) -> Any:
    try:
        return TypeAdapter(kind, config=_FINITE).validate_python(value)
    except ValidationError as error:
        raise PotluckError(f"{where} {complaint(error.errors()[0])}") from None
