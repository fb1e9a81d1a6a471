"""Who is asking: an API token, a session's cookie, or a call that a client signed with its node key.

A signed call has the header::

    Authorization: Disavow-Node key="BASE64", created="SECONDS", nonce="TEXT", signature="BASE64"

`key` is the node's public key in PEM, `signature` is ECDSA with SHA-256 over `signed_text`. The client is whoever
the run knows by the fingerprint of that key, so that no id is sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import time

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from disavow.errors import NotAllowed, NotAuthenticated, TooManyRequests
from disavow.flower.node_keys import fingerprint, is_signed
from disavow.server import metrics, tokens
from disavow.server.access import NOBODY, TABLE, Identity, Role
from disavow.server.services import Services, services_of
from disavow.server.state import State

COOKIE = "disavow_session"
SCHEME = "Disavow-Node"
_WINDOW_SECONDS = 300.0
"""How far the clock of a node may be off."""

_LONGEST_NONCE = 128
_PARAMETER = re.compile(r'(key|created|nonce|signature)="([^"]*)"')


async def authorize(request: Request) -> Identity:
    """Find out who is asking, and refuse what the table does not let them do. Every route depends on it.

    Args:
        request: The HTTP request.

    Returns:
        Who is asking; also as `request.state.identity`.

    Raises:
        NotAuthenticated: Nobody known.
        NotAllowed: Nothing in the table lets them.
        TooManyRequests: Too many failed log-ins from their address.

    """
    services = services_of(request)
    method = "GET" if request.method == "HEAD" else request.method
    rule = TABLE.get((method, request.scope["route"].path))
    if rule is None:
        raise NotAllowed("nobody may do this")
    request.state.identity = NOBODY
    if rule.roles is None:
        return NOBODY
    identity = await _counted(services, request)
    if not identity.roles & rule.roles:
        needed = ", ".join(sorted(rule.roles))
        raise NotAllowed(f"this needs one of the roles {needed}; yours: {', '.join(sorted(identity.roles))}")
    request.state.identity = identity
    return identity


def identity_of(request: Request) -> Identity:
    """Give who was let in by `authorize`."""
    identity: Identity = request.state.identity
    return identity


async def _counted(services: Services, request: Request) -> Identity:
    address = request.client.host if request.client else "-"
    if services.failures.exceeded(address, count=0):
        raise TooManyRequests("too many failed log-ins; try again in a minute")
    try:
        return await identify(services, request)
    except NotAuthenticated:
        services.failures.exceeded(address)
        metrics.FAILED_LOGINS.inc()
        raise


async def identify(services: Services, request: Request) -> Identity:
    """Tell who is asking.

    Raises:
        NotAuthenticated: Nobody known.

    """
    now = time.time()
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        token = tokens.identify(services.state, rest.strip(), now=now)
        if not token.noted(now):  # in a thread: what waits for the disk must not keep all other calls waiting
            await run_in_threadpool(tokens.note_use, services.state, token, now=now)
        return token.identity
    if scheme.lower() == SCHEME.lower():
        if "form" in request.headers.get("content-type", ""):
            raise NotAuthenticated(f"{SCHEME} does not sign forms; send JSON to /v1")  # its body is read already
        body = await request.body()
        return await run_in_threadpool(_identify_node, services.state, request, rest, body, now)
    if scheme:
        raise NotAuthenticated(f"this way to log in is not known; known: Bearer, {SCHEME}")
    if (cookie := request.cookies.get(COOKIE)) is not None:
        return tokens.identify_session(services.state, cookie, now=now)
    raise NotAuthenticated("log in, or send an API token; `disavow token create` makes one")


def signed_text(method: str, path: str, body: bytes, *, host: str, created: str, nonce: str) -> bytes:
    """Give what a client signs to make one call.

    Args:
        method: Of HTTP, in capitals.
        path: Of the URL, with the query, as it is sent.
        body: As it is sent.
        host: The header Host.
        created: Seconds since 1970, as decimal digits.
        nonce: Random; no two calls have the same.

    """
    parts = ("disavow/node-call/v1", method, host.lower(), path, hashlib.sha256(body).hexdigest(), created, nonce)
    return "\n".join(parts).encode()


def _identify_node(state: State, request: Request, given: str, body: bytes, now: float) -> Identity:
    parameters = dict(_PARAMETER.findall(given))
    if parameters.keys() != {"key", "created", "nonce", "signature"} or not parameters["created"].isdecimal():
        raise NotAuthenticated(f"{SCHEME} needs key, created, nonce and signature")
    try:
        key, signature = (base64.b64decode(parameters[name], validate=True) for name in ("key", "signature"))
    except (binascii.Error, ValueError):
        raise NotAuthenticated(f"{SCHEME}: key and signature are not in base64") from None
    query = request.url.query
    path = request.url.path + (f"?{query}" if query else "")
    text = signed_text(
        request.method,
        path,
        body,
        host=request.headers.get("host", ""),
        created=parameters["created"],
        nonce=parameters["nonce"],
    )
    client = fingerprint(key)
    if client is None or not is_signed(key, signature, text):
        raise NotAuthenticated("the signature does not hold")
    if (
        abs(now - float(parameters["created"])) > _WINDOW_SECONDS
        or not 0 < len(parameters["nonce"]) <= _LONGEST_NONCE
    ):
        raise NotAuthenticated("the signature is too old, or from the future")
    _use_nonce(state, parameters["nonce"], now)
    # one secret for all calls of a client, without its id
    return Identity("the client", frozenset({Role.CLIENT}), client=client, key=state.keyed_hash("node", key).hex())


def _use_nonce(state: State, nonce: str, now: float) -> None:
    """Refuse a call that was sent before."""
    used = (hashlib.sha256(nonce.encode()).digest(), now + 2 * _WINDOW_SECONDS)
    with state.writing() as connection:
        added = connection.execute("INSERT OR IGNORE INTO nonces VALUES (?, ?)", used)
        if added.rowcount == 0:
            raise NotAuthenticated("this signed call was sent before")
