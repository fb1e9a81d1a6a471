"""What every request and response goes through: host, cross-site and size checks, rates, headers, one log line."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from disavow.errors import BadRequest, CrossSite, DisavowError, TooLarge, TooManyRequests, WrongHost
from disavow.server.error_responses import response_of
from disavow.server.settings import ServerSettings

logger = logging.getLogger("disavow.access")

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

_READS = ("GET", "HEAD", "OPTIONS")
_OWN_SITE = ("same-origin", "none")
_MOST_ADDRESSES = 10_000
_MINUTE = 60.0


@dataclass
class Rates:
    """Counts events of each address within a minute; remembers so many addresses."""

    most: int
    _counts: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)

    def exceeded(self, address: str, *, count: int = 1) -> bool:
        """Count an event; whether there are more of this address than allowed."""
        now = time.monotonic()
        since, seen = self._counts.pop(address, (now, 0))
        if now - since >= _MINUTE:
            since, seen = now, 0
        self._counts[address] = since, seen + count
        while len(self._counts) > _MOST_ADDRESSES:
            self._counts.popitem(last=False)
        return seen + count > self.most


class Protection:
    """Middleware around the whole application.

    Args:
        app: What it protects.
        settings: Hosts and limits.

    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._rates = Rates(settings.requests_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        read, begun = 0, False

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._settings.largest_body:
                raise _too_large(self._settings.largest_body)
            return message

        async def guarded(message: Message) -> None:
            nonlocal begun, status
            if message["type"] == "http.response.start":
                begun, status = True, message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, limited, guarded)
        except DisavowError as error:
            if begun:
                raise
            await response_of(error)(scope, receive, guarded)
        finally:
            # the route and not the path, which anybody may write anything into
            route = getattr(scope.get("route"), "path", "-")
            taken = (time.perf_counter() - started) * 1000
            logger.info("%s %s %d %.1f ms", scope["method"] if route != "-" else "-", route, status, taken)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if _name_of(host) not in self._hosts:
            raise WrongHost("this service does not answer to that host name; `--allow-host` adds one")
        address = scope["client"][0] if scope.get("client") else "-"
        if self._rates.exceeded(address):
            raise TooManyRequests("more requests than are answered in a minute; try again later")
        try:
            length = int(headers.get("content-length", "0"))
        except ValueError:
            raise BadRequest("the request cannot be used: Content-Length is no number") from None
        if length > self._settings.largest_body:
            raise _too_large(self._settings.largest_body)
        if scope["method"] not in _READS:
            refuse_cross_site(headers)


def refuse_cross_site(headers: Headers) -> None:
    """Refuse what another site made a browser send.

    Browsers say where a request comes from; programs say nothing, and have no cookies that could be abused. A
    request with a cookie must say it.

    Raises:
        CrossSite: It comes from another site, or has a cookie and does not say.

    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    own = headers.get("host", "").lower()
    if site is not None and site not in _OWN_SITE:
        raise CrossSite("another site made your browser ask; nothing was changed")
    if site == "same-origin" and origin == "null":
        return  # a form of a page of ours: with Referrer-Policy no-referrer, browsers keep the origin back
    # without the scheme: a reverse proxy may speak TLS for us, and passes on the host
    if origin is not None and origin.lower().partition("://")[2] != own:
        raise CrossSite("another site made your browser ask; nothing was changed")
    if site is None and origin is None and "cookie" in headers and "authorization" not in headers:
        raise CrossSite("your browser does not say which site asks (Sec-Fetch-Site, Origin); nothing was changed")


def _name_of(host: str) -> str:
    """Drop the port of a Host header."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _too_large(largest: int) -> TooLarge:
    return TooLarge(f"the body is larger than the {largest:,} bytes that are read")
