"""The page of a run's purges: who may still be in the model, what a purge would do, how far it is, who is out.

What a purge would do is forecast beside the page, as it is for requests: with thousands of leavers it takes longer
than a page may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated

from fastapi import Form, Query, Request, Response

from disavow.domain import ErasureRequest, RequestState, VerdictKind
from disavow.erasure.proof_files import second_proof_path
from disavow.erasure.purge import PurgeForecast
from disavow.errors import DisavowError, ForecastChanged
from disavow.federation import Federation
from disavow.ledger.journal import Purge
from disavow.results import PurgeOutlook
from disavow.server import api, views
from disavow.server.access import Role
from disavow.server.api import Run, open_run
from disavow.server.authentication import identity_of
from disavow.server.error_responses import message_of, status_of
from disavow.server.open_runs import request_id
from disavow.server.pages.rendering import page, render, router, see_other
from disavow.server.services import services_of

_MOST = 50
_OFTEN, _SLOWLY = 2, 30
"""Seconds between two looks at the page: while a purge runs or is to begin, and otherwise."""

_PATIENCE_SECONDS = 1.0
_FORECAST = b"purge"
"""What a purge is forecast under, among the requests of its run."""


@page("/runs/{run}/purge", "purge.html")
def show_purge(
    request: Request, run: Run, before: Annotated[int | None, Query(ge=1, le=2**31)] = None
) -> views.View:
    """Show who may still be in the model, what a purge would do, how far one is, and who is out of the model."""
    return _shown(request, run, before)


@router.post("/runs/{run}/purge", response_model=None)
def begin_purge(request: Request, run: Run, forecast: Annotated[str, Form(pattern="^[0-9a-f]{64}$")]) -> Response:
    """Have the worker purge, as it was forecast."""
    try:
        api.ask_purge(request, run, api.PurgeBody(forecast=forecast))
    except DisavowError as error:
        notice = message_of(error)
        if isinstance(error, ForecastChanged):
            notice = "The forecast has changed since you saw it. No purge was started: look at it again."
        view = {**_shown(request, run, None), "notice": notice, "code": error.code}
        return render(request, "purge.html", view, status=status_of(error))
    return see_other(f"/runs/{run}/purge")


def _shown(call: Request, name: str, before: int | None) -> views.View:
    services, federation = services_of(call), open_run(call, name)
    outlook, coming = _outlook(call, federation, patience=_PATIENCE_SECONDS)
    shown = views.purge(name, federation, services.state, outlook or _nothing(federation))
    runs_now = under_way(federation)
    forecast = shown["forecast"]
    wanted = forecast is not None and forecast["obstacle"] is None and runs_now is None and not shown["asked_at"]
    return {
        **shown,
        "forecast_coming": coming,
        "promised": federation.settings.deniability.purge == "deadline",
        "exact": federation.mechanism.exact,
        "mechanism": federation.mechanism.name,
        "running": runs_now,
        "training": federation.ledger.last_round < federation.settings.rounds and runs_now is None,
        "unapproved": _unapproved(federation),
        "waiting": _waiting(name, federation, outlook),
        "most": _MOST,
        **_out_of_the_model(name, federation, before),
        "purges": [_past(each) for each in reversed(federation.ledger.purges())],
        "can_start": wanted and Role.OPERATOR in identity_of(call).roles,
        "poll_seconds": _OFTEN if runs_now or shown["asked_at"] or (coming and outlook is None) else _SLOWLY,
        "version": f"{bool(runs_now)}, {shown['asked_at']}, {shown['digest']}",
        "notice": None,
        "code": None,
    }


def interim(call: Request, name: str, federation: Federation, found: ErasureRequest) -> views.View | None:
    """Show what is still to be done about a request that is answered: its client's updates may be in the model.

    Args:
        call: Who is looking.
        name: The run.
        federation: The same, opened.
        found: The request.

    Returns:
        When its purge is due and what it would take; None where nothing of the client is in the model.

    """
    present = found.verdict is not None and found.verdict.kind is not VerdictKind.NEVER_PRESENT
    if found.state is not RequestState.ANSWERED or found.purged_at is not None or not present:
        return None
    outlook, coming = _outlook(call, federation)
    shown = views.purge(name, federation, services_of(call).state, outlook or _nothing(federation))
    return {
        "promised": federation.settings.deniability.purge == "deadline",
        "exact": federation.mechanism.exact,
        "due": found.due.isoformat(),
        "days_left": views.days_left(found, federation.clock()),
        "begins_at": shown["begins_at"],
        "at_risk": shown["at_risk"].get(str(found.number)),
        "forecast": shown["forecast"],
        "forecast_coming": coming,
        "asked_at": shown["asked_at"],
        "running": under_way(federation),
    }


def under_way(federation: Federation) -> views.View | None:
    """Show how far a purge is that was begun; None where none is under way."""
    rebuild, purges = federation.ledger.rebuilding(), federation.ledger.purges()
    if rebuild is None or not purges or purges[-1].finished_at is not None:
        return None
    begun = purges[-1].begun_at.isoformat()
    return {
        "first": rebuild.first,
        "last": rebuild.target,
        "next": federation.ledger.last_round + 1,
        "begun_at": begun,
    }


def _outlook(call: Request, federation: Federation, **more: float) -> tuple[PurgeOutlook | None, bool]:
    """Who may still be in the model and what a purge would do, as of now; and whether that is being made anew."""
    made, coming = services_of(call).forecasting.ask(
        federation.ledger.run_id,
        _FORECAST,
        federation.ledger.changes(),
        lambda: {"outlook": federation.purge_outlook()},
        **more,
    )
    return None if made is None else replace(made["outlook"], now=federation.clock()), coming


def _nothing(federation: Federation) -> PurgeOutlook:
    """What can be said before anything is forecast."""
    return PurgeOutlook({}, len(federation.ledger.unpurged().rounds), PurgeForecast(), federation.clock())


def _unapproved(federation: Federation) -> int:
    """Count the requests that may wait for an approval only because they would undo rounds."""
    if federation.settings.requests.approval != "rollback":
        return 0
    return federation.ledger.request_counts()[RequestState.WAITING]


def _waiting(name: str, federation: Federation, outlook: PurgeOutlook | None) -> list[views.View]:
    """Show the requests that the next purge is for, those that are due first above."""
    unpurged = federation.ledger.unpurged().rounds
    found = federation.requests(sorted(unpurged)[:_MOST])
    now = federation.clock()
    shown = [
        {
            "id": request_id(name, each.number),
            "records": each.records,
            "answered_at": None if each.answered_at is None else each.answered_at.isoformat(),
            "first_round": unpurged[each.number],
            "due": each.due.isoformat(),
            "days_left": views.days_left(each, now),
            "at_risk": None if outlook is None else outlook.at_risk(each.number),
        }
        for each in found
    ]
    return sorted(shown, key=lambda each: each["days_left"])


def _out_of_the_model(name: str, federation: Federation, before: int | None) -> views.View:
    """Show requests of which nothing is in the model any more, the newest first, with their proofs."""
    numbers = sorted((each for each in federation.ledger.purged() if not before or each < before), reverse=True)
    return {
        "purged": _proved(name, federation, federation.requests(sorted(numbers[:_MOST]))),
        "before": numbers[_MOST - 1] if len(numbers) > _MOST else None,
    }


def _proved(name: str, federation: Federation, found: Sequence[ErasureRequest]) -> list[views.View]:
    return [
        {
            "id": request_id(name, each.number),
            "purged_at": None if each.purged_at is None else each.purged_at.isoformat(),
            "due": each.due.isoformat(),
            "in_time": each.purged_at is not None and each.purged_at <= each.due,
            "second_proof": second_proof_path(federation.directory, each.number).exists(),
        }
        for each in reversed(found)
    ]


def _past(purge: Purge) -> views.View:
    return {
        "number": purge.number,
        "first_round": purge.first,
        "last_round": purge.last,
        "begun_at": purge.begun_at.isoformat(),
        "finished_at": None if purge.finished_at is None else purge.finished_at.isoformat(),
        "cost": asdict(purge.cost),
        "remark": purge.remark,
    }
