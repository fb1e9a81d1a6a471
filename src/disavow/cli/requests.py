"""`disavow requests`, `cancel`, `request`, `due`, `register` and `readmit`."""

from __future__ import annotations

import getpass
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from disavow.cli.output import print_json, results, size
from disavow.cli.rounds import rebuilt
from disavow.cli.written import write_file
from disavow.domain import Approval, ErasureRequest, EventKind, RequestState, escaped
from disavow.errors import ConfigError, DisavowError
from disavow.federation import Federation
from disavow.ledger.keys import refuse_inside
from disavow.register import DueRequest

OVERDUE = 23
"""Exit code of `disavow due` where a request is overdue."""


def requests(directory: Path, *, as_json: bool) -> None:
    """List all requests with state, verdict, cost and time taken."""
    with Federation.open(directory) as federation:
        found = federation.requests()
    if as_json:
        print_json({"run": str(directory), "requests": [{**r.to_json(), "client": r.client} for r in found]})
        return
    if not found:
        results().print("no requests")
        return
    console = results()
    console.print(
        "request  asked at (UTC)       due         state       verdict               "
        "rounds  client-epochs  retraining     taken  client",
        style="bold",
    )
    for request in found:
        cost = request.cost
        console.print(
            f"{request.number:7d}  {request.asked_at:%Y-%m-%d %H:%M:%S}  {request.due:%Y-%m-%d}  "
            f"{_state(request):10s}  "
            f"{request.verdict or '-'!s:20s}  {cost.rounds if cost else 0:6d}  "
            f"{cost.client_epochs if cost else 0:13,d}  {f'{cost.seconds:.1f} s' if cost else '-':>10s}  "
            f"{_taken(request):>8s}  {escaped(request.client or '(erased)')}"
        )
        if request.verdict is not None and request.verdict.in_full != str(request.verdict):
            console.print(f"         {request.verdict.in_full}")
        if request.remark:
            console.print(f"         {request.remark}")


def _state(request: ErasureRequest) -> str:
    """The state in a word or two."""
    unapproved = request.state is RequestState.WAITING and request.approval is Approval.AWAITED
    return "unapproved" if unapproved else request.state.value


def _taken(request: ErasureRequest) -> str:
    if request.answered_at is None:
        return "-"
    return f"{(request.answered_at - request.asked_at).total_seconds():.1f} s"


def cancel(directory: Path, client: str, *, as_json: bool) -> None:
    """Cancel the request of a client that waits; whoever holds the run is not disturbed."""
    with Federation.open(directory) as federation:
        request = federation.cancel(client)
    if as_json:
        print_json({"run": str(directory), "request": {**request.to_json(), "client": client}})
    else:
        results().print(f"{escaped(client)}: {sentence(request)}; it stays a client, and may ask again")


