"""`disavow erase` and `disavow requests`."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from disavow import runs
from disavow.audit.work import default_work, remove_work
from disavow.cli.output import loading, print_json, progress, results, size
from disavow.cli.passphrase import ask_passphrase
from disavow.cli.rounds import Watch, rebuilt
from disavow.domain import ErasureRequest, RequestState, model_name
from disavow.erasure.dry_run import Forecast, foresee
from disavow.erasure.erase import answer_without_training
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.erasure.prove import check_openings, default_openings, opening_path, proof_path, unsigned_path
from disavow.errors import IntegrityError, RunInUse
from disavow.federation.round import now
from disavow.ledger import Ledger, fsck
from disavow.ledger.journal import rebuilding
from disavow.ledger.keys import default_folder, tombstone_key
from disavow.ledger.requests import find
from disavow.proof.keys import load_signer

_POLL_SECONDS = 0.2
_INTERRUPTED = 130


def erase(
    directory: Path,
    clients: list[str],
    *,
    dry_run: bool,
    wait: float,
    skip_fsck: bool,
    openings: Path | None,
    as_json: bool,
) -> None:
    """Honour the wish of these clients to be forgotten."""
    if dry_run:
        _show_forecast(directory, clients, as_json=as_json)
        return
    if openings is not None:
        check_openings(openings, directory)
    if not skip_fsck:
        _refuse_damaged(directory)
    key = tombstone_key(default_folder(), run=directory)
    with Ledger.open(directory, shared=True) as ledger:
        numbers = ledger.place_requests(list(dict.fromkeys(clients)), key=key, at=now())
    try:
        _see_to_it(directory, numbers, wait, openings)
    except KeyboardInterrupt:
        print(f"interrupted; `disavow resume {directory}` completes the erasure", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    if remove_work(directory):
        progress().print(f"removed {default_work(directory)}, which an interrupted audit left: it named clients")
    with Ledger.open(directory) as ledger:
        answered = ledger.requests(numbers)
    if as_json:
        asked = dict(zip(dict.fromkeys(clients), numbers, strict=True))
        names = {number: client for client, number in asked.items()}
        print_json({"run": str(directory), "requests": [{**_json(r), "client": names[r.number]} for r in answered]})
        return
    for client, number in zip(dict.fromkeys(clients), numbers, strict=True):
        [request] = [request for request in answered if request.number == number]
        results().print(f"{client}: {sentence(request)}")
        if request.state is RequestState.REBUILDING:
            results().print("  those rounds are undone; the run's Flower server app retrains them, then proves")
        else:
            results().print(_proof_of(directory, number, openings))


def _proof_of(directory: Path, number: int, openings: Path | None) -> str:
    """Where the proof of an answered request lies, and its opening."""
    proof, unsigned = proof_path(directory, number), unsigned_path(directory, number)
    with Ledger.open(directory) as ledger:
        opening = opening_path(openings or default_openings(directory), ledger.run_id, number)
    named = f"; its opening, for the leaver alone: {opening}" if opening.exists() else ""
    if proof.exists():
        return f"  proof: {proof}{named}"
    if unsigned.exists():
        return f"  proof: not signed, there is no key (`disavow keygen`, then `disavow prove`){named}"
    return "  no proof: it was answered before there were proofs"


def _refuse_damaged(directory: Path) -> None:
    faults = [finding for finding in fsck(directory) if finding.fault and not finding.spare]
    if faults:
        raise IntegrityError(
            f"{directory} fails fsck ({faults[0]}{f' and {len(faults) - 1} more' if len(faults) > 1 else ''}); "
            "restore it from a backup first, nothing was changed"
        )


def _see_to_it(directory: Path, numbers: tuple[int, ...], wait: float, openings: Path | None) -> None:
    """Answer the requests here, or wait for the process that holds the run to answer them between its rounds."""
    console, deadline, told = progress(), time.monotonic() + wait, False
    while True:
        with Ledger.open(directory) as ledger:
            if all(request.state is RequestState.ANSWERED for request in ledger.requests(numbers)):
                return
        try:
            if _honour(directory, openings):
                return
        except RunInUse as error:
            if time.monotonic() >= deadline:
                raise RunInUse(
                    f"{error}. The request is placed and will be honoured between its rounds: "
                    f"`disavow requests {directory}` shows it"
                ) from None
            if not told:
                console.print(f"{error}; the request is placed, waiting for it to be honoured")
                told = True
            time.sleep(_POLL_SECONDS)
            continue
        with Ledger.open(directory) as ledger:
            purging = any(request.state is RequestState.PURGING for request in ledger.requests(numbers))
        if purging and time.monotonic() >= deadline:
            raise RunInUse(
                f"{directory} is being read by another process, so deleted rows cannot be purged from its files; "
                f"`disavow resume {directory}` completes the erasure"
            )


def _honour(directory: Path, openings: Path | None) -> bool:
    """Answer all who wait; whether that is all that can be done here.

    Where the clients are Flower nodes, a rollback is made here, and its rounds wait for the run's server app.
    """
    settings = runs.settings_of(directory)
    if runs.on_nodes(settings):
        signer = load_signer(default_folder(), ask_passphrase)
        with Ledger.open(directory, write=True, signer=signer) as ledger:
            mechanism = build_mechanism(settings.mechanism)
            answer_without_training(ledger, runs.conduct_of(settings), mechanism, openings=openings)
            with ledger.snapshot() as connection:
                return rebuilding(connection) is not None
    console = progress()
    with loading(console) as on_progress:
        run = runs.reopen(directory, ask=ask_passphrase, openings=openings, on_progress=on_progress)
    with run:
        standing = run.ledger.next_round()[0] - 1
        with Watch(console, "retraining", total=standing, done=standing) as watch:
            run.honour_requests(on_round=watch.on_round, on_verdict=watch.on_verdict)
    return False


def _asked_before(directory: Path, clients: list[str]) -> dict[str, ErasureRequest]:
    """Those of these clients who have been answered already, or are about to be."""
    with Ledger.open(directory) as ledger, ledger.snapshot() as connection:
        if not ledger.requests():
            return {}  # nobody has asked: then there may be no key yet, and looking must not make one
        key = tombstone_key(default_folder(), run=directory)
        asked = {client: find(connection, client, key=key) for client in clients}
    return {c: r for c, r in asked.items() if r is not None and r.state is not RequestState.WAITING}


def _show_forecast(directory: Path, clients: list[str], *, as_json: bool) -> None:
    before = _asked_before(directory, clients)
    clients = [client for client in clients if client not in before]
    if not as_json:
        for client, request in before.items():
            results().print(f"{client} has asked before: {sentence(request)}")
    if not clients:
        if as_json:
            told = [{**_json(request), "client": client} for client, request in before.items()]
            print_json({"run": str(directory), "dry_run": True, "requests": told})
        return
    with Ledger.open(directory) as ledger:
        settings = runs.settings_of(directory)
        mechanism = build_mechanism(settings.mechanism)
        forecast = foresee(ledger, clients, runs.conduct_of(settings), mechanism)
    if as_json:
        print_json(
            {
                "run": str(directory),
                "dry_run": True,
                "clients": clients,
                "verdict": forecast.verdict.kind.value,
                "first_broken_round": forecast.verdict.round,
                "rollback_to_round": forecast.verdict.undoes,
                "cost": asdict(forecast.cost),
                "served_round": forecast.served,
                "obstacle": forecast.obstacle,
                "mechanism": mechanism.name,
                "approximate": forecast.approximate,
            }
        )
        return
    results().print(f"{', '.join(clients)}: {foretold(forecast)}\nNothing was changed.")


def foretold(forecast: Forecast) -> str:
    """A forecast in words."""
    cost, verdict = forecast.cost, forecast.verdict
    again, done = ("rebuild approximately", "rebuilt") if forecast.approximate else ("retrain", "retrained")
    if verdict.round is None and not cost.rounds:
        return f"{verdict}; the answer is immediate and the model stays"
    if verdict.round is None:
        return f"{verdict}; an earlier rollback still has {cost.rounds} rounds to {again}"
    if forecast.obstacle is not None and cost.rounds:
        return (
            f"{verdict.in_full}; {cost.rounds} rounds can be {done}, {cost.client_epochs:,} client-epochs, "
            f"about {cost.seconds:.0f} s, no more ({forecast.obstacle}): {model_name(forecast.served)} is served"
        )
    if forecast.obstacle is not None:
        return (
            f"{verdict.in_full}; it cannot be {done} ({forecast.obstacle}): {model_name(forecast.served)} is served"
        )
    stand = f"; {forecast.served} rounds stand then" if forecast.approximate else ""
    return (
        f"{verdict.in_full}; {cost.rounds} rounds to {again}, {cost.client_epochs:,} client-epochs, "
        f"{size(cost.exchanged_bytes)} to exchange with clients, about {cost.seconds:.0f} s{stand}"
    )


def sentence(request: ErasureRequest) -> str:
    """What became of a request, in words."""
    cost = request.cost
    parts = [request.verdict.in_full if request.verdict else str(request.verdict)]
    if cost is not None and cost.rounds:
        parts.append(
            f"{rebuilt(request)}, {cost.client_epochs:,} client-epochs, "
            f"{size(cost.exchanged_bytes)} exchanged, {cost.seconds:.1f} s"
        )
    if request.remark:
        parts.append(request.remark)
    answered = f"; answered {request.answered_at:%Y-%m-%d %H:%M:%S} UTC" if request.answered_at else ""
    return f"request {request.number}: " + "; ".join(parts) + answered


def requests(directory: Path, *, as_json: bool) -> None:
    """List all requests with state, verdict, cost and time taken."""
    with Ledger.open(directory) as ledger:
        found = ledger.requests()
    if as_json:
        print_json({"run": str(directory), "requests": [{**_json(r), "client": r.client} for r in found]})
        return
    if not found:
        results().print("no requests")
        return
    console = results()
    console.print(
        "request  asked at (UTC)       state       verdict               "
        "rounds  client-epochs  retraining     taken  client",
        style="bold",
    )
    for request in found:
        cost = request.cost
        console.print(
            f"{request.number:7d}  {request.asked_at:%Y-%m-%d %H:%M:%S}  {request.state.value:10s}  "
            f"{request.verdict or '-'!s:20s}  {cost.rounds if cost else 0:6d}  "
            f"{cost.client_epochs if cost else 0:13,d}  {f'{cost.seconds:.1f} s' if cost else '-':>10s}  "
            f"{_taken(request):>8s}  {request.client or '(erased)'}"
        )
        if request.verdict is not None and request.verdict.back_to is not None:
            console.print(f"         {request.verdict.in_full}")
        if request.remark:
            console.print(f"         {request.remark}")


def _taken(request: ErasureRequest) -> str:
    if request.answered_at is None:
        return "-"
    return f"{(request.answered_at - request.asked_at).total_seconds():.1f} s"


def _json(request: ErasureRequest) -> dict[str, Any]:
    taken = request.answered_at - request.asked_at if request.answered_at else None
    return {
        "number": request.number,
        "state": request.state.value,
        "verdict": request.verdict.kind.value if request.verdict else None,
        "first_broken_round": request.verdict.round if request.verdict else None,
        "rollback_to_round": request.verdict.undoes if request.verdict else None,
        "cost": asdict(request.cost) if request.cost else None,
        "asked_at": request.asked_at.isoformat(),
        "answered_at": request.answered_at.isoformat() if request.answered_at else None,
        "seconds_taken": taken.total_seconds() if taken is not None else None,
        "remark": request.remark,
        "approximate": request.approximate,
    }
