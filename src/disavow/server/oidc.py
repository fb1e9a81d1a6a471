"""Log in at an OpenID Connect provider: authorization code with PKCE; roles from a claim of the ID token.

Needs the extra `oidc`. What the provider signs is checked: issuer, audience, expiry, nonce, and a signature by one
of the keys that it publishes.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from typing import Any

from fastapi import Request
from fastapi.responses import RedirectResponse

from disavow.errors import MissingExtra, NotAllowed, NotAuthenticated, how_to_install
from disavow.server import tokens
from disavow.server.access import STAFF, Role
from disavow.server.opendsr import base_url
from disavow.server.services import Services
from disavow.server.settings import OidcSettings

try:
    import httpx
    from authlib.integrations.httpx_client import AsyncOAuth2Client
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet
except ModuleNotFoundError as error:
    raise MissingExtra(f"to log in by OpenID Connect needs {error.name}; {how_to_install('oidc')}") from None

COOKIE = "disavow_login"
_ALGORITHMS = ["RS256", "ES256", "PS256"]
_SECONDS = 10.0
_LEEWAY = 60
_LONGEST_NAME = 100
_SEE_OTHER = 303


async def begin(request: Request, provider: OidcSettings, services: Services) -> RedirectResponse:
    """Send somebody to the provider; what comes back is bound to this browser by a cookie."""
    about = await _metadata(provider)
    verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(32)
    state = tokens.remember(
        services.state, tokens.PENDING, json.dumps({"verifier": verifier, "nonce": nonce}), now=time.time()
    )
    async with _client(request, provider) as client:
        url, _ = client.create_authorization_url(
            about["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
        )
    response = RedirectResponse(url, _SEE_OTHER)
    secure = base_url(request).startswith("https")
    response.set_cookie(COOKIE, state, max_age=900, httponly=True, samesite="lax", secure=secure, path="/login")
    return response


async def finish(
    request: Request, provider: OidcSettings, services: Services, *, state: str, code: str
) -> tuple[str, frozenset[Role]]:
    """Take what the provider sent back; who has logged in, and with which roles.

    Raises:
        NotAuthenticated: It does not hold.
        NotAllowed: The provider gives them no role.

    """
    if not hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), state.encode()):
        raise NotAuthenticated("this log-in was begun in another browser; begin again")
    pending = json.loads(tokens.recall(services.state, tokens.PENDING, state, now=time.time()))
    about = await _metadata(provider)
    try:
        async with _client(request, provider) as client:
            granted = await client.fetch_token(
                about["token_endpoint"],
                code=code,
                code_verifier=pending["verifier"],
                grant_type="authorization_code",
            )
            keys = KeySet.import_key_set(
                (await client.request("GET", about["jwks_uri"], withhold_token=True)).json()
            )
        claims = _checked(granted["id_token"], keys, provider, pending["nonce"])
    except NotAuthenticated:
        raise
    except Exception as error:  # of authlib, httpx or joserfc, by what a provider sent
        raise NotAuthenticated(f"the provider's answer cannot be used ({type(error).__name__})") from None
    roles = _roles(claims.get(provider.claim))
    if not roles:
        raise NotAllowed(f"your account has none of the roles {', '.join(sorted(STAFF))} ({provider.claim})")
    name = claims.get("preferred_username") or claims.get("name") or claims["sub"]
    return str(name)[:_LONGEST_NAME], roles


def _checked(token: str, keys: KeySet, provider: OidcSettings, nonce: str) -> dict[str, Any]:
    try:
        decoded = jwt.decode(token, keys, algorithms=_ALGORITHMS)
        jwt.JWTClaimsRegistry(
            leeway=_LEEWAY,
            iss={"essential": True, "value": provider.issuer},
            aud={"essential": True, "value": provider.client_id},
            exp={"essential": True},
            sub={"essential": True},
            nonce={"essential": True, "value": nonce},
        ).validate(decoded.claims)
    except JoseError as error:
        raise NotAuthenticated(f"the provider's answer does not hold ({type(error).__name__})") from None
    return dict(decoded.claims)


def _roles(claim: Any) -> frozenset[Role]:
    named = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    return frozenset(role for role in STAFF if role.value in named)


async def _metadata(provider: OidcSettings) -> dict[str, Any]:
    try:
        async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
            answer = await client.get(f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration")
        about: dict[str, Any] = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise NotAuthenticated(f"the provider cannot be asked ({type(error).__name__})") from None
    wanted = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    if about.get("issuer") != provider.issuer or not all(isinstance(about.get(name), str) for name in wanted):
        raise NotAuthenticated("the provider's description is not that of the issuer")
    return about


def _client(request: Request, provider: OidcSettings) -> AsyncOAuth2Client:
    return AsyncOAuth2Client(
        provider.client_id,
        provider.client_secret,
        scope="openid profile",
        redirect_uri=f"{base_url(request)}/login/oidc/callback",
        code_challenge_method="S256",
        timeout=_SECONDS,
        trust_env=False,
    )
