"""REST under /v1: parse, call, show. What a route does is in `federation`, who may call it in `access`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from disavow.domain import ErasureRequest, RequestState
from disavow.errors import BadRequest, ForecastChanged, NotAllowed, NotFound, PurgeRefused
from disavow.evidence.pack import make_pack, write_archive
from disavow.federation import Federation
from disavow.results import Prospect
from disavow.server import record_lookup, tokens, verification, views, webhooks
from disavow.server.access import Identity
from disavow.server.authentication import identity_of
from disavow.server.filing import Filed
from disavow.server.open_runs import request_id, split_id
from disavow.server.services import Services, services_of

router = APIRouter(prefix="/v1")

MOST_SHOWN = 200
MOST_RECORDS = 1000
_ACCEPTED = 202
LONGEST_ID = 1024
_LONGEST_REASON = 2000


class Body(BaseModel):
    """A JSON body: fields that are not known are refused."""

    model_config = ConfigDict(extra="forbid", str_max_length=65_536)


Records = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]] | None,
    Field(min_length=1, max_length=MOST_RECORDS),
]
"""The keys of records of a client that stays; left out, the whole client is to be forgotten."""


class NewRequest(Body):
    """A request to be filed. A client that asks for itself leaves `client` out: its key says who it is."""

    run: Annotated[str, Field(min_length=1, max_length=100)]
    client: Annotated[str | None, Field(min_length=1, max_length=LONGEST_ID)] = None
    records: Records = None


class Named(Body):
    """A client of a run."""

    run: Annotated[str, Field(min_length=1, max_length=100)]
    client: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]


class ToForecast(Named):
    """An erasure to be forecast."""

    records: Records = None


class RecordsToFind(Body):
    """Records to look for at every client of a run."""

    run: Annotated[str, Field(min_length=1, max_length=100)]
    records: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]],
        Field(min_length=1, max_length=MOST_RECORDS),
    ]


class ApprovalBody(Body):
    """An approval: the digest of the forecast that the approver saw."""

    forecast: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    reason: Annotated[str, Field(max_length=_LONGEST_REASON)] = ""


class PurgeBody(Body):
    """A purge: the digest of the forecast that was seen."""

    forecast: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Reason(Body):
    """Why something is done."""

    reason: Annotated[str, Field(min_length=1, max_length=_LONGEST_REASON)]


class Extension(Reason):
    """A later deadline."""

    until: datetime | None = None
    """As far as it may be, where nothing is said."""


class NewWebhook(Body):
    """A webhook to be added."""

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: Annotated[list[str], Field(min_length=1, max_length=20)] = Field(default_factory=lambda: ["*"])


Run = Annotated[str, Field(min_length=1, max_length=100)]


# -- runs ----------------------------------------------------------------------------------------------------------


@router.get("/whoami")
def whoami(request: Request) -> views.View:
    """Tell who is asking."""
    identity = identity_of(request)
    runs = None if identity.runs is None else sorted(identity.runs)
    return {"name": identity.name, "roles": sorted(identity.roles), "runs": runs}


@router.get("/runs")
def list_runs(request: Request) -> views.View:
    """List runs."""
    services = services_of(request)
    return views.overview(services.runs, services.state, identity_of(request))


@router.get("/runs/{run}")
def show_run(request: Request, run: Run) -> views.View:
    """Show a run."""
    return views.run(run, open_run(request, run), services_of(request).state)


@router.get("/runs/{run}/rounds")
def list_rounds(request: Request, run: Run, standing: bool = False) -> views.View:
    """List the rounds of a run."""
    return views.rounds(run, open_run(request, run), standing=standing)


@router.get("/runs/{run}/account")
def show_account(request: Request, run: Run) -> views.View:
    """Show the privacy account of a run."""
    return views.account(run, open_run(request, run))


@router.get("/runs/{run}/releases")
def list_releases(request: Request, run: Run) -> views.View:
    """List the models of a run that were given to somebody."""
    return views.releases(run, open_run(request, run))


@router.get("/runs/{run}/departures")
def list_departures(
    request: Request,
    run: Run,
    skip: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    most: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 20,
) -> views.View:
    """Show who could leave now."""
    return views.departures(run, open_run(request, run), identity_of(request), skip=skip, most=most)


@router.get("/runs/{run}/purge")
def show_purge(request: Request, run: Run) -> views.View:
    """Show what a purge would do now, and by when one is due."""
    return views.purge(run, open_run(request, run), services_of(request).state)


@router.post("/runs/{run}/purge", status_code=202)
def ask_purge(request: Request, run: Run, body: PurgeBody) -> views.View:
    """Have the worker purge, as it was forecast. Is the forecast another one now, 409 comes with it."""
    services, federation = services_of(request), open_run(request, run)
    present = federation.forecast_purge()
    if present.obstacle is not None:
        raise PurgeRefused(f"nothing can be purged now: {present.obstacle}")
    if not present:
        raise PurgeRefused("there is nothing to purge: no leaver's update is in the model")
    if present.digest != body.forecast:
        refusal = ForecastChanged(
            "what is forecast of a purge has changed since it was seen: look at it again; nothing was asked for",
            digest=present.digest,
        )
        refusal.details = {"forecast": views.purge(run, federation, services.state)}
        raise refusal
    with services.state.writing() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO purges VALUES (?, ?, ?, ?)",
            (run, present.digest, identity_of(request).name, time.time()),
        )
    return views.purge(run, federation, services.state)


@router.get("/runs/{run}/serving", response_class=Response)
def show_serving(
    request: Request, run: Run, since: Annotated[int | None, Query(ge=1, le=2**31)] = None
) -> Response:
    """Give the signed statement of the model that is served, as the file that `disavow verify --serving` takes."""
    data = open_run(request, run).serving_statement(since=since)
    return Response(data, media_type="application/json", headers=_as_file(f"{run}.serving.json"))


# -- the log -----------------------------------------------------------------------------------------------------


@router.get("/runs/{run}/log/checkpoint")
def show_checkpoint(request: Request, run: Run) -> views.View:
    """Show the newest head of the log."""
    return views.checkpoint(run, open_run(request, run))


@router.get("/runs/{run}/log/inclusion")
def show_inclusion(
    request: Request,
    run: Run,
    leaf: Annotated[int, Query(ge=0, le=2**31)],
    size: Annotated[int | None, Query(ge=1, le=2**31)] = None,
) -> views.View:
    """Prove that a leaf is in the log."""
    return views.inclusion(run, open_run(request, run), leaf=leaf, size=size)


@router.get("/runs/{run}/log/consistency")
def show_consistency(
    request: Request,
    run: Run,
    old: Annotated[int, Query(ge=1, le=2**31)],
    new: Annotated[int | None, Query(ge=1, le=2**31)] = None,
) -> views.View:
    """Prove that the log only grew."""
    return views.consistency(run, open_run(request, run), old=old, new=new)


@router.get("/runs/{run}/key", response_class=Response)
def show_key(request: Request, run: Run) -> Response:
    """Give the public key that signs the log, as the file that `disavow verify --key` takes."""
    open_run(request, run)
    return Response(verification.public_keys(services_of(request).settings.keys), media_type="application/json")


# -- requests ----------------------------------------------------------------------------------------------------


@router.post("/forecasts")
def make_forecast(request: Request, body: ToForecast) -> views.View:
    """Tell what an erasure would come to. Changes nothing."""
    return views.forecast(foreseen(open_run(request, body.run), body.client, body.records))


def foreseen(federation: Federation, client: str, records: Sequence[str] | None) -> Prospect:
    """Forecast an erasure as far as that goes without the task: records are looked up by whoever answers."""
    return federation.forecast(client, records=records, unchecked=True, try_loading=False)


@router.post("/records/holders")
def find_holders(request: Request, body: RecordsToFind) -> views.View:
    """Find who holds some records, wherever they are: for each of these clients a request is to be filed."""
    found = holders(request, body.run, body.records)
    return {
        "run": body.run,
        "holders": [{"client": client, "records": list(held)} for client, held in found.items()],
    }


def holders(request: Request, run: str, records: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Find which clients of a run hold which of some records.

    Args:
        request: Who asks.
        run: The run.
        records: The keys of the records.

    """
    directory, keys = open_run(request, run).directory, services_of(request).settings.keys
    return record_lookup.find_holders(directory, keys, list(dict.fromkeys(records)))


