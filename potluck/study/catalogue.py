"""What a study file can choose from, read off the code itself."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from potluck.data.partitions import PARTITIONS
from potluck.data.readers import DATASETS
from potluck.engines import ENGINES
from potluck.errors import PotluckError, one_of
from potluck.federated import FEDERATED
from potluck.local import LOCAL_OPTIMISERS, SCHEDULES
from potluck.methods import METHODS
from potluck.models import MODELS
from potluck.study.options import options_of
from potluck.study.simulated_views import SimulatedView
from potluck.study.views import DeclaredView

Rows = list[tuple[str, str, dict[str, str]]]


def catalogue(what: str | None = None) -> dict[str, Rows]:
    """Tables of named things: {title: rows of (name, what it is, options with defaults)}.

    Args:
      what: one of the tables; all when left out.
    """
    tables: dict[str, Callable[[], Rows]] = {
        "methods": lambda: _named(METHODS),
        "federated": lambda: _named(FEDERATED),
        "models": lambda: _named(MODELS),
        "optimisers": lambda: _named(LOCAL_OPTIMISERS),
        "schedules": lambda: _named(SCHEDULES),
        "engines": lambda: _named(ENGINES),
        "partitions": lambda: _named(PARTITIONS),
        "datasets": lambda: [(name, _first_line(read), {}) for name, read in DATASETS.items()],
        "views": lambda: _kinds(DeclaredView),
        "simulated views": lambda: _kinds(SimulatedView),
    }
    if what is not None and what not in tables:
        raise PotluckError(one_of("list", what, tables))
    return {title: rows() for title, rows in tables.items() if what in (None, title)}


def _named(known: Mapping[str, Callable[..., Any]]) -> Rows:
    return [
        (
            name,
            _first_line(thing),
            {key: _default(default) for key, (_, default) in options_of(thing).items()},
        )
        for name, thing in known.items()
    ]


def _kinds(union: Any) -> Rows:
    rows: Rows = []
    for model in get_args(get_args(union)[0]):
        fields = {
            key: "required" if field.is_required() else repr(field.default)
            for key, field in model.model_fields.items()
            if key != "kind"
        }
        rows.append(
            (get_args(model.model_fields["kind"].annotation)[0], _first_line(model), fields)
        )
    return rows


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _default(value: Any) -> str:
    return "required" if value is inspect.Parameter.empty else repr(value)
