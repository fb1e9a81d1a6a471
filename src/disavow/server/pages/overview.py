"""The overview: every run in a few figures, what is due, and what happened last."""

from __future__ import annotations

from fastapi import Request

from disavow.server import views
from disavow.server.authentication import identity_of
from disavow.server.pages.rendering import page
from disavow.server.services import services_of

_MOST_DUE = 10
_MOST_EVENTS = 8


@page("/", "overview.html")
def overview(request: Request) -> views.View:
    """Show every run in a few figures, the requests that are due first, and what happened last."""
    services, identity = services_of(request), identity_of(request)
    shown = views.overview(services.runs, services.state, identity)
    due: list[views.View] = []
    activity: list[views.View] = []
    for run in shown["runs"]:
        federation = services.runs.federation(run["run"])
        due += views.due_soon(run["run"], federation, identity, most=_MOST_DUE)
        activity += views.activity(run["run"], federation, most=_MOST_EVENTS)
    due.sort(key=lambda each: each["days_left"])
    activity.sort(key=lambda event: event["at"], reverse=True)
    return {**shown, "due": due[:_MOST_DUE], "activity": activity[:_MOST_EVENTS]}
