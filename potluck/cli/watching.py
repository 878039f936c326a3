"""Watch a run: watch."""

from pathlib import Path
from typing import Annotated

import typer


def watch(
    folder: Annotated[Path | None, typer.Argument()] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than this machine's are open.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any that is free.")
    ] = 8017,
) -> None:
    """Show a run in the browser while it goes on: progress, sites, curves, events.

    FOLDER is a run folder, the newest in runs/ when left out. The page only reads it: watching
    neither slows the run down nor can it change anything. Ctrl-C ends the page, not the run.

    Example: potluck watch runs/irises-1a2b3c4d
    """
    from potluck import console
    from potluck.study.runfolder import RunFolder
    from potluck.watch.server import is_loopback, serving
    from potluck.watch.snapshot import newest_run

    opened = RunFolder.open(folder or newest_run(Path("runs")))
    if not is_loopback(host):
        console.err.print(
            f"warning: {host} may be reached from other machines; whoever can reach it can see "
            "this run's sites and results. The page has no password.",
            markup=False,
            soft_wrap=True,
        )
    with serving(opened.path, host, port) as server:
        console.out.print(
            f"watching {opened.path}: {server.address}   (Ctrl-C ends the page, not the run)",
            markup=False,
            soft_wrap=True,
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.out.print("the page is closed.")
