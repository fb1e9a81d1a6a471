"""Do at the start what first calls would wait for: routes are resolved, templates compiled, runs opened and read.

FastAPI resolves the parameters of every route when the first call comes in, templates are compiled and modules
loaded when they are first needed, and of a run it is remembered where its clients took part. All of that together
takes a second or more on a large run, and nobody should wait for it at a button.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator

from fastapi import FastAPI

from disavow.errors import DisavowError, MissingExtra
from disavow.federation import Federation
from disavow.server import views
from disavow.server.access import NOBODY
from disavow.server.pages.rendering import templates
from disavow.server.services import Services

logger = logging.getLogger("disavow.server")


def warm_up(app: FastAPI, services: Services) -> None:
    """Prepare an application for its first calls, for no longer than its settings say.

    Args:
        app: The application, with all its routes.
        services: What it has; its runs are opened. One that cannot be read is left to whoever asks for it.

    """
    _resolve(app)
    _read_runs(services, time.monotonic() + services.settings.warm_up_seconds)
    gc.collect()
    gc.freeze()  # what is here now stays: to look through it again and again would make calls wait


def _resolve(app: FastAPI) -> None:
    scope = {"type": "http", "method": "GET", "path": "/no-such-page", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(scope)
    for name in templates.list_templates():
        templates.get_template(name)


def _read_runs(services: Services, deadline: float) -> None:
    for run in services.runs.names():
        try:
            federation = services.runs.federation(run)
            for look in _looks(run, federation, services):
                if time.monotonic() > deadline:
                    return
                look()
        except MissingExtra:
            continue  # it says so where it is asked for
        except DisavowError as error:
            logger.warning("%s: %s", run, error.code)


def _looks(run: str, federation: Federation, services: Services) -> Iterator[Callable[[], object]]:
    """Give what pages of a run read, the most visited first."""
    yield lambda: views.run(run, federation, services.state)
    yield lambda: views.due_soon(run, federation, NOBODY, most=1)
    yield lambda: views.activity(run, federation, most=1)
    yield lambda: views.requests([(run, federation)], NOBODY, states=None, before=None, most=1)
    yield lambda: views.round_page(run, federation, before=None, most=1)
    yield lambda: views.log_page(run, federation, before=None, most=1)
    yield lambda: views.departures(run, federation, NOBODY, skip=0, most=20)
    yield lambda: views.releases(run, federation)
    yield lambda: views.account(run, federation)
