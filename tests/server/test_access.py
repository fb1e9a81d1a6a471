"""Every route, with every role and with none: what the table says is what happens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from disavow.server import access
from disavow.server.access import RULES, TABLE, Role, Rule
from disavow.server.app import create_app
from disavow.server.settings import ServerSettings
from tests.server.service import Service, error_of

DOCS = Path(__file__).parents[2] / "docs" / "server.md"
VALUES = {
    "run": "first",
    "request": "first-1",
    "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
    "webhook": "1",
    "delivery": "1",
    "token": "1",
    "name": "htmx.min.js",
}


def url(rule: Rule) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: VALUES[found[1]], rule.path)


@dataclass(frozen=True)
class _One:
    route: BaseRoute

    @property
    def routes(self) -> list[BaseRoute]:
        return [self.route]


def routes(settings: ServerSettings) -> set[tuple[str, str]]:
    app = create_app(settings)
    # newer FastAPIs keep a router that was included as one entry
    included = [getattr(each, "original_router", None) for each in app.routes]
    found = [
        route for each, router in zip(app.routes, included, strict=True) for route in (router or _One(each)).routes
    ]
    assert all(isinstance(route, APIRoute) for route in found), "a route that the table does not guard"
    return {
        (method, route.path) for route in found if isinstance(route, APIRoute) for method in route.methods or ()
    }


def test_the_table_has_every_route_and_no_other(settings: ServerSettings) -> None:
    assert routes(settings) == set(TABLE)
    assert len(TABLE) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.method} {rule.path}")
def test_every_route_lets_in_whom_the_table_says(service: Service, rule: Rule) -> None:
    unknown = service.call(rule.method, url(rule), role=None)
    if rule.roles is None:
        assert error_code(unknown) not in ("DSV-802", "DSV-803")
        return
    assert error_of(unknown) == (401, "DSV-802")
    forged = {"Authorization": "Bearer dsv_" + "x" * 43}
    assert error_of(service.call(rule.method, url(rule), None, headers=forged)) == (401, "DSV-802")
    for role in Role:
        answer = service.call(rule.method, url(rule), role)
        if role in rule.roles:
            assert error_code(answer) not in ("DSV-802", "DSV-803"), role
        else:
            assert error_of(answer) == (403, "DSV-803"), role


def error_code(answer: object) -> str | None:
    text = getattr(answer, "text", "")
    found = re.search(r"DSV-\d{3}", text) if getattr(answer, "status_code", 200) >= 400 else None
    return found and found[0]


def test_a_route_that_is_not_in_the_table_is_nobodys(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TABLE, ("GET", "/v1/runs"))
    for role in (None, *Role):
        assert error_of(service.call("GET", "/v1/runs", role)) == (403, "DSV-803")


def test_the_docs_have_the_table() -> None:
    assert access.markdown() in DOCS.read_text(encoding="utf-8")


def test_who_may_not_see_clients_is_shown_none(service: Service) -> None:
    client = service.clients()[0]
    assert service.file(client).status_code == 202
    for role in access.STAFF:
        for path in ("/v1/requests", "/v1/requests/first-1"):
            assert (client in service.call("GET", path, role).text) is (role in access.SEE_CLIENTS)
