"""Verify a proof that somebody uploads, by the verifier that is made for hostile input."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import File, Request, Response, UploadFile

from disavow.errors import BadRequest, DisavowError
from disavow.proof.envelope import LARGEST
from disavow.proof.verify import CHECKS
from disavow.server import verification, views
from disavow.server.error_responses import message_of, status_of
from disavow.server.pages.rendering import page, render, router
from disavow.server.services import services_of


@page("/verify", "verify.html")
def show_form(request: Request) -> views.View:  # noqa: ARG001 - every page takes it
    """Show the form, and every check by number and name."""
    checks = [
        {"number": number, "name": name, "passed": None, "detail": ""}
        for number, name in enumerate(CHECKS, start=1)
    ]
    return {"checks": checks, "valid": None, "code": None, "warnings": [], "notice": None, "own_key": True}


@router.post("/verify", response_model=None)
async def verify(
    request: Request,
    proof: Annotated[UploadFile, File()],
    key: Annotated[UploadFile | None, File()] = None,
) -> Response:
    """Verify a proof against a key, or against the keys of this service."""
    data = await proof.read(LARGEST + 1)
    given = b"" if key is None else await key.read()
    view = show_form(request=request)
    try:
        if not data:
            raise BadRequest("choose the file of a proof")
        keys = services_of(request).settings.keys
        report = await asyncio.to_thread(verification.verify, data, keys, given or None)
    except DisavowError as error:
        return render(
            request,
            "verify.html",
            {**view, "notice": message_of(error), "code": error.code},
            status=status_of(error),
        )
    return render(request, "verify.html", {**view, **report, "own_key": not given})
