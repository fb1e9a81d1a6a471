"""Log in by a single-use link or at an OpenID Connect provider, and log out."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from disavow.errors import NotFound
from disavow.server import tokens
from disavow.server.access import STAFF, Role
from disavow.server.authentication import COOKIE
from disavow.server.pages.rendering import render, router
from disavow.server.services import Services, services_of
from disavow.server.settings import OidcSettings

_SEE_OTHER = 303


@router.get("/login", response_model=None)
def login(
    request: Request, token: Annotated[str | None, Query(max_length=200)] = None
) -> HTMLResponse | RedirectResponse:
    """Open the single-use link, or say how to log in."""
    services = services_of(request)
    if token is None:
        return render(request, "login.html", {"oidc": services.settings.oidc is not None})
    tokens.recall(services.state, tokens.LINK, token, now=time.time())
    return begin_session(request, services, name="whoever started the service", roles=STAFF)


@router.get("/login/oidc", response_model=None)
async def begin_oidc(request: Request) -> RedirectResponse:
    """Go to the OpenID Connect provider."""
    from disavow.server.oidc import begin

    services = services_of(request)
    return await begin(request, _provider(services), services)


@router.get("/login/oidc/callback", response_model=None)
async def finish_oidc(
    request: Request,
    state: Annotated[str, Query(max_length=200)],
    code: Annotated[str, Query(max_length=4000)],
) -> RedirectResponse:
    """Come back from the OpenID Connect provider."""
    from disavow.server.oidc import finish

    services = services_of(request)
    name, roles = await finish(request, _provider(services), services, state=state, code=code)
    return begin_session(request, services, name=name, roles=roles)


@router.post("/logout", response_model=None)
def logout(request: Request) -> Response:
    """End the session."""
    tokens.end_session(services_of(request).state, request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/login", _SEE_OTHER)
    response.delete_cookie(COOKIE, path="/")
    return response


def begin_session(request: Request, services: Services, *, name: str, roles: frozenset[Role]) -> RedirectResponse:
    """Begin a session, and go to the overview."""
    text = tokens.new_session(services.state, name=name, roles=roles, now=time.time())
    response = RedirectResponse("/", _SEE_OTHER)
    response.set_cookie(
        COOKIE,
        text,
        max_age=int(tokens.SESSION_SECONDS),
        httponly=True,
        samesite="lax",
        secure=is_secure(request, services),
        path="/",
    )
    return response


def is_secure(request: Request, services: Services) -> bool:
    """Whether browsers reach this service by TLS: then its cookies travel by TLS alone."""
    return (services.settings.public_url or request.url.scheme).startswith("https")


def _provider(services: Services) -> OidcSettings:
    if services.settings.oidc is None:
        raise NotFound("no OpenID Connect provider is set up here")
    return services.settings.oidc
