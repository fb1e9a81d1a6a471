"""Log in at an OpenID Connect provider that the tests are."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.testclient import TestClient

from disavow.server.app import create_app
from disavow.server.settings import OidcSettings, ServerSettings
from tests.server.service import Service, error_of

CLIENT, SECRET = "disavow", "not so secret"


@dataclass
class Issuer:
    """A provider: whom it says has logged in, and what its token endpoint was asked."""

    url: str = ""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "1"}))
    claims: dict[str, Any] = field(default_factory=dict)
    token_requests: list[dict[str, list[str]]] = field(default_factory=list)
    signs_with: RSAKey | None = None

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/.well-known/openid-configuration":
            paths = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "jwks"}
            return {"issuer": self.url, **{name: f"{self.url}/{path}" for name, path in paths.items()}}
        if path == "/jwks":
            return {"keys": [self.key.as_dict(private=False)]}
        token = jwt.encode({"alg": "RS256", "kid": "1"}, self.claims, self.signs_with or self.key)
        return {"access_token": "x", "token_type": "Bearer", "id_token": token}


@contextmanager
def issuing() -> Iterator[Issuer]:
    standin = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def _send(self) -> None:
            body = json.dumps(standin.answer(urlsplit(self.path).path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._send()

        def do_POST(self) -> None:
            standin.token_requests.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self._send()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    standin.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield standin
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as found:
        yield found


@pytest.fixture
def service(settings: ServerSettings, issuer: Issuer) -> Iterator[Service]:
    own = replace(settings, oidc=OidcSettings(issuer.url, CLIENT, SECRET))
    app = create_app(own)
    with TestClient(app) as http:
        yield Service(app, http, own)


def begin(service: Service, issuer: Issuer, **claims: Any) -> str:
    """Go to the provider; the state that it sends back. What it will say of who logs in is set."""
    sent = service.http.get("/login/oidc", follow_redirects=False)
    assert sent.status_code == 303
    query = parse_qs(urlsplit(sent.headers["location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    state, nonce = str(query["state"][0]), query["nonce"][0]
    now = int(time.time())
    standard = {"iss": issuer.url, "aud": CLIENT, "sub": "7", "exp": now + 60, "iat": now, "nonce": nonce}
    issuer.claims = {**standard, "name": "Ada", "disavow_roles": ["approver", "admin"], **claims}
    return state


def finish(service: Service, state: str) -> Any:
    return service.http.get(f"/login/oidc/callback?code=abc&state={state}", follow_redirects=False)


def test_roles_come_from_the_claim(service: Service, issuer: Issuer) -> None:
    answer = finish(service, begin(service, issuer))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert service.http.get("/v1/whoami").json() == {"name": "Ada", "roles": ["approver"], "runs": None}
    [sent] = issuer.token_requests
    assert sent["code"] == ["abc"]
    assert len(sent["code_verifier"][0]) > 40


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1_700_000_000},
        {"nonce": "another"},
    ],
)
def test_an_answer_that_does_not_hold_is_refused(service: Service, issuer: Issuer, claims: dict[str, Any]) -> None:
    assert error_of(finish(service, begin(service, issuer, **claims))) == (401, "DSV-802")


def test_another_key_another_browser_and_a_second_time_are_refused(service: Service, issuer: Issuer) -> None:
    state = begin(service, issuer)
    issuer.signs_with = RSAKey.generate_key(2048, {"kid": "1"})
    assert error_of(finish(service, state)) == (401, "DSV-802")
    issuer.signs_with = None
    state = begin(service, issuer)
    service.http.cookies.clear()
    assert error_of(finish(service, state)) == (401, "DSV-802")
    state = begin(service, issuer)
    assert finish(service, state).status_code == 303
    assert error_of(finish(service, state)) == (401, "DSV-802")


def test_whoever_has_no_role_is_not_let_in(service: Service, issuer: Issuer) -> None:
    answer = finish(service, begin(service, issuer, disavow_roles=["client", "admin"]))
    assert error_of(answer) == (403, "DSV-803")


def test_a_service_without_a_provider_has_none(service: Service, issuer: Issuer) -> None:
    with TestClient(create_app(replace(service.settings, oidc=None))) as http:
        assert error_of(http.get("/login/oidc")) == (404, "DSV-804")
