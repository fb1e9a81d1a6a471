"""`disavow purge`."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from disavow.cli.erase import Shown, ask, tell_superseded
from disavow.cli.output import print_json, progress, results
from disavow.cli.passphrase import ask_passphrase
from disavow.cli.rounds import purge_line
from disavow.domain import model_name
from disavow.erasure.proof_files import proof_path, second_proof_path
from disavow.erasure.purge import PurgeForecast
from disavow.errors import NotConfirmed
from disavow.federation import Federation
from disavow.results import Purged, PurgeOutlook

_INTERRUPTED = 130


def purge(directory: Path, *, dry_run: bool, wait: float, yes: bool, task: str | None, as_json: bool) -> None:
    """Remove all leavers so far from the model."""
    if dry_run:
        with Federation.open(directory, task) as federation:
            forecast, outlook = federation.forecast_purge(), federation.purge_outlook()
        _show_forecast(directory, forecast, outlook, as_json=as_json)
        return
    with (
        Shown() as shown,
        Federation.open(directory, task, ask=ask_passphrase, loading=shown.loading) as federation,
    ):
        shown.ledger = federation.ledger
        try:
            done = federation.purge(wait=wait, confirm=None if yes else _confirm, callbacks=shown.callbacks)
        except KeyboardInterrupt:
            print(f"interrupted; `disavow resume {directory}` goes on", file=sys.stderr)
            raise typer.Exit(_INTERRUPTED) from None
        _show(federation, done, as_json=as_json)


def _show(federation: Federation, done: Purged, *, as_json: bool) -> None:
    """Print what a purge came to."""
    console, directory, served = results(), federation.directory, federation.ledger.last_round
    if as_json:
        proofs = [second_proof_path(directory, request.number) for request in done.requests]
        document = {
            **done.to_json(),
            "served_round": served,
            "proofs": [str(each) for each in proofs if each.exists()],
        }
        print_json({**document, "superseded_releases": sum(each.superseded for each in federation.releases())})
        return
    if done.purge is None and not done.requests:
        console.print("nothing to purge: no update of a leaver is in the model that is served")
        return
    count = len(done.requests)
    whose = "1 request is" if count == 1 else f"{count} requests are"
    said = [f"{whose} purged"]
    if done.purge is not None:
        said += [f"{done.purge.cost.rounds} rounds retrained", done.purge.remark]
    served_model = f"{model_name(served)} is served"
    if not any(served_model in each for each in said):  # the remark on a rebuild that ended early says it
        said.append(served_model)
    console.print("; ".join(filter(None, said)))
    for request in done.requests:
        console.print(f"  request {request.number}: {_proof(directory, request.number)}")
    if done.left:
        console.print(f"{done.left} more have left since: another purge removes them.")
    console.print(
        "The model has changed: export it again, and take out of service what was exported before, which contains "
        "the leavers."
    )
    tell_superseded(federation)


def _proof(directory: Path, number: int) -> str:
    """Where the proof lies that a leaver is out of the model."""
    first, second = proof_path(directory, number), second_proof_path(directory, number)
    if second.exists():
        return f"second proof: {second}"
    if first.exists():
        return f"answered meanwhile, its proof says so: {first}"
    return "second proof: not signed, there is no key"


def _confirm(forecast: PurgeForecast) -> None:
    """Let a person say that rounds are to be undone; elsewhere `--yes` says so."""
    if forecast.obstacle is not None:
        return  # nothing will be undone
    line = purge_line(forecast)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotConfirmed(f"{line}; nothing was changed: `--yes` confirms it, `--dry-run` only says what it costs")
    progress().print(f"{line}.\nUntil then {model_name((forecast.back_to or 1) - 1)} is served.")
    if ask("Undo these rounds? [y/N] ").strip().lower() not in ("y", "yes"):
        raise NotConfirmed("not confirmed; nothing was changed")


def _show_forecast(directory: Path, forecast: PurgeForecast, outlook: PurgeOutlook, *, as_json: bool) -> None:
    if as_json:
        document = {**outlook.to_json(), "forecast": forecast.to_json() if forecast else None}
        print_json({"run": str(directory), "dry_run": True, **document})
        return
    console = results()
    if not forecast:
        console.print("nothing to purge: no update of a leaver is in the model that is served")
        return
    if forecast.obstacle is not None:
        console.print(f"it cannot be purged: {forecast.obstacle}; nothing would be undone, the served model stays")
    else:
        console.print(purge_line(forecast))
    console.print(f"requests: {', '.join(map(str, forecast.requests))}")
    if outlook.due is not None:
        console.print(f"due {outlook.due:%Y-%m-%d %H:%M} UTC")
        for number in outlook.deadlines:
            if (why := outlook.at_risk(number)) is not None:
                console.print(f"request {number} is AT RISK: {why}")
    console.print("Nothing was changed.")
