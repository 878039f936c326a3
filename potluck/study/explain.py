"""Turn a schema's complaints into sentences that say where, what and what was meant."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError


def explain(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """All complaints about a file, one per line.

    Args:
      error: what the schema found.
      model: the schema.
      where: the file.
    """
    lines = [f"{where}: {_sentence(detail, model)}" for detail in error.errors()]
    return "\n".join(dict.fromkeys(lines))


def _sentence(detail: Any, model: type[BaseModel]) -> str:
    location = [str(part) for part in detail["loc"]]
    path, kind, value = _path(detail["loc"]), detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        known = _siblings(model, detail["loc"])
        close = get_close_matches(location[-1], known, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(known)}."
        return f"{path} is not a known key; {hint}"
    if kind == "missing":
        return f"{path} is missing."
    if kind == "union_tag_invalid":
        tag, expected = detail["ctx"]["tag"], detail["ctx"]["expected_tags"].replace("'", "")
        close = get_close_matches(tag, expected.split(", "), n=1)
        hint = f' did you mean "{close[0]}"?' if close else ""
        return f'{path}.kind is "{tag}", which is unknown;{hint} Known: {expected}.'
    if kind == "union_tag_not_found":
        return f'{path} needs a kind, e.g. kind = "exact".'
    message = detail["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(value, dict | list) or kind == "value_error" else f"; it is {value!r}"
    return f"{path}: {message[0].lower()}{message[1:]}{shown}."


def _path(location: Sequence[int | str]) -> str:
    """simulation.sites[2].view.rho, without the tags of unions."""
    text = ""
    for position, part in enumerate(location):
        if isinstance(part, int):
            text += f"[{part}]"
        elif not (position and location[position - 1] in ("view", "data")):
            text += f".{part}" if text else part
    return text or "the file"


def _siblings(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The keys that the schema knows beside a rejected one."""
    fields = model.model_json_schema()
    definitions = fields.get("$defs", {})
    here = [fields]
    for part in location[:-1]:
        nested = [schema.get("properties", {}).get(part) for schema in here]
        step = [schema for schema in nested if schema is not None]
        # A list index or a union's tag names no property: stay, narrowed to the tag's schema.
        here = _alternatives(step or here, definitions, part)
    return sorted({key for schema in here for key in schema.get("properties", {})})


def _alternatives(
    schemas: list[dict[str, Any]], definitions: dict[str, Any], tag: int | str
) -> list[dict[str, Any]]:
    """Follow references, list items and unions down to object schemas."""
    found: list[dict[str, Any]] = []
    pending = list(schemas)
    while pending:
        schema = pending.pop()
        if "$ref" in schema:
            pending.append(definitions[schema["$ref"].rpartition("/")[2]])
        elif "items" in schema:
            pending.append(schema["items"])
        elif options := schema.get("oneOf") or schema.get("anyOf"):
            pending.extend(options)
        else:
            found.append(schema)
    tagged = [s for s in found if s.get("properties", {}).get("kind", {}).get("const") == tag]
    return tagged or found
