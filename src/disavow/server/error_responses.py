"""Every refusal as one body, `{"error": {"code": "DSV-…", "message": "…"}}`, with the status that its kind has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from disavow import errors
from disavow.errors import DisavowError

logger = logging.getLogger("disavow.server")

INTERNAL = "DSV-900"

STATUS: Mapping[type[DisavowError], int] = {
    errors.BadRequest: 422,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.CrossSite: 403,
    errors.NotFound: 404,
    errors.WrongHost: 421,
    errors.TooLarge: 413,
    errors.TooManyRequests: 429,
    errors.KeyReused: 422,
    errors.AlreadyForgotten: 410,
    errors.UnknownClient: 404,
    errors.UnknownRecord: 404,
    errors.RecordErased: 410,
    errors.RecordsUnchecked: 409,
    errors.UnknownRequest: 404,
    errors.TextNamesClient: 422,
    errors.DeadlineRefused: 422,
    errors.RunMissing: 404,
    errors.RunInUse: 503,
    errors.CannotRetrain: 409,
    errors.RunOutdated: 409,
    errors.RunError: 409,
    errors.StorageFull: 507,
    errors.StorageError: 503,
    errors.KeyringMissing: 503,
    errors.KeyringOutdated: 503,
    errors.LedgerVersion: 503,
    errors.IntegrityError: 503,
    errors.LedgerError: 409,
    errors.VerificationError: 422,
    errors.RoundRefused: 409,
    errors.ConfigError: 422,
}
"""The status of each kind of refusal; a kind that is not listed has that of the nearest kind above it."""

_SILENT: Mapping[type[DisavowError], str] = {
    errors.AlreadyForgotten: "this client has left the run and was forgotten: there is nothing left to erase",
    errors.UnknownClient: "this run has no client of this id; nothing was changed",
    errors.UnknownRecord: "there is no such record; nothing was changed",
    errors.RecordErased: "this record was erased before, and no round since has seen it; nothing was changed",
    errors.RecordsUnchecked: "these records cannot be erased by themselves; nothing was changed",
}
"""What is said in place of a message that names clients: an answer may be logged by whoever asked."""

_CODES = {404: errors.NotFound.code, 405: errors.NotFound.code, 413: errors.TooLarge.code}
_MESSAGES = {404: "there is nothing at this address", 405: "this address does not take such a call"}
SERVER_ERROR = 500


def status_of(error: DisavowError) -> int:
    """Give the HTTP status of a refusal."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), SERVER_ERROR)


def message_of(error: DisavowError) -> str:
    """Say why, naming no client."""
    return next((_SILENT[kind] for kind in type(error).__mro__ if kind in _SILENT), str(error))


def body_of(code: str, message: str, **more: Any) -> dict[str, Any]:
    """Give the body that every refusal has."""
    return {"error": {"code": code, "message": message, **more}}


def response_of(error: DisavowError) -> JSONResponse:
    """Give the response that refuses."""
    status = status_of(error)
    headers = {}
    if status == 401:  # noqa: PLR2004 - RFC 9110 wants a challenge with it
        headers["WWW-Authenticate"] = 'Bearer realm="disavow"'
    if status in (429, 503):
        headers["Retry-After"] = "1"
    return JSONResponse(body_of(error.code, message_of(error), **error.details), status, headers)


Show = Callable[[Request, JSONResponse, Mapping[str, Any]], Response]
"""Makes of a refusal what whoever asked can read: a browser gets a page."""


def install(app: FastAPI, show: Show) -> None:
    """Make an application answer every error in this way."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, DisavowError)  # noqa: S101 - registered for it
        return show(request, response_of(error), body_of(error.code, message_of(error)))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
        # where it is wrong and why, but not what was sent: it may be a client's id
        wrong = [{"where": _place(each), "why": each["type"]} for each in error.errors()]
        names = ", ".join(f"{each['where']} ({each['why']})" for each in wrong)
        body = body_of(errors.BadRequest.code, f"the request cannot be used: {names}", fields=wrong)
        return show(request, JSONResponse(body, STATUS[errors.BadRequest]), body)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
        code = _CODES.get(error.status_code, errors.BadRequest.code)
        body = body_of(code, _MESSAGES.get(error.status_code, str(error.detail)))
        return show(request, JSONResponse(body, error.status_code, error.headers), body)

    async def unforeseen(request: Request, error: Exception) -> Response:
        logger.error("internal error %s: %s", INTERNAL, type(error).__name__)
        body = body_of(INTERNAL, "a defect of disavow: please report it; the log of the service says more")
        return show(request, JSONResponse(body, SERVER_ERROR), body)

    app.add_exception_handler(DisavowError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unforeseen)


def _place(found: Mapping[str, Any]) -> str:
    """Name the field that is wrong; a field that nobody knows is not repeated."""
    known = [str(part) for part in found["loc"]]
    return ".".join(known[:-1] if found["type"] == "extra_forbidden" else known)
