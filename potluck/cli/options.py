"""Options that several commands share."""

from typing import Annotated

import typer

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        help="Replace a value of the study, e.g. -o rounds=5 -o local.lr=0.01 "
        "-o simulation.sites.0.samples=50 (repeatable).",
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=r"Use the values of the study's \[scales.NAME], e.g. small."),
]