@router.post("/requests", status_code=202)
async def file_request(
    request: Request,
    body: NewRequest,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=256)] = None,
) -> JSONResponse:
    """File a request to be forgotten, which a worker answers. The same `Idempotency-Key` gives the same answer."""
    services, identity = services_of(request), identity_of(request)
    open_run(request, body.run)
    client = _who_asks(identity, body.client)
    found = await file(services, identity, body.run, client, idempotency_key, body.records)
    headers = {"Location": f"/v1/requests/{request_id(body.run, found.number)}"}
    return JSONResponse(views.request(body.run, found, identity), _ACCEPTED, headers)


async def file(
    services: Services,
    identity: Identity,
    run: str,
    client: str,
    key: str | None,
    records: Sequence[str] | None = None,
) -> ErasureRequest:
    """Have a request placed; the request.

    Args:
        services: What the application has.
        identity: Who files it.
        run: The run.
        client: Who is to be forgotten, or has the records.
        key: The caller's idempotency key, if any.
        records: The records to be erased; None for the whole client.

    """
    state = services.state
    named = None if records is None else tuple(sorted(set(records)))
    hashed = None if key is None else state.keyed_hash("key", identity.key.encode(), key.encode())
    fingerprint = state.keyed_hash(
        "filing", *(each.encode("utf-8", "surrogatepass") for each in (run, client, *(named or ())))
    )
    filed = Filed(client, identity.name, hashed, fingerprint, named)
    return await asyncio.wrap_future(services.filing.file(run, filed))


