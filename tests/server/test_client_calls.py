"""A client's own calls, signed with its node key: its own request alone, each call once."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from disavow.ledger import Ledger
from disavow.server.access import Role
from tests.server.service import RUN, Node, Service, error_of

BODY = json.dumps({"run": RUN}).encode()


@pytest.fixture
def node(service: Service) -> Node:
    """A client of the run that is known by its key."""
    made = Node.new()
    with Ledger.open(service.run, shared=True, keys=service.settings.keys) as ledger:
        ledger.register([made.id])
    return made


def post(service: Service, node: Node, path: str, body: bytes = BODY, **more: Any) -> httpx.Response:
    answer: httpx.Response = service.http.post(path, content=body, headers=node.headers("POST", path, body, **more))
    return answer


def get(service: Service, node: Node, path: str) -> httpx.Response:
    answer: httpx.Response = service.http.get(path, headers=node.headers("GET", path))
    return answer


def test_a_client_asks_for_itself_and_sees_its_own_request_alone(service: Service, node: Node) -> None:
    service.file(service.clients()[-1])
    filed = post(service, node, "/v1/requests")
    assert filed.status_code == 202
    assert filed.json()["number"] == 2
    assert node.id not in filed.text
    assert get(service, node, "/v1/requests/first-2").json()["state"] == "waiting"
    assert error_of(get(service, node, "/v1/requests/first-1")) == (404, "DSV-804")
    assert error_of(get(service, node, "/v1/requests")) == (403, "DSV-803")
    cancelled = post(service, node, "/v1/requests/first-2/cancellation", b"")
    assert cancelled.json()["state"] == "cancelled"


def test_a_client_may_not_ask_for_another(service: Service, node: Node) -> None:
    body = json.dumps({"run": RUN, "client": service.clients()[-1]}).encode()
    assert error_of(post(service, node, "/v1/requests", body)) == (403, "DSV-803")
    assert error_of(post(service, Node.new(), "/v1/requests")) == (404, "DSV-301")


def test_a_signed_call_counts_once_and_as_it_was_signed(service: Service, node: Node) -> None:
    headers = node.headers("POST", "/v1/requests", BODY)
    assert service.http.post("/v1/requests", content=BODY, headers=headers).status_code == 202
    assert error_of(service.http.post("/v1/requests", content=BODY, headers=headers)) == (401, "DSV-802")
    for path, body, signed_path, signed_body in (
        ("/v1/requests", BODY + b" ", "/v1/requests", BODY),
        ("/v1/requests/first-1/cancellation", b"", "/v1/requests", b""),
    ):
        forged = node.headers("POST", signed_path, signed_body)
        assert error_of(service.http.post(path, content=body, headers=forged)) == (401, "DSV-802")
    old = post(service, node, "/v1/requests", created=1_700_000_000)
    assert error_of(old) == (401, "DSV-802")
    for broken in ("Disavow-Node", 'Disavow-Node key="", created="1", nonce="1", signature="!"', "Basic YTpi"):
        answer = service.http.post("/v1/requests", content=BODY, headers={"Authorization": broken})
        assert error_of(answer) == (401, "DSV-802")


def test_no_token_can_have_the_role_of_a_client_by_the_command_line(service: Service) -> None:
    from disavow.errors import ConfigError
    from disavow.server.tokens import roles_of

    for names in (["client"], ["admin"], []):
        with pytest.raises(ConfigError):
            roles_of(names)
    assert roles_of(["viewer", "operator"]) == {Role.VIEWER, Role.OPERATOR}
