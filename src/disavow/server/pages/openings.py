"""Openings, which name leavers: those that are yet to be handed over, to download and then to delete."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Form, Request, Response

from disavow.domain import ErasureRequest, RequestState
from disavow.erasure.proof_files import default_openings, kept_openings
from disavow.errors import BadRequest
from disavow.federation import Federation
from disavow.server import api, views
from disavow.server.api import open_run
from disavow.server.authentication import identity_of
from disavow.server.open_runs import request_id
from disavow.server.pages.rendering import page, router, see_other
from disavow.server.services import services_of

_MOST = 50


@page("/openings", "openings.html")
def list_openings(request: Request) -> views.View:
    """List the requests whose openings are still here, those that were answered first above."""
    services, identity = services_of(request), identity_of(request)
    names = [name for name in services.runs.names() if identity.may_use(name)]
    kept = [(name, number) for name in names for number in _kept(request, open_run(request, name))]
    shown = [
        {
            "id": request_id(name, each.number),
            "records": each.records,
            "answered_at": None if each.answered_at is None else each.answered_at.isoformat(),
        }
        for name in names
        for each in open_run(request, name).requests([number for run, number in kept[:_MOST] if run == name])
    ]
    return {"openings": shown, "count": len(kept), "most": _MOST}


@router.post("/requests/{request}/opening/deletion", response_model=None)
def delete_opening(
    call: Request,
    request: str,
    handed_over: Annotated[bool, Form()] = False,
    back: Annotated[Literal["request", "openings"], Form()] = "request",
) -> Response:
    """Delete an opening, once somebody says that its leaver has it."""
    if not handed_over:
        raise BadRequest("say that the leaver has the opening: nobody can make it again; nothing was deleted")
    api.delete_opening(request, call)
    return see_other("/openings" if back == "openings" else f"/requests/{request}")


def is_kept(federation: Federation, found: ErasureRequest) -> bool | None:
    """Say whether the opening of a request is still here; None where it is not answered yet."""
    return federation.opening_of(found.number).exists() if found.state is RequestState.ANSWERED else None


def _kept(call: Request, federation: Federation) -> list[int]:
    folders = services_of(call).settings.openings_folder, default_openings(federation.directory)
    return sorted({number for each in folders for number in kept_openings(each, federation.ledger.run_id)})