@router.get("/requests")
def list_requests(
    request: Request,
    run: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
    state: Annotated[list[RequestState] | None, Query()] = None,
    before: Annotated[int | None, Query(ge=1, le=2**31)] = None,
    most: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 50,
) -> views.View:
    """List requests, the newest first. `before` of one page asks for the next, within one run."""
    services, identity = services_of(request), identity_of(request)
    names = [run] if run is not None else [name for name in services.runs.names() if identity.may_use(name)]
    runs = [(name, open_run(request, name)) for name in names]
    return views.requests(runs, identity, states=state, before=before, most=most)


@router.post("/requests/search")
def find_request(request: Request, body: Named) -> views.View:
    """Find the request of a client: a body, because no address may hold an id."""
    found = open_run(request, body.run).request_of(body.client)
    if found is None:
        raise NotFound("this client has not asked")
    return views.request(body.run, found, identity_of(request))


@router.get("/requests/{request}")
def show_request(request: str, call: Request) -> views.View:
    """Show a request."""
    name, _, found = open_request(call, request)
    return views.request(name, found, identity_of(call))


@router.get("/requests/{request}/forecast")
def forecast_request(request: str, call: Request) -> views.View:
    """Tell what a request would come to now. Changes nothing."""
    _, federation, found = open_request(call, request)
    return views.forecast(federation.forecast_of(found.number))


