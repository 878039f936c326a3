"""Turn a schema's complaints into sentences that say where, what and what was meant."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ValidationError

from potluck.errors import PotluckError, one_of

# What a value must be, by the kind of complaint; {…} are the complaint's own details.
_MUST_BE = {
    "bool": "must be true or false",
    "dict": "must be a table, such as {{ key = value }}",
    "finite": "must be a finite number",
    "float": "must be a number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "int": "must be a whole number",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "list": "must be a list, such as [a, b]",
    "model": "must be a table, such as {{ key = value }}",
    "string": "must be text in quotes",
    "string_too_short": "must not be empty",
    "too_long": "must have {max_length} entries or fewer",
    "too_short": "must have {min_length} or more entries",
    "tuple": "must be a list, such as [a, b]",
}


def explain(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """All complaints about a file, one per line.

    Args:
      error: what the schema found.
      model: the schema.
      where: the file.
    """
    lines = [f"{where}: {_sentence(detail, model)}" for detail in error.errors()]
    return "\n".join(dict.fromkeys(lines))


@contextmanager
def about(where: object) -> Iterator[None]:
    """Say where the errors inside belong: a file, a key, a site."""
    try:
        yield
    except PotluckError as error:
        raise PotluckError(f"{where}: {error}") from None


def complaint(detail: Any) -> str:
    """What a value must be, and what it is instead: "must be above 0; it is -3.".

    Args:
      detail: one of a validation error's details.
    """
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "literal_error":
        known = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return f"is an {one_of('choice', detail['input'], known)}"
    if kind == "value_error":
        return str(context["error"])
    rule = _MUST_BE.get(kind) or _MUST_BE.get(kind.partition("_")[0])
    said = rule.format(**context) if rule else detail["msg"]
    return f"{said}; it is {_shown(detail['input'])}."


def _sentence(detail: Any, model: type[BaseModel]) -> str:
    location, kind = detail["loc"], detail["type"]
    path, place = _walk(model, location)
    if kind == "extra_forbidden":
        path, place = _walk(model, location[:-1])
        key = f"{path}.{location[-1]}" if path else str(location[-1])
        return f"{key}: {one_of('key', location[-1], place.keys)}"
    if kind == "missing":
        return f"{path} is missing; add it."
    if kind == "union_tag_invalid":
        return f"{path}.kind: {one_of('kind', detail['ctx']['tag'], place.kinds)}"
    if place.kinds and kind in ("union_tag_not_found", "model_attributes_type"):
        kinds = ", ".join(place.kinds)
        return (
            f'{path} needs a kind, e.g. {path} = {{ kind = "{place.kinds[0]}" }}. Known: {kinds}.'
        )
    return f"{path} {complaint(detail)}" if path else complaint(detail)


def _shown(value: Any) -> str:
    """A value nearly as it was written, in short."""
    if isinstance(value, dict):
        return "a table"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"


class _Place:
    """A place in a schema: the object schemas that may stand there."""

    def __init__(self, schemas: Sequence[dict[str, Any]], definitions: dict[str, Any]) -> None:
        self.definitions = definitions
        self.objects = _objects(schemas, definitions)

    @property
    def keys(self) -> list[str]:
        """The keys that are known here."""
        return sorted({key for schema in self.objects for key in schema.get("properties", {})})

    @property
    def kinds(self) -> list[str]:
        """The kinds that there are, if a kind decides which keys are known."""
        return [kind for schema in self.objects if (kind := _kind(schema)) is not None]

    def narrowed(self, tag: int | str) -> "_Place | None":
        """One alternative of a union; None if `tag`, which is written nowhere, names none."""
        found = [schema for schema in self.objects if _kind(schema) == tag]
        if not found and len(self.objects) > 1 and not self.keys:  # text or a table, say
            found = [s for s in self.objects if ("dict" in str(tag)) == (s.get("type") == "object")]
        return _Place(found, self.definitions) if found else None

    def below(self, key: int | str) -> "_Place":
        """What stands at a key, or in a list."""
        if isinstance(key, int):
            return self
        found = [schema.get("properties", {}).get(key) for schema in self.objects]
        return _Place([schema for schema in found if schema is not None], self.definitions)


def _walk(model: type[BaseModel], location: Sequence[int | str]) -> tuple[str, _Place]:
    """A location as people write it (simulation.sites[2].view.rho), and its place."""
    schema = model.model_json_schema()
    place, path = _Place([schema], schema.get("$defs", {})), ""
    for part in location:
        if (alternative := place.narrowed(part)) is not None:
            place = alternative
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
        place = place.below(part)
    return path, place


def _objects(schemas: Sequence[dict[str, Any]], definitions: dict[str, Any]) -> list[Any]:
    """Follow references, list items and unions down to object schemas."""
    found: list[Any] = []
    pending = list(reversed(schemas))
    while pending:
        schema = pending.pop()
        if "$ref" in schema:
            pending.append(definitions[schema["$ref"].rpartition("/")[2]])
        elif "items" in schema:
            pending.append(schema["items"])
        elif options := schema.get("oneOf") or schema.get("anyOf"):
            pending.extend(reversed(options))
        elif schema.get("type") != "null":
            found.append(schema)
    return found


def _kind(schema: dict[str, Any]) -> str | None:
    return schema.get("properties", {}).get("kind", {}).get("const")
