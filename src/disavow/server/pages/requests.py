"""The pages of requests: all of them, a new one with its forecast, one with its history, the checks of its proof.

Forms send the browser on to the page of their request. What is refused is said there, and nothing is changed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from typing import Annotated

from fastapi import Form, Query, Request, Response

from disavow.domain import Approval, ErasureRequest, RequestState, VerdictKind
from disavow.errors import (
    AlreadyForgotten,
    BadRequest,
    DisavowError,
    ForecastChanged,
    RecordErased,
    RecordsUnchecked,
    UnknownClient,
    UnknownRecord,
)
from disavow.federation import Federation
from disavow.server import api, forecasts, verification, views
from disavow.server.access import Identity, Role
from disavow.server.api import open_request, open_run
from disavow.server.authentication import identity_of
from disavow.server.error_responses import message_of, status_of
from disavow.server.forecasting import Forecasting
from disavow.server.open_runs import request_id, split_id
from disavow.server.pages import openings, purge
from disavow.server.pages.rendering import page, render, router, see_other
from disavow.server.services import services_of

_MOST = 50
_CONFLICT = 409
_PATIENCE_SECONDS = 3.0
"""How long a form waits for a forecast before it says that it is being made."""

_OFTEN, _SLOWLY = 2, 10
"""Seconds between two looks at a request: while somebody works on it, and while somebody has to decide."""


Text = Annotated[str, Form(max_length=2000)]
Run = Annotated[str, Form(min_length=1, max_length=100)]
Client = Annotated[str, Form(max_length=1024)]
Records = Annotated[str, Form(max_length=65_536)]
"""The keys of records, one in a line; none for the whole client."""


@dataclass(frozen=True)
class _RequestForm:
    """What the form for a new request was filled in with.

    Args:
        run: The run.
        client: Who asks; empty where records are looked for at every client.
        records: The keys of records; none for the whole client.
        everywhere: The records are to be erased wherever they are.
        holders: Who was found to hold them, with which of them.

    """

    run: str
    client: str
    records: tuple[str, ...]
    everywhere: bool = False
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: str, client: str, records: str, everywhere: bool, holders: str = "") -> _RequestForm:
        keys = tuple(dict.fromkeys(line.strip() for line in records.splitlines() if line.strip()))
        return cls(run, client.strip(), keys, everywhere, _parsed(holders))

    def wrong(self) -> tuple[str, str] | None:
        """Find the first field that cannot be used, and say why; None where all can."""
        if self.everywhere and self.client:
            return "client", "Leave it empty: the records are looked for at every client."
        if self.everywhere and not self.records:
            return "records", "Say which records, one key in a line."
        if not self.everywhere and not self.client:
            return "client", "Say who asks."
        if len(self.records) > api.MOST_RECORDS:
            return (
                "records",
                f"These are {len(self.records):,} records. Allowed: {api.MOST_RECORDS:,} in one request.",
            )
        if any(len(each) > api.LONGEST_ID for each in self.records):
            return "records", f"A line is too long. Allowed: {api.LONGEST_ID:,} characters for a key."
        return None


def _parsed(holders: str) -> dict[str, tuple[str, ...]]:
    """Read who holds the records, as the form carries it."""
    try:
        found = json.loads(holders or "{}")
        return {str(client): tuple(map(str, held)) for client, held in found.items()}
    except (ValueError, AttributeError, TypeError):
        raise BadRequest("the form cannot be used: holders; nothing was filed") from None


_FIELDS: Mapping[type[DisavowError], str] = {
    UnknownClient: "client",
    AlreadyForgotten: "client",
    UnknownRecord: "records",
    RecordErased: "records",
    RecordsUnchecked: "records",
}
"""The field of the form that a refusal is about."""

_SAID_BELOW = "Nothing was filed. What is wrong is said below."


@page("/requests", "requests.html")
def list_requests(
    request: Request,
    run: Annotated[str | None, Query(max_length=100)] = None,
    state: Annotated[RequestState | None, Query()] = None,
    before: Annotated[int | None, Query(ge=1, le=2**31)] = None,
) -> views.View:
    """List requests, the newest first."""
    names = _runs(request)
    chosen = [run] if run else names
    runs = [(name, open_run(request, name)) for name in chosen]
    states = None if state is None else [state]
    shown = views.requests(runs, identity_of(request), states=states, before=before, most=_MOST)
    now = datetime.now(UTC)
    promised = {name for name, federation in runs if federation.settings.deniability.purge == "deadline"}
    for each in shown["requests"]:
        each["interim"] = each["run"] in promised and _is_interim(each)
        each["days_left"] = _days_left(each, now)
    return {
        **shown,
        "runs": names,
        "run": run,
        "state": state.value if state else None,
        "states": [each.value for each in RequestState],
        "most": _MOST,
    }


# -- a new request -------------------------------------------------------------------------------------------------


@page("/requests/new", "new_request.html")
def new_request(request: Request) -> views.View:
    """Show the form for a new request."""
    return _new_request(request)


@router.post("/requests/new", response_model=None)
def forecast_new_request(
    request: Request,
    run: Run,
    client: Client = "",
    records: Records = "",
    everywhere: Annotated[bool, Form()] = False,
) -> Response:
    """Show what a new request would come to, with the button that files it."""
    form = _RequestForm.of(run, client, records, everywhere)
    if wrong := form.wrong():
        return _wrong(request, form, *wrong)
    try:
        if form.everywhere:
            form = replace(form, holders=api.holders(request, run, form.records))
        return _with_forecast(request, form)
    except DisavowError as error:
        return _refused_new(request, form, error)


@router.post("/requests", response_model=None)
async def file_request(
    request: Request,
    run: Run,
    key: Annotated[str, Form(min_length=1, max_length=100)],
    client: Client = "",
    records: Records = "",
    everywhere: Annotated[bool, Form()] = False,
    holders: Annotated[str, Form(max_length=4_000_000)] = "",
    forecast: Annotated[str, Form(max_length=64)] = "",
) -> Response:
    """File a request as it was forecast; is the forecast another one now, it is shown first."""
    services, identity = services_of(request), identity_of(request)
    form = _RequestForm.of(run, client, records, everywhere, holders)
    if wrong := form.wrong():
        return _wrong(request, form, *wrong)
    try:
        federation = open_run(request, run)
        foreseen, _ = await asyncio.to_thread(_forecast_new, request, form)
        if foreseen is None or (foreseen["digest"] is not None and foreseen["digest"] != forecast):
            return await asyncio.to_thread(_with_forecast, request, form, changed=bool(forecast))
        if form.everywhere:
            # each under a key of its own: sent again after a crash, the form files what is missing and no more
            for number, (holder, held) in enumerate(sorted(form.holders.items())):
                await api.file(services, identity, run, holder, f"{key}/{number}", held)
            return see_other(f"/requests?run={run}")
        filed = await api.file(services, identity, run, form.client, key, form.records or None)
    except DisavowError as error:
        return _refused_new(request, form, error)
    if foreseen["digest"] is not None:
        forecasts.keep(services.state, federation.ledger.run_id, filed.number, foreseen, now=time.time())
    return see_other(f"/requests/{request_id(run, filed.number)}")


def _with_forecast(request: Request, form: _RequestForm, *, changed: bool = False) -> Response:
    foreseen, coming = _forecast_new(request, form)
    notice = "The forecast has changed since you saw it. Nothing was filed: look at it again." if changed else None
    view = {
        **_new_request(request, form),
        "forecast": foreseen,
        "forecast_coming": coming and foreseen is None,
        "policy": asdict(open_run(request, form.run).ledger.policy),
        "notice": notice,
    }
    return render(request, "new_request.html", view, status=_CONFLICT if changed else 200)


def _forecast_new(request: Request, form: _RequestForm) -> tuple[views.View | None, bool]:
    """What a new request would come to, and whether that is still being made."""
    services, federation = services_of(request), open_run(request, form.run)
    named = json.dumps([form.client, form.records, sorted(form.holders.items())])

    def make() -> views.View:
        if form.everywhere:
            return views.forecast(federation.forecast(form.holders, unchecked=True, try_loading=False))
        return views.forecast(api.foreseen(federation, form.client, form.records or None))

    return services.forecasting.ask(
        federation.ledger.run_id,
        services.state.keyed_hash("forecast", named.encode()),
        federation.ledger.changes(),
        make,
        patience=_PATIENCE_SECONDS,
    )


def _wrong(request: Request, form: _RequestForm, where: str, why: str) -> Response:
    """Show the form again, with what is wrong at its field; nothing was done."""
    view = {**_new_request(request, form), "wrong": {where: why}}
    view |= {"notice": _SAID_BELOW, "code": BadRequest.code}
    return render(request, "new_request.html", view, status=status_of(BadRequest(why)))


def _refused_new(request: Request, form: _RequestForm, error: DisavowError) -> Response:
    why = message_of(error)
    where = next((_FIELDS[kind] for kind in type(error).__mro__ if kind in _FIELDS), None)
    view = {**_new_request(request, form), "notice": why if where is None else _SAID_BELOW, "code": error.code}
    if where is not None:
        view["wrong"] = {where: f"{why[:1].upper()}{why[1:]}."}
    return render(request, "new_request.html", view, status=status_of(error))


def _new_request(request: Request, form: _RequestForm | None = None) -> views.View:
    return {
        "runs": _runs(request),
        "run": form.run if form else None,
        "client": form.client if form else "",
        "records": list(form.records) if form else [],
        "everywhere": form.everywhere if form else False,
        "holders": {client: list(held) for client, held in sorted(form.holders.items())} if form else {},
        "key": secrets.token_urlsafe(16),
        "forecast": None,
        "forecast_coming": False,
        "policy": None,
        "wrong": {},
        "notice": None,
        "code": None,
    }


# -- one request ---------------------------------------------------------------------------------------------------


@page("/requests/{request}", "request.html")
def show_request(call: Request, request: str) -> views.View:
    """Show a request: history, forecast, verdict, what may be done about it, proof."""
    return _shown(call, *open_request(call, request))


@page("/requests/{request}/checks", "checks.html")
def show_checks(call: Request, request: str) -> views.View:
    """Verify the proof of a request, and show every check."""
    name, federation, found = open_request(call, request)
    api.refuse_unanswered(found)
    proof = federation.proof(found)
    report = verification.verify(proof.data, services_of(call).settings.keys)
    return {
        "id": request_id(name, found.number),
        "run": name,
        "as_of": proof.as_of,
        "newest": proof.newest,
        **report,
    }


def _shown(call: Request, name: str, federation: Federation, found: ErasureRequest) -> views.View:
    services, identity = services_of(call), identity_of(call)
    foreseen, obstacle, coming = _forecast(services.forecasting, federation, found, identity)
    if federation.settings.requests.approval == "rollback" and foreseen and foreseen["verdict"] != "rollback":
        found = replace(found, approval=Approval.NOT_NEEDED)  # nobody knows before it is forecast
    shown = views.request(name, found, identity)
    now = federation.clock()
    actions = _actions(found, identity)
    rebuild = federation.ledger.rebuilding() if found.state is RequestState.REBUILDING else None
    interim = purge.interim(call, name, federation, found)
    moving = interim is not None and (interim["running"] or interim["asked_at"])
    return {
        "request": shown,
        "run": name,
        "policy": asdict(federation.ledger.policy),
        "approval_needed": federation.settings.requests.approval,
        "days_left": views.days_left(found, now) if found.pending else None,
        "latest_extension": found.deadline.latest.isoformat(),
        "forecast": foreseen,
        "forecast_refused": obstacle,
        "forecast_coming": coming,
        "seen_forecast": forecasts.kept(services.state, federation.ledger.run_id, found.number),
        "rebuild": None
        if rebuild is None
        else {"first": rebuild.first, "last": rebuild.target, "next": federation.ledger.last_round + 1},
        "progress": views.progress(name, services.state),
        "actions": actions,
        "interim": interim,
        "opening": openings.is_kept(federation, found) if Role.OPERATOR in identity.roles else None,
        **_records(federation, found, identity),
        "poll_seconds": _poll_seconds(found, coming=coming, moving=bool(moving)),
        "version": f"{found.state.value}, {found.approval.value}, {found.purged_at}, {bool(moving)}, "
        f"{foreseen['digest'] if foreseen else obstacle}",
        "notice": None,
        "code": None,
    }


def _records(federation: Federation, found: ErasureRequest, identity: Identity) -> views.View:
    """Show which records a request names, to whoever sees clients and as long as the keyring knows; to all, the
    commitment to them that is in the log.
    """
    if found.records is None:
        return {"record_keys": None, "records_commitment": None}
    sealed = any(event.actor is None for event in found.history)  # the keyring is not here
    known = identity.sees_clients and not sealed
    keys = federation.ledger.requested_records(found.number) if known else ()
    commitment = federation.ledger.records_commitment(found.number) if found.judged else None
    return {
        "record_keys": sorted(keys) if keys else None,
        "records_commitment": None if commitment is None else commitment.hex(),
    }


def _poll_seconds(found: ErasureRequest, *, coming: bool, moving: bool) -> int | None:
    """How often its page is renewed; None where nothing is going to happen by itself."""
    if moving:
        return _OFTEN
    if not found.pending:
        return None
    return _SLOWLY if found.on_hold and not coming else _OFTEN


def _forecast(
    forecasting: Forecasting, federation: Federation, found: ErasureRequest, identity: Identity
) -> tuple[views.View | None, str | None, bool]:
    """What a request would come to, why nobody can say, and whether that is still being made; for who may ask."""
    if found.judged or not found.pending or not identity.roles & {Role.OPERATOR, Role.APPROVER}:
        return None, None, False
    try:
        made, coming = forecasting.ask(
            federation.ledger.run_id,
            found.number,
            federation.ledger.changes(),
            lambda: views.forecast(federation.forecast_of(found.number)),
        )
    except DisavowError as error:
        return None, message_of(error), False
    return made, None, coming


def _actions(found: ErasureRequest, identity: Identity) -> list[str]:
    """What whoever looks may do about a request now."""
    waiting, paused = found.state is RequestState.WAITING, found.state is RequestState.PAUSED
    may: dict[str, tuple[bool, Role]] = {
        "approval": (waiting and found.approval is Approval.AWAITED, Role.APPROVER),
        "denial": (waiting or paused, Role.APPROVER),
        "resumption": (paused, Role.OPERATOR),
        "pause": (waiting, Role.OPERATOR),
        "extension": (waiting and found.extended_until is None, Role.OPERATOR),
        "cancellation": (waiting or paused, Role.OPERATOR),
    }
    return [name for name, (possible, role) in may.items() if possible and role in identity.roles]


@router.post("/requests/{request}/approval", response_model=None)
def approve(
    call: Request, request: str, forecast: Annotated[str, Form(pattern="^[0-9a-f]{64}$")], reason: Text = ""
) -> Response:
    """Approve a request, as it was forecast."""
    services, identity = services_of(call), identity_of(call)

    def act(federation: Federation, number: int, by: str) -> None:
        seen, _, _ = _forecast(services.forecasting, federation, federation.request(number), identity)
        name, _ = split_id(request)
        with services.runs.to_approve(name) as run:
            run.approve(number, by=by, reason=reason, forecast_digest=forecast)
        if seen is not None and seen["digest"] == forecast:
            forecasts.keep(services.state, federation.ledger.run_id, number, seen, now=time.time())

    return _act(call, request, act)


@router.post("/requests/{request}/denial", response_model=None)
def deny(call: Request, request: str, reason: Text = "") -> Response:
    """Refuse a request."""
    return _act(call, request, lambda run, number, by: run.refuse(number, by=by, reason=reason))


@router.post("/requests/{request}/cancellation", response_model=None)
def cancel(call: Request, request: str, reason: Text = "") -> Response:
    """Cancel a request."""
    return _act(call, request, lambda run, number, by: run.cancel(number, by=by, reason=reason))


@router.post("/requests/{request}/extension", response_model=None)
def extend(
    call: Request, request: str, until: Annotated[str, Form(max_length=10)] = "", reason: Text = ""
) -> Response:
    """Extend the deadline of a request; to the end of the day that was chosen, or as far as may be."""

    def act(federation: Federation, number: int, by: str) -> None:
        found = federation.request(number)
        chosen = None if not until else datetime.combine(_day(until), time_of_day.max.replace(microsecond=0), UTC)
        latest = found.deadline.latest
        federation.extend(number, by=by, reason=reason, until=None if chosen is None else min(chosen, latest))

    return _act(call, request, act)


@router.post("/requests/{request}/pause", response_model=None)
def pause(call: Request, request: str, reason: Text = "") -> Response:
    """Pause a request."""
    return _act(call, request, lambda run, number, by: run.pause(number, by=by, reason=reason))


@router.post("/requests/{request}/resumption", response_model=None)
def resume(call: Request, request: str, reason: Text = "") -> Response:
    """End the pause of a request."""
    return _act(call, request, lambda run, number, by: run.resume_request(number, by=by, reason=reason))


def _act(call: Request, request: str, act: Callable[[Federation, int, str], object]) -> Response:
    """Do something about a request, and show what has become of it; or why it was refused."""
    _, federation, found = open_request(call, request)
    try:
        act(federation, found.number, identity_of(call).name)
    except DisavowError as error:
        notice = message_of(error)
        if isinstance(error, ForecastChanged):
            notice = "The forecast has changed since you saw it. Nothing was approved: look at it again."
        view = {**_shown(call, *open_request(call, request)), "notice": notice, "code": error.code}
        return render(call, "request.html", view, status=status_of(error))
    return see_other(f"/requests/{request}")


# -- what they share -----------------------------------------------------------------------------------------------


def _runs(request: Request) -> list[str]:
    identity = identity_of(request)
    return [name for name in services_of(request).runs.names() if identity.may_use(name)]


def _is_interim(shown: views.View) -> bool:
    """Say whether an answered request is yet to be purged."""
    present = shown["verdict"] not in (None, VerdictKind.NEVER_PRESENT.value)
    return shown["state"] == RequestState.ANSWERED.value and present and shown["purged_at"] is None


def _days_left(request: views.View, now: datetime) -> float | None:
    """Count the days until a request is due that is still open, or answered and yet to be purged."""
    if request["state"] not in ("waiting", "paused", "rebuilding", "deleting") and not request["interim"]:
        return None
    since = now if request["paused_since"] is None else datetime.fromisoformat(request["paused_since"])
    return (datetime.fromisoformat(request["due"]) - since).total_seconds() / 86_400


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadRequest("the new deadline is no day; allowed: YYYY-MM-DD") from None