def decide(
    directory: Path,
    number: int,
    what: str,
    *,
    by: str | None,
    reason: str,
    forecast: str | None = None,
    until: str | None = None,
    as_json: bool,
) -> None:
    """Do to a request what somebody has decided: `what` names the method of `Federation`."""
    more: dict[str, Any] = {}
    if forecast is not None:
        more["forecast_digest"] = forecast
    if until is not None:
        more["until"] = _moment(until)
    with Federation.open(directory) as federation:
        request = getattr(federation, what)(number, by=login_name() if by is None else by, reason=reason, **more)
    if as_json:
        print_json({"run": str(directory), "request": {**request.to_json(), "client": request.client}})
    else:
        results().print(f"request {number}: {_state(request)}{_deadline(request)}")
        if what == "approve":
            results().print(
                f"Whoever trains the run answers it between two rounds; `disavow resume {directory}` does now."
            )


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--until is {text!r}; allowed: a date such as 2027-03-01; nothing was changed") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def login_name() -> str:
    """Who runs this command, as the operating system knows them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise ConfigError("this account has no login name: `--by` says who decides; nothing was changed") from None


def show(directory: Path, number: int, *, as_json: bool) -> None:
    """Show a request with its history, and what answering it would do."""
    with Federation.open(directory) as federation:
        request = federation.request(number)
        digest, foreseen = None, None
        if request.pending and not request.judged:
            try:
                asked = federation.forecast_of(number)
            except DisavowError as error:
                foreseen = f"none: {error}"
            else:
                digest = asked.digest
                if asked.forecast is not None:
                    told, cost = asked.forecast.verdict.in_full, asked.forecast.cost
                    foreseen = f"{told}; {cost.rounds} rounds, {cost.client_epochs:,} client-epochs"
    if as_json:
        full = {**request.to_json(), "client": request.client, "forecast": foreseen, "forecast_digest": digest}
        print_json({"run": str(directory), "request": full})
        return
    console = results()
    console.print(sentence(request))
    facts = {
        "client": escaped(request.client or "(erased, or no keyring)"),
        "due": f"{request.due:%Y-%m-%d %H:%M} UTC{_time_left(request) if request.pending else ''}",
        "approval": request.approval.value,
        "forecast": foreseen,
        "digest": digest,
    }
    for name, fact in facts.items():
        if fact is not None:
            console.print(f"  {fact}", heading=f"{name:>9}")
    console.print("\nat (UTC)             event      by, reason", style="bold")
    for event in request.history:
        until = "" if event.until is None else f"until {event.until:%Y-%m-%d}"
        sealed = "(sealed: no keyring)" if event.actor is None else ""
        words = ", ".join(filter(None, (sealed, escaped(event.actor or ""), until, escaped(event.reason or ""))))
        console.print(f"{event.at:%Y-%m-%d %H:%M:%S}  {event.kind.value:9s}  {words}".rstrip())


def _deadline(request: ErasureRequest) -> str:
    return f", due {request.due:%Y-%m-%d %H:%M} UTC{_time_left(request)}" if request.pending else ""


def _time_left(request: ErasureRequest) -> str:
    now = datetime.now(UTC)
    paused = "; the deadline stands still" if request.paused else ""
    return f" ({_days(request.days_left(now), overdue=request.overdue(now))}{paused})"


def _days(days: int, *, overdue: bool) -> str:
    return f"overdue by {-days} days" if overdue else f"{days} days left"


def due(directories: Sequence[Path], *, within: int | None, as_json: bool) -> None:
    """List what is due in several runs; exit 23 when something is overdue."""
    now, found = datetime.now(UTC), list[DueRequest]()
    for directory in dict.fromkeys(directories):
        with Federation.open(directory) as federation:
            found += federation.due(now)
    found.sort(key=lambda each: each.request.deadline.left(now))
    shown = [each for each in found if within is None or each.days_left <= within]
    if as_json:
        print_json({"due": [{**each.to_json(), "client": each.request.client} for each in shown]})
    elif not shown:
        results().print("nothing is due")
    else:
        console = results()
        console.print("days left  due (UTC)         state       request  run  client", style="bold")
        for each in shown:
            request = each.request
            console.print(
                f"{each.days_left:9d}  {request.due:%Y-%m-%d %H:%M}  {_state(request):10s}  {request.number:7d}  "
                f"{each.run}  {escaped(request.client or '-')}{'  OVERDUE' if each.overdue else ''}"
            )
    if any(each.overdue for each in shown):
        raise typer.Exit(OVERDUE)


def register(directory: Path, *, as_csv: bool, as_json: bool, output: Path | None, force: bool) -> None:
    """Print the register, or write it to a file outside the run."""
    if as_csv and as_json:
        raise ConfigError("--csv and --json are both given; allowed: one of them")
    with Federation.open(directory) as federation:
        found = federation.register()
    if output is not None:
        refuse_inside(output, directory)
        text = found.to_csv() if as_csv else json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"
        write_file(output, text.encode(), force=force, mode=0o600)
        results().print(f"register of {len(found.requests)} requests written to {output}")
    elif as_csv:
        print(found.to_csv(), end="")
    elif as_json:
        print_json(found.to_json())
    else:
        _print_register(found.requests)


def _print_register(requests: Sequence[ErasureRequest]) -> None:
    console = results()
    console.print("request  received (UTC)    due         state       asked again  decided by", style="bold")
    for request in requests:
        deciding = (EventKind.APPROVED, EventKind.REFUSED, EventKind.CANCELLED)
        by = [event.actor for event in request.history if event.kind in deciding and event.actor]
        console.print(
            f"{request.number:7d}  {request.asked_at:%Y-%m-%d %H:%M}  {request.due:%Y-%m-%d}  "
            f"{_state(request):10s}  {len(request.asked_again_at):11d}  {escaped(', '.join(by))}".rstrip()
        )


def readmit(directory: Path, client: str, *, by: str | None, reason: str, as_json: bool) -> None:
    """Let somebody who was erased be a client again."""
    with Federation.open(directory) as federation:
        federation.readmit(client, by=login_name() if by is None else by, reason=reason)
        on_nodes = federation.settings.engine.name == "flower"
    if as_json:
        print_json({"run": str(directory), "client": client, "readmitted": True})
    else:
        further = "once its node is connected" if on_nodes else f"in the next round (`disavow resume {directory}`)"
        results().print(f"{escaped(client)} is a client again, under a new key; it takes part {further}")


def sentence(request: ErasureRequest) -> str:
    """What became of a request, in words."""
    if request.cancelled_at is not None:
        return f"request {request.number}: cancelled {request.cancelled_at:%Y-%m-%d %H:%M:%S} UTC"
    cost = request.cost
    parts = [request.verdict.in_full if request.verdict else _state(request)]
    if cost is not None and cost.rounds:
        parts.append(
            f"{rebuilt(request)}, {cost.client_epochs:,} client-epochs, "
            f"{size(cost.exchanged_bytes)} exchanged, {cost.seconds:.1f} s"
        )
    if request.remark:
        parts.append(request.remark)
    answered = f"; answered {request.answered_at:%Y-%m-%d %H:%M:%S} UTC" if request.answered_at else ""
    return f"request {request.number}: " + "; ".join(parts) + answered
