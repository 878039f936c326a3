"""The command line: parse, call, print.

Each command is a plain function in one of this package's files, and imports what it needs when
it is called, so that help comes quickly. What an argument is, a command's own text says: some
versions of typer and click together do not show the help of arguments.
"""

import typer

from potluck.cli import models, starting, training

app = typer.Typer(
    name="potluck",
    help="Federated learning where every site brings the labels it has.",
    epilog="Start with: potluck demo. Then: potluck new my-study, potluck check, potluck run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

for _command in (training.run, training.resume, training.check, training.audit):
    app.command(rich_help_panel="Train")(_command)
for _command in (models.predict, models.evaluate):
    app.command(rich_help_panel="Use a trained model")(_command)
for _command in (starting.demo, starting.new):
    app.command(rich_help_panel="Start")(_command)
app.command(name="list", rich_help_panel="Start")(starting.list_choices)


def main() -> None:
    """Run the command line; a problem that the user can mend is one sentence, no traceback."""
    from potluck.errors import PotluckError

    try:
        app()
    except PotluckError as error:
        from potluck import console

        console.complain(error)
        raise SystemExit(2) from None
