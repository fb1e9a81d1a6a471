"""Tokens, log-in links and sessions: once, until they expire, and only for what they are for."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
import pytest

from disavow.errors import NotAuthenticated
from disavow.server import tokens
from disavow.server.access import STAFF, Role
from disavow.server.authentication import COOKIE
from disavow.server.state import DATABASE, State
from tests.cli.process import disavow, error_code
from tests.server.service import RUN, Service, error_of


def test_a_token_expires_and_can_be_revoked(service: Service) -> None:
    now = time.time()
    expired = service.token(Role.VIEWER, expires_at=now - 1)
    assert error_of(call(service, expired)) == (401, "DSV-802")
    good = service.token(Role.VIEWER, expires_at=now + 60)
    assert call(service, good).status_code == 200
    used = tokens.listed(service.services.state)[-1]
    assert used.used_at is not None
    tokens.revoke(service.services.state, used.id, now=now)
    assert error_of(call(service, good)) == (401, "DSV-802")


def call(service: Service, token: str, path: str = "/v1/runs") -> httpx.Response:
    answer: httpx.Response = service.http.get(path, headers={"Authorization": f"Bearer {token}"})
    return answer


def test_a_token_is_good_for_its_own_runs_alone(service: Service) -> None:
    own, other = (service.token(Role.OPERATOR, runs=[name]) for name in (RUN, "another"))
    for path in ("/v1/runs/first", "/v1/requests?run=first", "/v1/runs/first/rounds"):
        assert call(service, own, path).status_code == 200
        assert error_of(call(service, other, path)) == (404, "DSV-804")
    assert call(service, other).json()["runs"] == []
    headers = {"Authorization": f"Bearer {other}"}
    body = {"run": RUN, "client": service.clients()[0]}
    assert error_of(service.http.post("/v1/requests", json=body, headers=headers)) == (404, "DSV-804")


def test_no_token_is_stored(service: Service) -> None:
    text = service.token(Role.VIEWER)
    link = tokens.new_link(service.services.state, now=time.time())
    for path in service.settings.state.iterdir():
        content = path.read_bytes()
        assert text.encode() not in content
        assert link.encode() not in content
    assert text not in service.call("GET", "/v1/tokens").text
    assert (service.settings.state / DATABASE).stat().st_mode & 0o077 == 0


def test_a_log_in_link_works_once(service: Service) -> None:
    link = tokens.new_link(service.services.state, now=time.time())
    first = service.http.get(f"/login?token={link}", follow_redirects=False)
    assert first.status_code == 303
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    document = service.http.get("/v1/whoami").json()
    assert set(document["roles"]) == STAFF
    service.http.cookies.clear()
    assert error_of(service.http.get(f"/login?token={link}")) == (401, "DSV-802")
    old = tokens.new_link(service.services.state, now=time.time() - 3600)
    assert error_of(service.http.get(f"/login?token={old}")) == (401, "DSV-802")


def test_a_session_ends(service: Service) -> None:
    state, now = service.services.state, time.time()
    text = tokens.new_session(state, name="somebody", roles=frozenset({Role.VIEWER}), now=now)
    headers = {"Cookie": f"{COOKIE}={text}", "Sec-Fetch-Site": "same-origin"}
    assert service.http.get("/v1/runs", headers=headers).status_code == 200
    with pytest.raises(NotAuthenticated):
        tokens.identify_session(state, text, now=now + tokens.SESSION_SECONDS + 1)
    assert service.http.post("/logout", headers=headers, follow_redirects=False).status_code == 303
    assert error_of(service.http.get("/v1/runs", headers=headers)) == (401, "DSV-802")


def test_a_browser_without_a_session_is_sent_to_log_in(service: Service) -> None:
    answer = service.http.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert error_of(service.http.get("/index.json", headers={"Accept": "text/html"})) == (401, "DSV-802")


def test_the_commands(tmp_path: Path) -> None:
    state = ["--state", str(tmp_path / "state"), "--json"]
    made = disavow("token", "create", "--name", "intake", "--role", "operator", "--days", "2", *state)
    document = json.loads(made.stdout)
    opened = State(tmp_path / "state")
    assert tokens.identify(opened, document["token"], now=time.time()).roles == {Role.OPERATOR}
    listed = disavow("token", "list", *state).stdout
    assert document["token"] not in listed
    assert json.loads(listed)["tokens"][0]["prefix"] == document["token"][:12]
    assert json.loads(disavow("token", "revoke", "1", *state).stdout)["revoked_at"] is not None
    with pytest.raises(NotAuthenticated):
        tokens.identify(opened, document["token"], now=time.time())
    assert "/login?token=" in disavow("token", "link", *state).stdout
    for wrong in (("revoke", "7"), ("create", "--name", "x", "--role", "client")):
        assert error_code(disavow("token", *wrong, *state)) == "DSV-101"
    opened.close()
