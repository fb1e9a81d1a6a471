"""The overview: every run in a few figures."""

from __future__ import annotations

from fastapi import Request

from disavow.server import views
from disavow.server.authentication import identity_of
from disavow.server.pages.rendering import page
from disavow.server.services import services_of


@page("/", "overview.html")
def overview(request: Request) -> views.View:
    """Show every run in a few figures, and what waits."""
    services = services_of(request)
    return views.overview(services.runs, services.state, identity_of(request))
