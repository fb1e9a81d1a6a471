"""`disavow requests`, `cancel`, `request`, `due`, `register` and `readmit`."""

from __future__ import annotations

import getpass
import json
from collections.abc import Sequence
from dataclasses import replace
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
from disavow.proof.summary import count_records
from disavow.request_register import DueRequest

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
    results().print_table(
        ["request", "asked at (UTC)", "due", "state", "verdict", "rounds", "taken", "of whom"],
        [
            [
                str(request.number),
                f"{request.asked_at:%Y-%m-%d %H:%M}",
                f"{request.due:%Y-%m-%d}",
                _state(request),
                str(request.verdict or "-"),
                f"{request.cost.rounds:,}" if request.cost else "-",
                _taken(request),
                _whose(request),
                *_remarks(request),
            ]
            for request in found
        ],
        right=("request", "rounds", "taken"),
    )


def _remarks(request: ErasureRequest) -> list[str]:
    """What the verdict in short does not say."""
    in_full = request.verdict.in_full if request.verdict else ""
    return list(filter(None, ("" if in_full == str(request.verdict) else in_full, request.remark)))


def _whose(request: ErasureRequest) -> str:
    """Whose request it is, as long as that is known, and how many records it names."""
    about = "" if request.records is None else count_records(request.records)
    if request.client is not None:
        return f"{about} of {escaped(request.client)}" if about else escaped(request.client)
    unknown = "(no keyring)" if _sealed(request) else ""
    return " ".join(filter(None, (about, unknown))) or "(erased)"


def _sealed(request: ErasureRequest) -> bool:
    """Whether the keyring is not here, so that nobody is named."""
    return any(event.actor is None for event in request.history)


def _state(request: ErasureRequest) -> str:
    """The state in a word or two."""
    if request.state is RequestState.WAITING and request.approval is Approval.AWAITED:
        return "unapproved"
    return "purged" if request.purged_at is not None else request.state.value


def _taken(request: ErasureRequest) -> str:
    if request.answered_at is None:
        return "-"
    seconds = (request.answered_at - request.asked_at).total_seconds()
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def cancel(directory: Path, client: str | None, number: int | None, *, by: str | None, as_json: bool) -> None:
    """Cancel the request of a client, or of a number, that waits; whoever holds the run is not disturbed."""
    if (client is None) == (number is None):
        raise ConfigError("cancel wants a CLIENT, or --request and its number")
    with Federation.open(directory) as federation:
        request = federation.cancel(
            client if client is not None else number or 0, by=who_acts(federation) if by is None else by
        )
    client = client or request.client
    if as_json:
        print_json({"run": str(directory), "request": {**request.to_json(), "client": client}})
    else:
        whose = "" if client is None else f"{escaped(client)}: "
        results().print(f"{whose}{sentence(request)}; it stays a client, and may ask again")


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
        if what in ("approve", "resume_request"):
            results().print(_next_step(directory, request))


def _next_step(directory: Path, request: ErasureRequest) -> str:
    """Say what has to happen before a request that was decided about is answered."""
    if request.paused:
        return f"It is answered once its pause ends: `disavow request resume {directory} {request.number}`."
    if request.on_hold:
        return f"It is answered once it is approved: `disavow request approve {directory} {request.number}`."
    return f"Whoever trains the run answers it between two rounds; `disavow resume {directory}` does now."


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


def who_acts(federation: Federation) -> str:
    """The login name, for the history of a request; nobody's where it is the id of a client."""
    name = login_name()
    return "" if federation.ledger.known_among([name]) else name


def show(directory: Path, number: int, *, as_json: bool) -> None:
    """Show a request with its history, and what answering it would do."""
    with Federation.open(directory) as federation:
        request = federation.request(number)
        records = () if _sealed(request) else federation.ledger.requested_records(number)
        digest, foreseen = None, None
        if request.pending and not request.judged:
            try:
                prospect = federation.forecast_of(number)
            except DisavowError as error:
                foreseen = f"none: {error}"
            else:
                digest = prospect.digest
                if prospect.forecast is not None:
                    verdict, cost = prospect.forecast.verdict.in_full, prospect.forecast.cost
                    foreseen = f"{verdict}; {cost.rounds} rounds, {cost.client_epochs:,} client-epochs"
    if as_json:
        names = {"client": request.client, "record_keys": list(records)}
        full = {**request.to_json(), **names, "forecast": foreseen, "forecast_digest": digest}
        print_json({"run": str(directory), "request": full})
        return
    console = results()
    console.print(sentence(request))
    facts = {
        "client": _whose(replace(request, records=None)) if request.client or request.records is None else None,
        "records": ", ".join(map(escaped, records)) or None,
        "due": f"{request.due:%Y-%m-%d %H:%M} UTC{_time_left(request) if request.pending else ''}",
        "purged": None if request.purged_at is None else f"{request.purged_at:%Y-%m-%d %H:%M} UTC",
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
        results().print_table(
            ["days left", "due (UTC)", "state", "request", "run", "of whom"],
            [
                [
                    str(each.days_left),
                    f"{each.request.due:%Y-%m-%d %H:%M}",
                    "to purge" if each.to_purge else _state(each.request),
                    str(each.request.number),
                    each.run,
                    _whose(each.request),
                    *(["OVERDUE"] if each.overdue else []),
                    *([f"AT RISK: {each.at_risk}"] if each.at_risk is not None else []),
                ]
                for each in shown
            ],
            right=("days left", "request"),
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
        refuse_inside(output, directory, "--output")
        text = found.to_csv() if as_csv else json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"
        write_file(output, text.encode(), force=force, mode=0o600)
        results().print(f"register of {len(found.requests)} requests written to {output}")
    elif as_csv:
        print(found.to_csv(), end="")
    elif as_json:
        print_json(found.to_json())
    else:
        _print_register(found.requests)
        for decision in found.readmissions:
            results().print(
                f"readmitted {decision.at:%Y-%m-%d %H:%M} UTC by {escaped(decision.by)}: {escaped(decision.reason)}"
            )


def _print_register(requests: Sequence[ErasureRequest]) -> None:
    if not requests:
        results().print("no requests")
        return
    rows = []
    for request in requests:
        deciding = (EventKind.APPROVED, EventKind.REFUSED, EventKind.CANCELLED)
        by = [event.actor for event in request.history if event.kind in deciding and event.actor]
        answered = "-" if request.answered_at is None else f"{request.answered_at:%Y-%m-%d}"
        rows.append(
            [
                str(request.number),
                f"{request.asked_at:%Y-%m-%d}",
                f"{request.due:%Y-%m-%d}",
                _state(request),
                answered,
                str(len(request.asked_again_at)),
                escaped(", ".join(by)) or "-",
                _whose(request),
            ]
        )
    headings = ["request", "received", "due", "state", "answered", "again", "decided by", "of whom"]
    results().print_table(headings, rows, right=("request", "again"))


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
    about = "" if request.records is None else f" ({count_records(request.records)})"
    parts = [request.verdict.in_full if request.verdict else _state(request)]
    if cost is not None and cost.rounds:
        parts.append(
            f"{rebuilt(request)}, {cost.client_epochs:,} client-epochs, "
            f"{size(cost.exchanged_bytes)} exchanged, {cost.seconds:.1f} s"
        )
    if request.remark:
        parts.append(request.remark)
    answered = f"; answered {request.answered_at:%Y-%m-%d %H:%M:%S} UTC" if request.answered_at else ""
    return f"request {request.number}{about}: " + "; ".join(parts) + answered