@router.post("/requests/{request}/approval")
def approve_request(request: str, call: Request, body: ApprovalBody) -> views.View:
    """Approve a request, as it was forecast. Is the forecast another one now, 409 comes with it."""
    name, federation, found = open_request(call, request)
    identity = identity_of(call)
    try:
        # that one stays open, and remembers where clients took part: nobody else can write while it looks
        with services_of(call).runs.to_approve(name) as run:
            approved = run.approve(
                found.number, by=identity.name, reason=body.reason, forecast_digest=body.forecast
            )
    except ForecastChanged as error:
        error.details = {"forecast": views.forecast(federation.forecast_of(found.number))}
        raise
    return views.request(name, approved, identity)


@router.post("/requests/{request}/denial")
def refuse_request(request: str, call: Request, body: Reason) -> views.View:
    """Refuse a request: it is not answered, and stays in the register."""
    name, federation, found = open_request(call, request)
    identity = identity_of(call)
    return views.request(name, federation.refuse(found.number, by=identity.name, reason=body.reason), identity)


@router.post("/requests/{request}/cancellation")
def cancel_request(request: str, call: Request, body: Reason | None = None) -> views.View:
    """Cancel a request that waits."""
    name, federation, found = open_request(call, request)
    identity = identity_of(call)
    reason = "" if body is None else body.reason
    return views.request(name, federation.cancel(found.number, by=identity.name, reason=reason), identity)


@router.post("/requests/{request}/extension")
def extend_request(request: str, call: Request, body: Extension) -> views.View:
    """Move the deadline of a request, once."""
    name, federation, found = open_request(call, request)
    identity = identity_of(call)
    extended = federation.extend(
        found.number, by=identity.name, reason=body.reason, until=None if body.until is None else _utc(body.until)
    )
    return views.request(name, extended, identity)


@router.post("/requests/{request}/pause")
def pause_request(request: str, call: Request, body: Reason) -> views.View:
    """Pause a request while the identity of who asks is in doubt."""
    name, federation, found = open_request(call, request)
    identity = identity_of(call)
    return views.request(name, federation.pause(found.number, by=identity.name, reason=body.reason), identity)


@router.post("/requests/{request}/resumption")
def resume_request(request: str, call: Request, body: Reason) -> views.View:
    """End the pause of a request."""
    name, federation, found = open_request(call, request)
    identity = identity_of(call)
    resumed = federation.resume_request(found.number, by=identity.name, reason=body.reason)
    return views.request(name, resumed, identity)


@router.get("/requests/{request}/proof", response_class=Response)
def show_proof(request: str, call: Request) -> Response:
    """Give the proof of an answered request; once it is purged, the second one, which says so."""
    _, federation, found = open_request(call, request)
    refuse_unanswered(found)
    proof = federation.proof(found)
    return Response(proof.data, media_type="application/json", headers=_as_file(f"{request}.proof.json"))


@router.get("/requests/{request}/evidence", response_class=Response)
def show_evidence(request: str, call: Request) -> Response:
    """Give the evidence pack of a request as one archive; never the opening, nor a PDF."""
    _, federation, found = open_request(call, request)
    pack = make_pack(federation, found.number, names=identity_of(call).sees_clients, pdf=False)
    headers = _as_file(f"{request}.evidence.zip")
    return Response(write_archive(pack), media_type="application/zip", headers=headers)


@router.get("/requests/{request}/opening", response_class=Response)
def show_opening(request: str, call: Request) -> Response:
    """Give the opening of an answered request, which names its leaver and is theirs."""
    _, federation, found = open_request(call, request)
    refuse_unanswered(found)
    data = federation.read_opening(found.number)
    if data is None:
        raise _no_opening()
    return Response(data, media_type="application/json", headers=_as_file(f"{request}.opening.json"))


@router.delete("/requests/{request}/opening", status_code=204)
def delete_opening(request: str, call: Request) -> None:
    """Delete an opening, once its leaver has it. Nobody can make it again."""
    _, federation, found = open_request(call, request)
    if not federation.delete_opening(found.number):
        raise _no_opening()


