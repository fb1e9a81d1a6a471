"""What surrounds every route: headers, host, cross-site calls, sizes, rates; and that no id is left anywhere."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from disavow.ledger.id_search import files_with
from disavow.server import tokens
from disavow.server.access import Role
from disavow.server.app import create_app
from disavow.server.authentication import COOKIE
from disavow.server.settings import ServerSettings
from tests.server.receiver import receiving, until
from tests.server.service import RUN, Service, error_of


@pytest.mark.parametrize("path", ["/", "/healthz", "/nowhere", "/v1/runs", "/login", "/static/htmx.min.js"])
def test_every_answer_has_strict_headers(service: Service, path: str) -> None:
    for role in (None, Role.VIEWER):
        headers = service.call("GET", path, role).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_only_its_own_host_names_are_answered_to(service: Service) -> None:
    for host in ("evil.example", "testserver.evil.example", "", "testserver:8000:1"):
        assert error_of(service.http.get("/healthz", headers={"Host": host})) == (421, "DSV-806")
    assert service.http.get("/healthz", headers={"Host": "TESTSERVER:8000"}).status_code == 200


def session(service: Service) -> dict[str, str]:
    text = tokens.new_session(
        service.services.state, name="somebody", roles=frozenset({Role.OPERATOR}), now=time.time()
    )
    return {"Cookie": f"{COOKIE}={text}"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({"Origin": "http://testserver"}, 202),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, 202),  # a form of a page with no-referrer
        ({"Sec-Fetch-Site": "cross-site", "Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"}, 403),
        ({}, 403),
    ],
)
def test_no_other_site_can_use_somebodys_session(service: Service, headers: dict[str, str], status: int) -> None:
    body = {"run": RUN, "client": service.clients()[0]}
    answer = service.http.post("/v1/requests", json=body, headers={**session(service), **headers})
    assert answer.status_code == status
    if status == 403:
        assert error_of(answer) == (403, "DSV-805")
        assert service.call("GET", "/v1/requests").json()["requests"] == []


def test_bodies_and_rates_are_limited(settings: ServerSettings) -> None:
    small = replace(settings, largest_body=1000, requests_per_minute=20)
    app = create_app(small)
    with TestClient(app, raise_server_exceptions=False) as http:
        refused = error_of(http.post("/v1/verifications", content=b"x" * 1001))
        assert refused == (413, "DSV-807")
        chunks = (b"x" * 500 for _ in range(4))  # without a Content-Length
        headers = {"Authorization": f"Bearer {Service(app, http, small).token(Role.AUDITOR)}"}
        assert error_of(http.post("/v1/verifications", content=chunks, headers=headers)) == (413, "DSV-807")
        statuses = [http.get("/healthz").status_code for _ in range(25)]
        assert statuses[-1] == 429
        assert error_of(http.get("/healthz")) == (429, "DSV-808")


def test_failed_log_ins_are_counted_and_slowed_down(settings: ServerSettings) -> None:
    with TestClient(create_app(replace(settings, failures_per_minute=3))) as http:
        forged = {"Authorization": "Bearer dsv_forged"}
        codes = [error_of(http.get("/v1/runs", headers=forged))[1] for _ in range(6)]
    assert codes[0] == "DSV-802"
    assert codes[-1] == "DSV-808"


@pytest.mark.parametrize(
    ("method", "path", "more", "expected"),
    [
        ("GET", "/nowhere", {}, (404, "DSV-804")),
        ("PATCH", "/v1/runs", {}, (405, "DSV-804")),
        ("GET", "/v1/runs/none", {}, (404, "DSV-804")),
        ("GET", "/v1/runs/..%2Fkeys", {}, (404, "DSV-804")),
        ("GET", "/v1/requests/first-99", {}, (404, "DSV-311")),
        ("GET", "/v1/requests/nonsense", {}, (404, "DSV-804")),
        ("GET", "/v1/requests?most=0", {}, (422, "DSV-801")),
        ("GET", "/v1/requests?before=2&most=5", {}, (200, "")),
        ("POST", "/v1/requests", {"content": b"{"}, (422, "DSV-801")),
        ("POST", "/v1/requests", {"json": {"run": RUN, "client": "a", "more": 1}}, (422, "DSV-801")),
        ("POST", "/v1/requests", {"content": b'{"run": "first", "client": "\\ud800"}'}, (422, "DSV-801")),
        ("POST", "/v1/requests", {"json": {"run": RUN}}, (422, "DSV-801")),
        ("POST", "/v1/requests", {"json": {"run": "none", "client": "a"}}, (404, "DSV-804")),
        ("POST", "/v1/verifications", {"content": b""}, (422, "DSV-801")),
    ],
)
def test_bad_input_has_one_body(
    service: Service, method: str, path: str, more: dict[str, Any], expected: tuple[int, str]
) -> None:
    answer = service.call(method, path, **more)
    assert (answer.status_code, "") == expected if expected[1] == "" else error_of(answer) == expected


def test_a_hostile_proof_is_only_found_not_to_hold(service: Service) -> None:
    for content in (b"nonsense", b"[" * 100_000, b"\x00" * 1000, b'{"payload": "' + b"A" * 10_000 + b'"}'):
        document = service.call("POST", "/v1/verifications", content=content).json()
        assert document["valid"] is False


def test_a_run_that_is_gone_or_damaged_does_not_take_the_service_with_it(service: Service) -> None:
    assert service.call("GET", "/readyz", None).status_code == 200
    (service.run / "ledger.sqlite3").write_bytes(b"no database" * 1000)
    service.services.runs.drop(RUN)
    assert service.call("GET", "/readyz", None).status_code == 503
    assert service.call("GET", "/healthz", None).status_code == 200
    assert error_of(service.call("GET", f"/v1/runs/{RUN}")) == (404, "DSV-203")
    assert "disavow_readable" in service.call("GET", "/metrics").text


def test_no_id_is_left_in_any_file_or_log(service: Service, caplog: pytest.LogCaptureFixture, folder: Path) -> None:
    caplog.set_level(logging.DEBUG)
    first, second = service.undoing()
    shown = []
    with receiving() as receiver:
        service.call("POST", "/v1/webhooks", json={"url": receiver.url})
        for client in (first, second):
            service.call("POST", "/v1/forecasts", json={"run": RUN, "client": client})
            filed = service.file(client, headers={"Idempotency-Key": "k" + client[-1]}).json()
            service.work()
            if client == second:
                path = f"/v1/requests/{filed['id']}"
                digest = service.call("GET", f"{path}/forecast", Role.APPROVER).json()["digest"]
                service.call("POST", f"{path}/approval", Role.APPROVER, json={"forecast": digest})
                service.work()
            shown.append(service.call("GET", f"/v1/requests/{filed['id']}").json())
        until(lambda: len(receiver.got) >= 4)
    assert [each["state"] for each in shown] == ["answered", "answered"]
    metrics = service.call("GET", "/metrics").text
    assert 'disavow_rollbacks{run="first"} 1.0' in metrics
    openings = folder / "state" / "openings"
    assert openings.stat().st_mode & 0o777 == 0o700
    for client in (first, second):
        assert client not in metrics
        assert client not in caplog.text
        for place in ("runs", "keys"):
            assert files_with(folder / place, client) == []
        left = {path.parent.name for path in files_with(folder / "state", client)}
        assert left == {"openings"}  # which are the leavers' own, until they are handed over
        assert all(client.encode() not in body for _, body in receiver.got)
    for each in shown:
        path = f"/v1/requests/{each['id']}/opening"
        handed_over = service.call("GET", path).json()
        assert handed_over["client"] in (first, second)
        assert service.call("GET", path).json() == handed_over  # a broken connection loses nothing
        assert error_of(service.call("DELETE", path, Role.APPROVER)) == (403, "DSV-803")
        assert service.call("DELETE", path).status_code == 204
        assert error_of(service.call("GET", path)) == (404, "DSV-804")
        assert error_of(service.call("DELETE", path)) == (404, "DSV-804")
    assert [files_with(folder, client) for client in (first, second)] == [[], []]


def test_the_access_log_has_routes_and_not_addresses(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "disavow.access")
    service.call("GET", "/v1/runs/somebody-secret")
    service.call("GET", "/somebody-secret")
    service.call("GET", "/login?token=somebody-secret", None)
    assert "somebody-secret" not in caplog.text
    assert "GET /v1/runs/{run} 404" in caplog.text
