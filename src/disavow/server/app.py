"""The application: routes, protection, and the threads that watch and send.

request -> Protection (host, size, cross-site, rate, headers, log line)
-> authorize (who is asking, and whether the table lets them)
-> route (parse, call `federation`, show a view)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from disavow import __version__
from disavow.server import api, error_responses, metrics, opendsr, pages
from disavow.server.authentication import authorize
from disavow.server.deliveries import Sender
from disavow.server.filing import Filing
from disavow.server.open_runs import OpenRuns
from disavow.server.pages.rendering import show_refusal
from disavow.server.protection import Protection, Rates
from disavow.server.receipts import ReceiptSigner
from disavow.server.services import Services, services_of
from disavow.server.settings import ServerSettings
from disavow.server.state import State
from disavow.server.warming import warm_up
from disavow.server.watching import Watcher

_UNAVAILABLE = 503


def create_app(settings: ServerSettings) -> FastAPI:
    """Make the application.

    Args:
        settings: Which runs it serves, and how.

    Returns:
        An ASGI application; its threads run, and its files are open, between startup and shutdown.

    """
    app = FastAPI(
        title="disavow",
        version=__version__,
        summary="Erasure requests of federated learning: file, forecast, approve, prove.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        dependencies=[Depends(authorize)],
    )
    app.state.settings = settings
    app.include_router(api.router)
    app.include_router(opendsr.router)
    app.include_router(pages.router)
    _add_own_routes(app)
    error_responses.install(app, show_refusal)
    app.add_middleware(Protection, settings=settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: ServerSettings = app.state.settings
    services = open_services(settings)
    app.state.services = services
    if settings.warm_up_seconds > 0:
        warm_up(app, services)
    sender = Sender(services.state, services.signer, settings)
    watcher = Watcher(services, sender)
    sender.start()
    watcher.start()
    try:
        yield
    finally:
        watcher.close()
        sender.close()
        services.close()


def open_services(settings: ServerSettings) -> Services:
    """Open what the routes share."""
    state = State(settings.state)
    runs = OpenRuns(settings)
    filing = Filing(state, runs.to_place)
    signer = ReceiptSigner(settings.state)
    return Services(settings, state, runs, filing, signer, Rates(settings.failures_per_minute))


def _add_own_routes(app: FastAPI) -> None:
    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        """Say that the process answers."""
        return {"status": "ok"}

    @app.get("/readyz")
    def readyz(request: Request) -> Response:
        """Say whether the service's database and its runs can be read; 503 where one cannot."""
        services = services_of(request)
        services.state.rows("SELECT 1")
        found = services.runs.readable()
        ready = not any(found.values())
        document = {"status": "ok" if ready else "not ready", "unreadable": sum(map(bool, found.values()))}
        return JSONResponse(document, 200 if ready else _UNAVAILABLE)

    @app.get("/metrics", response_class=Response)
    def show_metrics(request: Request) -> Response:
        """Give the figures for Prometheus."""
        return Response(metrics.text_of(services_of(request).runs), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/openapi.json", include_in_schema=False)
    def openapi() -> dict[str, Any]:
        """Describe this interface."""
        return app.openapi()
