"""OpenDSR 2.0 under /opendsr/v2: discovery, requests with signed receipts, status, cancellation, status callbacks.

A data subject is a client of a run: its `controller_customer_id`, raw. Which run is said by the extension of this
processor, `{"extensions": {DOMAIN: {"run": NAME}}}`, and may be left out where only one is served. The body of a
request, which holds the id, is not stored: it goes back in the receipt, as the specification has it, and is
forgotten.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from disavow.domain import ErasureRequest, RequestState
from disavow.errors import BadRequest, DisavowError, NotFound
from disavow.federation import Federation
from disavow.server import views, webhooks
from disavow.server.access import Identity
from disavow.server.api import file, open_run
from disavow.server.authentication import identity_of
from disavow.server.deliveries import callback_headers, domain
from disavow.server.error_responses import message_of, status_of
from disavow.server.services import Services, services_of

router = APIRouter(prefix="/opendsr/v2")

VERSION = "2.0"
IDENTITY, FORMAT = "controller_customer_id", "raw"
_MOST_CALLBACKS = 10
_BAD_REQUEST = 400

_STATUS = {
    RequestState.WAITING: "pending",
    RequestState.REBUILDING: "in_progress",
    RequestState.DELETING: "in_progress",
    RequestState.ANSWERED: "completed",
}
"""What OpenDSR calls the states; whatever else a request may be, it is cancelled there."""


class _Identity(BaseModel):
    identity_type: Annotated[str, Field(max_length=100)]
    identity_value: Annotated[str, Field(min_length=1, max_length=1024)]
    identity_format: Annotated[str, Field(max_length=100)]


class _NewRequest(BaseModel):
    """As section 7.1.1 has it; what is not known is passed over, as other processors' extensions are."""

    model_config = ConfigDict(extra="ignore")

    regulation: Literal["gdpr", "ccpa"]
    subject_request_id: UUID
    subject_request_type: Literal["erasure"]
    submitted_time: datetime
    subject_identities: Annotated[list[_Identity], Field(min_length=1, max_length=10)]
    api_version: Annotated[str, Field(pattern=r"^2(\.|$)", max_length=20)] = VERSION
    status_callback_urls: Annotated[list[str], Field(max_length=_MOST_CALLBACKS)] = Field(default_factory=list)
    extensions: dict[str, Any] = Field(default_factory=dict)


@router.get("/discovery")
def discovery(request: Request) -> views.View:
    """Tell what of OpenDSR is spoken here."""
    return {
        "api_version": VERSION,
        "supported_identities": [{"identity_type": IDENTITY, "identity_format": FORMAT}],
        "supported_subject_request_types": ["erasure"],
        "processor_certificate": f"{base_url(request)}/opendsr/v2/certificate",
    }


@router.get("/certificate", response_class=Response)
def certificate(request: Request) -> Response:
    """Give the certificate that signs receipts and callbacks."""
    return Response(services_of(request).signer.certificate, media_type="application/x-pem-file")


@router.post("/requests", status_code=201)
async def create(request: Request) -> Response:
    """File a request of a data subject; the answer is a signed receipt."""
    services, identity, body = services_of(request), identity_of(request), await request.body()
    try:
        filed = _NewRequest.model_validate_json(body)
        if filed.subject_request_id.version != 4:  # noqa: PLR2004 - as the specification wants it
            raise BadRequest("subject_request_id is no UUID of version 4")
        for url in filed.status_callback_urls:
            webhooks.check_url(url, private=services.settings.private_callbacks)
        client = _client(filed)
        run = _run(services, identity, filed)
        open_run(request, run)
        row, found = await _file(services, identity, filed, run, client)
    except ValidationError as error:
        return _refused([(".".join(map(str, each["loc"])), each["type"]) for each in error.errors()])
    except DisavowError as error:
        if status_of(error) >= 500:  # noqa: PLR2004 - ours, and not the caller's
            raise
        return _refused([(error.code, message_of(error))])
    return _signed(
        services,
        {
            "controller_id": row["controller"],
            "expected_completion_time": _expected(found),
            "received_time": _moment(row["received_at"]),
            "encoded_request": base64.b64encode(body).decode(),
            "subject_request_id": row["id"],
            "api_version": VERSION,
        },
        status=201,
    )


@router.get("/requests/{subject_request_id}")
def status(request: Request, subject_request_id: UUID) -> Response:
    """Tell how far a request is."""
    services, row, _, found = _find(request, subject_request_id)
    return _signed(
        services,
        {
            "controller_id": row["controller"],
            "expected_completion_time": _expected(found),
            "subject_request_id": row["id"],
            "request_status": status_of_request(found),
            "api_version": VERSION,
            **_results(request, row, found),
        },
    )


@router.delete("/requests/{subject_request_id}", status_code=202)
def cancel(request: Request, subject_request_id: UUID) -> Response:
    """Cancel a request that is pending."""
    services, row, federation, found = _find(request, subject_request_id)
    try:
        federation.cancel(found.number, by=identity_of(request).name)
    except DisavowError as error:
        return _refused([(error.code, message_of(error))])
    document = {
        "controller_id": row["controller"],
        "received_time": _moment(time.time()),
        "subject_request_id": row["id"],
        "api_version": VERSION,
    }
    return _signed(services, document, status=202)