@router.post("/verifications")
async def verify(
    request: Request,
    run: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
) -> views.View:
    """Verify a proof, which is the body; against the keys of this service."""
    if run is not None:
        open_run(request, run)
    data = await request.body()
    if not data:
        raise BadRequest("the body is empty; allowed: a proof, as `GET /v1/requests/{request}/proof` gives it")
    return await asyncio.to_thread(verification.verify, data, services_of(request).settings.keys)


# -- the service itself ------------------------------------------------------------------------------------------


@router.get("/tokens")
def list_tokens(request: Request) -> views.View:
    """List API tokens; `disavow token create` makes one, `disavow token revoke` revokes it."""
    return {"tokens": [token.to_json() for token in tokens.listed(services_of(request).state)]}


@router.get("/access")
def show_access() -> views.View:
    """Show who may do what."""
    return views.access_table()


@router.post("/webhooks", status_code=201)
def add_webhook(request: Request, body: NewWebhook) -> views.View:
    """Add a webhook; its secret is shown this once."""
    services = services_of(request)
    return webhooks.add(
        services.state, body.url, body.events, now=time.time(), private=services.settings.private_callbacks
    )


@router.get("/webhooks")
def list_webhooks(request: Request) -> views.View:
    """List webhooks."""
    return {"webhooks": webhooks.listed(services_of(request).state)}


@router.delete("/webhooks/{webhook}", status_code=204)
def remove_webhook(request: Request, webhook: Annotated[int, Field(ge=1, le=2**31)]) -> None:
    """Remove a webhook; what waits to be sent to it is dropped."""
    webhooks.remove(services_of(request).state, webhook, now=time.time())


@router.get("/deliveries")
def list_deliveries(
    request: Request,
    dead: bool = False,
    most: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 50,
) -> views.View:
    """List deliveries, the newest first; with `dead`, those that were given up."""
    return {"deliveries": webhooks.deliveries(services_of(request).state, dead=dead, most=most)}


@router.post("/deliveries/{delivery}/retry", status_code=202)
def retry_delivery(request: Request, delivery: Annotated[int, Field(ge=1, le=2**31)]) -> views.View:
    """Try a delivery that was given up again."""
    return webhooks.retry(services_of(request).state, delivery, now=time.time())


# -- what routes share -------------------------------------------------------------------------------------------


def open_run(request: Request, name: str) -> Federation:
    """Give a run that is within the scope of whoever asks.

    Raises:
        NotFound: There is none, or they may not know of it.

    """
    if not identity_of(request).may_use(name):
        raise NotFound("there is no such run; `GET /v1/runs` lists them")
    return services_of(request).runs.federation(name)


def open_request(call: Request, request: str) -> tuple[str, Federation, ErasureRequest]:
    """Give a request with its run; to a client only its own.

    Raises:
        NotFound: There is none, or it is somebody else's.

    """
    name, number = split_id(request)
    federation = open_run(call, name)
    identity = identity_of(call)
    if identity.client is None:
        return name, federation, federation.request(number)
    found = next(iter(federation.requests([number])), None)
    if found is None or not federation.is_request_of(found, identity.client):
        raise NotFound("there is no such request")
    return name, federation, found


def _who_asks(identity: Identity, client: str | None) -> str:
    if identity.client is not None:
        if client not in (None, identity.client):
            raise NotAllowed("a client may ask for itself alone")
        return identity.client
    if client is None:
        raise BadRequest("the request cannot be used: body.client (missing)")
    return client


def _utc(moment: datetime) -> datetime:
    """Take a moment without a time zone for one in UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def refuse_unanswered(found: ErasureRequest) -> None:
    """Refuse a request that has no proof yet."""
    if found.state is not RequestState.ANSWERED:
        raise NotFound(f"this request has no proof yet: it is {found.state.value}")


def _no_opening() -> NotFound:
    return NotFound("the opening of this request is not here, or not any more")


def _as_file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


__all__ = ["file", "foreseen", "holders", "open_request", "open_run", "refuse_unanswered", "router"]
