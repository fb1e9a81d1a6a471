"""The pages of a run: figures, rounds, who could leave, log, account, releases."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import Query, Request

from disavow.server import views
from disavow.server.api import Run, open_run
from disavow.server.authentication import identity_of
from disavow.server.pages.rendering import page
from disavow.server.services import services_of

_ROUNDS, _CLIENTS, _LEAVES = 50, 20, 50

Before = Annotated[int | None, Query(ge=1, le=2**31)]


@page("/runs/{run}", "run.html")
def show_run(request: Request, run: Run) -> views.View:
    """Show a run in figures: those that are had at once. `GET /v1/runs/RUN` has all."""
    federation = open_run(request, run)
    ledger = federation.ledger
    key = ledger.log_key()
    return {
        **views.run_in_short(run, federation, services_of(request).state),
        "policy": asdict(ledger.policy),
        "purge": federation.settings.deniability.purge,
        "created_by": ledger.created_by,
        "model": ledger.served_model_digest(),
        "key": None if key is None else {"id": key.id, "name": key.name},
    }


@page("/runs/{run}/rounds", "rounds.html")
def show_rounds(request: Request, run: Run, before: Before = None) -> views.View:
    """Show the rounds of a run: accuracy, clusters, the weakest one."""
    return views.round_page(run, open_run(request, run), before=before, most=_ROUNDS)


@page("/runs/{run}/departures", "departures.html")
def show_departures(request: Request, run: Run, skip: Annotated[int, Query(ge=0, le=10_000_000)] = 0) -> views.View:
    """Show who could leave now."""
    federation = open_run(request, run)
    shown = views.departures(run, federation, identity_of(request), skip=skip, most=_CLIENTS)
    return {**shown, "survivors_needed": federation.ledger.policy.survivors_needed, "most": _CLIENTS}


@page("/runs/{run}/log", "log.html")
def show_log(request: Request, run: Run, before: Before = None) -> views.View:
    """Show the log of a run: leaves, heads, key."""
    return views.log_page(run, open_run(request, run), before=before, most=_LEAVES)


@page("/runs/{run}/account", "account.html")
def show_account(request: Request, run: Run) -> views.View:
    """Show the privacy account of a run."""
    return views.account(run, open_run(request, run))


@page("/runs/{run}/releases", "releases.html")
def show_releases(request: Request, run: Run) -> views.View:
    """Show the models of a run that were given to somebody."""
    return views.releases(run, open_run(request, run))
