"""What people see in the terminal of a coordinator and of a site."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.markup import escape

from potluck.console import err, out, progress
from potluck.errors import PotluckError
from potluck.study.runfolder import RunFolder


def follow_run(events: Iterable[Mapping[str, Any]], run: RunFolder) -> None:
    """Say what happens during a run until it ends.

    Args:
      events: what the coordinator's program notes.
      run:    its run folder.
    """
    rounds = run.study()["rounds"]
    with progress(rounds, _done(run), run.study()["name"]) as advance:
        for event in events:
            _say(event)
            if event["what"] == "round":
                records = [r for r in run.history() if r["round"] == event["round"]]
                for record in records:
                    advance(record)
                    if not out.is_terminal:
                        _say_round(record, rounds)
            if event["what"] == "failed":
                raise PotluckError(event["why"])


def _say(event: Mapping[str, Any]) -> None:
    site = escape(str(event.get("site") or ""))
    match event["what"]:
        case "waiting" if event["sites"]:
            out.print(f"waiting for {escape(', '.join(event['sites']))}", soft_wrap=True)
        case "connected" if site:
            out.print(f"{site} is connected")
        case "site":
            out.print(f"[green]{site}[/] brings {escape(event['brings'])}", soft_wrap=True)
        case "problem":
            err.print(f"[yellow]{site}:[/] {escape(event['why'])}", soft_wrap=True)
        case "verdict":
            out.print(escape(event["text"]), soft_wrap=True)
        case "start":
            first = event["round"] + 1
            how = "training starts" if first == 1 else f"training goes on with round {first}"
            out.print(f"{how} with {len(event['sites'])} sites", soft_wrap=True)
        case "round":
            for name, why in event["failed"].items():
                text = f"round {event['round']}: {escape(name)} {escape(why)}"
                err.print(f"[yellow]{text}[/]", soft_wrap=True)


def _say_round(record: Mapping[str, Any], rounds: int) -> None:
    """One line per round, where there is no live bar."""
    test = record.get("test")
    accuracy = f", test accuracy {test['accuracy']:.1%}" if test else ""
    answers = len(record["cohort"]) - len(record["failed"])
    out.print(
        f"round {record['round']} of {rounds}: {answers} of {len(record['cohort'])} sites, "
        f"{record['seconds']:.1f} s{accuracy}",
        soft_wrap=True,
    )


def _done(run: RunFolder) -> int:
    return len(run.history())


def show_site_event(event: Mapping[str, Any]) -> None:
    """Say what a site does."""
    match event["did"]:
        case "connected":
            out.print(f"connected to the coordinator at {event['address']}", markup=False)
        case "waiting":
            out.print(f"no coordinator at {event['address']} yet; waiting", markup=False)
        case "restarting":
            err.print("the connection was lost; connecting again", markup=False)
        case "declared":
            out.print(f"told the coordinator what there is: {event['brings']}", markup=False)
        case "trained" | "sat out":
            _say_trained(event)
        case "failed":
            err.print(f"[yellow]could not answer:[/] {escape(event['why'])}", soft_wrap=True)


def _say_trained(event: Mapping[str, Any]) -> None:
    metrics = event["metrics"]
    loss = f", loss {metrics['loss']:.4g}" if "loss" in metrics else ""
    out.print(
        f"round {event['round']} of {event['rounds']}: {event['did']}{loss}; received "
        f"{_size(event['down'])}, sent {_size(event['up'])}",
        markup=False,
        soft_wrap=True,
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
