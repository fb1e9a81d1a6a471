"""API tokens and roles: list them, make one, which is shown once, and revoke one."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Form, Path, Request, Response

from disavow.errors import BadRequest, DisavowError, NotAllowed
from disavow.server import tokens, views
from disavow.server.access import ABOUT, STAFF, Role
from disavow.server.authentication import identity_of
from disavow.server.error_responses import message_of, status_of
from disavow.server.pages.rendering import page, render, router, see_other
from disavow.server.services import services_of

_DAY_SECONDS = 86_400.0


@page("/tokens", "tokens.html")
def list_tokens(request: Request) -> views.View:
    """List tokens and roles."""
    identity, services, now = identity_of(request), services_of(request), time.time()
    names = [name for name in services.runs.names() if identity.may_use(name)]
    return {
        "tokens": [{**each.to_json(), "usable": _usable(each, now)} for each in tokens.listed(services.state)],
        "roles": {role.value: ABOUT[role] for role in Role},
        "grantable": sorted(identity.roles & STAFF),
        "runs": names,
        "created": None,
        "notice": None,
        "code": None,
    }


@router.post("/tokens", response_model=None)
def create_token(
    request: Request,
    name: Annotated[str, Form(max_length=200)] = "",
    role: Annotated[list[str] | None, Form(max_length=10)] = None,
    run: Annotated[list[str] | None, Form(max_length=1000)] = None,
    days: Annotated[int, Form(ge=1, le=3650)] = 90,
) -> Response:
    """Make a token, and show it this once."""
    identity, state, now = identity_of(request), services_of(request).state, time.time()
    try:
        roles = tokens.roles_of(role or [])
        scope = identity.runs if not run else frozenset(run)
        if not name.strip():
            raise BadRequest("say who will hold the token")
        if not roles <= identity.roles or not all(identity.may_use(each) for each in scope or ()):
            raise NotAllowed("nobody can give rights that they do not have")
        text, made = tokens.create(
            state, name=name.strip(), roles=roles, runs=scope, now=now, expires_at=now + days * _DAY_SECONDS
        )
    except DisavowError as error:
        view = {**list_tokens(request=request), "notice": message_of(error), "code": error.code}
        return render(request, "tokens.html", view, status=status_of(error))
    view = {**list_tokens(request=request), "created": {"token": text, "name": made.name}}
    return render(request, "tokens.html", view, status=201)


@router.post("/tokens/{token}/revocation", response_model=None)
def revoke_token(request: Request, token: Annotated[int, Path(ge=1, le=2**31)]) -> Response:
    """Revoke a token, from the next call on."""
    tokens.revoke(services_of(request).state, token, now=time.time())
    return see_other("/tokens")


def _usable(token: tokens.Token, now: float) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)
