"""The service in this process: its application, callers with any role, a worker that works when told to."""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI
from starlette.testclient import TestClient

from disavow.federation import Federation
from disavow.flower.node_keys import NodeSigner, fingerprint
from disavow.server import tokens
from disavow.server.access import Role
from disavow.server.authentication import SCHEME, signed_text
from disavow.server.services import Services
from disavow.server.settings import ServerSettings
from disavow.server.worker import Worker

HOST = "testserver"
RUN = "first"


@dataclass(frozen=True)
class Service:
    """A running application, with callers."""

    app: FastAPI
    http: TestClient
    settings: ServerSettings

    @property
    def services(self) -> Services:
        found: Services = self.app.state.services
        return found

    @property
    def run(self) -> Path:
        return self.settings.runs / RUN

    def token(self, *roles: Role, **more: Any) -> str:
        """Make a token with these roles."""
        options = {"name": "tests", "runs": None, "expires_at": None, "now": time.time(), **more}
        text, _ = tokens.create(self.services.state, roles=frozenset(roles), **options)
        return text

    def call(
        self, method: str, path: str, role: Role | None = Role.OPERATOR, *, headers: Any = None, **more: Any
    ) -> httpx.Response:
        """Call a route as somebody with a role; None for nobody."""
        sent = dict(headers or {})
        if role is not None:
            sent["Authorization"] = f"Bearer {self.token(role)}"
        answer: httpx.Response = self.http.request(method, path, headers=sent, follow_redirects=False, **more)
        return answer

    def file(self, client: str, **more: Any) -> httpx.Response:
        """File a request as an operator."""
        return self.call("POST", "/v1/requests", json={"run": RUN, "client": client}, **more)

    def work(self) -> None:
        """Let a worker do what there is to do."""
        worker = Worker(self.settings, self.services.state)
        for _ in range(20):
            if not worker.step():
                break

    def clients(self) -> list[str]:
        with Federation.open(self.run, keys=self.settings.keys) as federation:
            return list(federation.clients())

    def undoing(self) -> tuple[str, str]:
        """Two clients of one cluster: the first can leave, and then the second takes a rollback."""
        with Federation.open(self.run, keys=self.settings.keys) as federation:
            groups = [sorted(group) for group in federation.ledger.membership(1)]
        first, second, *_ = min(groups, key=len)
        return first, second


@dataclass(frozen=True)
class Node:
    """A client that signs its calls with its node key."""

    signer: NodeSigner

    @classmethod
    def new(cls) -> Node:
        return cls(NodeSigner(ec.generate_private_key(ec.SECP384R1())))

    @property
    def id(self) -> str:
        found = fingerprint(self.signer.public_key)
        assert found is not None
        return found

    def headers(
        self, method: str, path: str, body: bytes = b"", *, created: int | None = None, nonce: str | None = None
    ) -> dict[str, str]:
        """Sign a call."""
        at, nonce = str(int(time.time()) if created is None else created), nonce or secrets.token_hex(8)
        text = signed_text(method, path, body, host=HOST, created=at, nonce=nonce)
        key, signed = (base64.b64encode(each).decode() for each in (self.signer.public_key, self.signer.sign(text)))
        return {
            "Authorization": f'{SCHEME} key="{key}", created="{at}", nonce="{nonce}", signature="{signed}"',
            "Content-Type": "application/json",
        }


def error_of(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal; the body has nothing but what every refusal has."""
    document = response.json()
    assert {"code", "message"} <= document["error"].keys()
    return response.status_code, document["error"]["code"]
