"""The command line: parse, call, print.

Each command is a plain function in one of this package's files, and imports what it needs when
it is called, so that help comes quickly. What an argument is, a command's own text says: some
versions of typer and click together do not show the help of arguments.
"""

from collections.abc import Callable

import typer

from potluck.cli import models, network, results, starting, training, watching

app = typer.Typer(
    name="potluck",
    help="Federated learning where every site brings the labels it has.",
    epilog="Start with: potluck demo. Then: potluck new my-study, potluck check, potluck run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {"demo": starting.demo, "new": starting.new, "list": starting.list_choices},
    "Train": {
        "check": training.check,
        "audit": training.audit,
        "run": training.run,
        "resume": training.resume,
        "watch": watching.watch,
    },
    "Train over a network": {
        "keys": network.keys,
        "coordinate": network.coordinate,
        "join": network.join,
    },
    "See what came of it": {
        "report": results.report,
        "compare": results.compare,
        "sweep": results.sweep,
        "reproduce": results.reproduce,
    },
    "Use a trained model": {
        "evaluate": models.evaluate,
        "predict": models.predict,
        "export": models.export,
    },
}
"""The commands by name, in the panels that the help shows."""

for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name=name, rich_help_panel=panel)(command)


def main() -> None:
    """Run the command line; a problem that the user can mend is one sentence, no traceback."""
    from potluck.errors import PotluckError

    try:
        app()
    except PotluckError as error:
        from potluck import console

        console.complain(error)
        raise SystemExit(2) from None