def note_status(connection: sqlite3.Connection, run: str, request: ErasureRequest, *, now: float) -> None:
    """Queue a callback which says that the status of a request has changed.

    Args:
        connection: The transaction that notes the change.
        run: The run.
        request: The request as it is now.
        now: The present time.

    """
    status = status_of_request(request)
    rows = connection.execute(
        "SELECT * FROM opendsr WHERE run = ? AND number = ? AND status != ?", (run, request.number, status)
    ).fetchall()
    for row in rows:
        connection.execute("UPDATE opendsr SET status = ? WHERE id = ?", (status, row["id"]))
        _tell_callbacks(connection, row, request, status, now=now)


def _tell_callbacks(
    connection: sqlite3.Connection, row: Any, request: ErasureRequest, status: str, *, now: float
) -> None:
    for url in json.loads(row["callbacks"]):
        body = {
            "controller_id": row["controller"],
            "status_callback_url": url,
            "subject_request_id": row["id"],
            "request_status": status,
            "expected_completion_time": _expected(request),
        }
        webhooks.enqueue_to(connection, url, f"opendsr.{status}", json.dumps(body), now=now)


def status_of_request(request: ErasureRequest) -> str:
    """Name the state of a request as OpenDSR does."""
    return _STATUS.get(request.state, "pending" if request.pending else "cancelled")


async def _file(
    services: Services, identity: Identity, filed: _NewRequest, run: str, client: str
) -> tuple[Any, ErasureRequest]:
    """Place a request once, however often it is sent; its row in the service's database, and the request."""
    state, key = services.state, str(filed.subject_request_id)
    fingerprint = state.keyed_hash("opendsr", run.encode(), client.encode("utf-8", "surrogatepass"))
    found = await file(services, identity, run, client, f"opendsr {key}")
    values = (
        key,
        identity.key,
        fingerprint,
        run,
        found.number,
        time.time(),
        json.dumps(list(dict.fromkeys(filed.status_callback_urls))),
    )
    with state.writing() as connection:
        connection.execute("INSERT OR IGNORE INTO opendsr VALUES (?, ?, ?, ?, ?, ?, ?, '')", values)
        row = connection.execute("SELECT * FROM opendsr WHERE id = ?", (key,)).fetchone()
        if row["controller"] != identity.key or row["fingerprint"] != fingerprint:
            raise BadRequest("this subject_request_id was used for another request")
        if row["status"] == "":
            connection.execute("UPDATE opendsr SET status = 'pending' WHERE id = ?", (key,))
            _tell_callbacks(connection, row, found, "pending", now=time.time())
    return row, found


def _find(request: Request, key: UUID) -> tuple[Services, Any, Federation, ErasureRequest]:
    services = services_of(request)
    row = services.state.row("SELECT * FROM opendsr WHERE id = ?", (str(key),))
    if row is None or row["controller"] != identity_of(request).key:
        raise NotFound("there is no such request")
    federation = open_run(request, row["run"])
    return services, row, federation, federation.request(row["number"])


def _client(filed: _NewRequest) -> str:
    found = {each.identity_value for each in filed.subject_identities if _is_known(each)}
    if len(found) != 1:
        raise BadRequest(f"subject_identities needs one identity of type {IDENTITY} and format {FORMAT}")
    return found.pop()


def _is_known(each: _Identity) -> bool:
    return (each.identity_type, each.identity_format) == (IDENTITY, FORMAT)


def _run(services: Services, identity: Identity, filed: _NewRequest) -> str:
    own = filed.extensions.get(domain(services.settings))
    named = own.get("run") if isinstance(own, dict) else None
    if isinstance(named, str):
        return named
    served = [name for name in services.runs.names() if identity.may_use(name)]
    if len(served) != 1:
        raise BadRequest(f"extensions.{domain(services.settings)}.run is needed: this service serves several runs")
    return served[0]


def _results(request: Request, row: Any, found: ErasureRequest) -> dict[str, Any]:
    if found.state is not RequestState.ANSWERED:
        return {}
    return {
        "results_url": f"{base_url(request)}/v1/requests/{row['run']}-{row['number']}/proof",
        "results_count": 1,
    }


def _expected(request: ErasureRequest) -> str:
    return _moment((request.answered_at or request.due).timestamp())


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def base_url(request: Request) -> str:
    """Give the URL under which others reach this service."""
    public = services_of(request).settings.public_url
    return public.rstrip("/") if public is not None else f"{request.url.scheme}://{request.headers.get('host', '')}"


def _signed(services: Services, document: dict[str, Any], *, status: int = 200) -> Response:
    """Answer with a signed body: the header signs it as it is sent, `processor_signature` all its other fields."""
    inner = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    body = json.dumps({**document, "processor_signature": services.signer.sign(inner)}).encode()
    headers = callback_headers(services.signer, body, domain(services.settings))
    return Response(body, status, headers, media_type="application/json")


def _refused(wrong: list[tuple[str, str]]) -> Response:
    """Refuse in OpenDSR's own form, naming no identity."""
    errors = [
        {"domain": "Validation", "reason": reason, "message": f"{where}: {reason}"} for where, reason in wrong
    ]
    document = {"error": {"code": _BAD_REQUEST, "message": errors[0]["message"], "errors": errors}}
    return Response(json.dumps(document), _BAD_REQUEST, media_type="application/json")
