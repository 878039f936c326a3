"""Train over a network: keys, coordinate, join."""

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.options import Overrides, Scale


def keys(
    folder: Path,
    site: Annotated[
        list[str] | None,
        typer.Option(help="The name of a site that gets a key pair (repeatable)."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or address of the coordinator's machine (repeatable); sites use the first."
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="The port that sites connect to.")] = 8500,
    days: Annotated[int, typer.Option(min=1, help="How long certificates are valid.")] = 365,
) -> None:
    """Make the keys and certificates of a consortium.

    FOLDER gets a folder coordinator, which stays with the coordinator, and a folder for each
    site, which goes to that site over a safe channel. Repeat the command to add sites: what is
    there is never changed.

    Example: potluck keys keys --host train.example.org --site station --site herbarium
    """
    _need("cryptography", "network")
    from potluck import console
    from potluck.flower.keys import CoordinatorKeys, make_keys, valid_until

    own = CoordinatorKeys(folder / "coordinator")
    hosts = host or ([] if not own.certificate.exists() else ["localhost"])
    added = make_keys(folder, site or [], hosts, port, days)
    lines = [f"{own.folder}: stays with the coordinator"]
    lines += [f"{folder / 'sites' / name}: for {name}, over a safe channel" for name in added]
    lines.append(
        f"the server's certificate is valid until {valid_until(own.certificate):%Y-%m-%d}; next: "
        f"potluck coordinate study.toml --keys {own.folder}"
    )
    for line in lines:
        console.out.print(line, markup=False, soft_wrap=True)


def coordinate(
    study: Path,
    keys: Annotated[
        Path | None, typer.Option(help="The folder coordinator that potluck keys made.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; runs/NAME-HASH when left out.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Another port than that of the keys.")] = None,
    bind: Annotated[
        str, typer.Option(help="0.0.0.0 listens to all networks, 127.0.0.1 to this machine only.")
    ] = "0.0.0.0",
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate", help="No network: Flower's simulation runtime (Ray) plays the sites."
        ),
    ] = False,
    cpus: Annotated[int, typer.Option(min=1, help="With --simulate: cores for each site.")] = 1,
    override: Overrides = None,
    scale: Scale = None,
) -> None:
    r"""Coordinate the training of sites that connect over a network.

    STUDY is a study file with a \[federation]; the coordinator needs no site files. Only sites
    with a key from [bold]potluck keys[/] are admitted. Training starts when those that the study
    asks for are there. If the run folder has a run that was stopped, it goes on.

    Example: potluck coordinate study.toml --keys keys/coordinator --out runs/first
    """
    _need("ray" if simulate else "flwr", "cluster" if simulate else "network")
    from potluck import console
    from potluck.errors import PotluckError
    from potluck.flower import coordinator
    from potluck.flower.display import follow_run
    from potluck.flower.keys import CoordinatorKeys
    from potluck.flower.processes import free_port
    from potluck.study.execute import run_name
    from potluck.study.explain import about
    from potluck.study.model_files import load_model
    from potluck.study.schema import read_study

    checked = read_study(study, override or (), scale)
    folder = out or Path("runs") / run_name(checked)
    if simulate:
        run = coordinator.open_simulation(checked, folder)
        door = coordinator.Door(free_port(), "127.0.0.1", None)
    else:
        if keys is None:
            raise PotluckError(
                "give the coordinator's keys: --keys FOLDER (potluck keys makes it)."
            )
        own = CoordinatorKeys(keys)
        own.check()
        with about(study):
            coordinator.check_study(checked)
        sites = coordinator.expected_sites(checked, own)
        run = coordinator.open_run_folder(checked, folder, sites, True)
        door = coordinator.Door(port or own.port, bind, own)
    console.out.print(f"run folder: {folder}", markup=False, soft_wrap=True)
    try:
        with coordinator.serving(run, door, cpus) as events:
            follow_run(events, run)
    except KeyboardInterrupt:
        again = f"potluck coordinate {study} --out {folder}"
        again += " --simulate" if simulate else f" --keys {keys}"
        typer.echo(f"stopped; finished rounds are kept. Go on: {again}", err=True)
        raise typer.Exit(130) from None
    console.show_result(load_model(run), folder)


def join(
    site: Path,
    invitation: Annotated[
        Path, typer.Option(help="The folder that the coordinator made for this site.")
    ],
    study: Annotated[
        Path | None, typer.Option(help="The study, where the site file does not name its classes.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="For what the site keeps between rounds; SITE-work when left out."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    forget: Annotated[
        bool, typer.Option("--forget", help="Begin anew where what the site kept is lost.")
    ] = False,
) -> None:
    """Take part in the training that a coordinator leads, with this site's data.

    SITE is a site file. The data and its view are checked first; nothing leaves the site before.
    Then the site serves the coordinator until Ctrl-C, through any number of runs.

    Example: potluck join station.toml --invitation keys/sites/station
    """
    _need("flwr", "network")
    from potluck import console
    from potluck.flower.display import show_site_event
    from potluck.flower.joining import Place, check_site, chosen_device, joined
    from potluck.flower.keys import Invitation
    from potluck.labels import identifiability
    from potluck.study.build import study_classes

    key = Invitation(invitation)
    space = None if study is None else study_classes(study, site)
    holding = check_site(site, key, space)
    own = holding.site
    console.show_site(own, identifiability({own.name: own.view}))
    work = folder or site.with_name(f"{site.stem}-work")
    place = Place(work, chosen_device(device), forget)
    try:
        with joined(holding, key, place) as events:
            for event in events:
                show_site_event(event)
    except KeyboardInterrupt:
        typer.echo(f"left; what the site keeps is in {work}", err=True)
        raise typer.Exit(130) from None


def _need(package: str, extra: str) -> None:
    """Say how to install what a command needs and most people do not."""
    from importlib.util import find_spec

    from potluck.errors import PotluckError

    if find_spec(package) is None:
        raise PotluckError(f"this needs {package}: pip install 'potluck[{extra}]'")
