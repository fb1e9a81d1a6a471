"""Whoever wants to hear of requests hears of each change once, signed; what is not taken is tried again."""

from __future__ import annotations

import hashlib
import hmac
import json
import time

import pytest

from disavow.server import deliveries
from disavow.server.access import Role
from disavow.server.deliveries import Sender, wait_after
from tests.server.receiver import Receiver, receiving, until
from tests.server.service import Service, error_of


def add(service: Service, receiver: Receiver, *events: str) -> str:
    body = {"url": receiver.url, "events": list(events) or ["*"]}
    answer = service.call("POST", "/v1/webhooks", json=body)
    assert answer.status_code == 201
    secret: str = answer.json()["secret"]
    return secret


def events(receiver: Receiver) -> list[str]:
    return [json.loads(body)["event"] for _, body in receiver.got]


def test_every_change_is_told_once_and_signed(service: Service) -> None:
    client = service.clients()[0]
    with receiving() as receiver:
        secret = add(service, receiver)
        service.file(client)
        until(lambda: receiver.got)
        service.work()
        until(lambda: "request.answered" in events(receiver))
        time.sleep(0.3)
        steps = ("request.rebuilding", "request.deleting")  # seen or not, as it comes
        sent = [event for event in events(receiver) if event not in steps]
        assert sent == ["request.received", "request.answered"]
    for headers, body in receiver.got:
        at, given = (part.partition("=")[2] for part in headers["disavow-signature"].split(","))
        assert hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest() == given
        assert client.encode() not in body
    assert secret not in service.call("GET", "/v1/webhooks").text


def test_only_what_was_asked_for(service: Service) -> None:
    with receiving() as receiver:
        add(service, receiver, "request.cancelled")
        service.file(service.clients()[0])
        service.call("POST", "/v1/requests/first-1/cancellation")
        until(lambda: receiver.got)
        assert events(receiver) == ["request.cancelled"]


def test_what_is_refused_is_tried_again_and_given_up_in_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "wait_after", lambda attempts: 0.0)
    monkeypatch.setattr(deliveries, "MOST_ATTEMPTS", 4)
    with receiving() as receiver:
        add(service, receiver, "request.received")
        receiver.statuses = [500, 302]
        service.file(service.clients()[0])
        until(lambda: len(receiver.got) == 3)
        assert len({headers["disavow-delivery"] for headers, _ in receiver.got}) == 1
        receiver.statuses = [500] * 4
        service.file(service.clients()[1])

        def dead() -> list[dict[str, object]]:
            found: list[dict[str, object]] = service.call("GET", "/v1/deliveries?dead=true").json()["deliveries"]
            return found

        until(dead)
        [letter] = dead()
        assert (letter["attempts"], letter["failure"]) == (4, "status 500")
        assert service.call("POST", f"/v1/deliveries/{letter['id']}/retry").status_code == 202
        until(lambda: not dead())
        assert error_of(service.call("POST", f"/v1/deliveries/{letter['id']}/retry")) == (404, "DSV-804")


def test_waits_grow() -> None:
    waits = [wait_after(attempts) for attempts in range(1, 20)]
    assert waits[0] < 10 < waits[4] < 10_000
    assert max(waits) <= 6 * 3600 * 1.2


def test_a_removed_webhook_hears_nothing(service: Service) -> None:
    with receiving() as receiver:
        add(service, receiver)
        assert service.call("DELETE", "/v1/webhooks/1").status_code == 204
        assert error_of(service.call("DELETE", "/v1/webhooks/1")) == (404, "DSV-804")
        service.file(service.clients()[0])
        time.sleep(0.3)
        assert receiver.got == []


@pytest.mark.parametrize(
    "url", ["ftp://a.example/", "http://user:pw@a.example/", "nonsense", "http://", "http://[/"]
)
def test_a_url_that_cannot_be_called_is_refused(service: Service, url: str) -> None:
    answer = service.call("POST", "/v1/webhooks", json={"url": url})
    assert error_of(answer) == (422, "DSV-801")


def test_private_addresses_are_not_called_unless_allowed(service: Service) -> None:
    from dataclasses import replace

    from disavow.server.webhooks import enqueue_to

    state = service.services.state
    with receiving() as receiver:
        # due in an hour: the service's own thread leaves it alone
        with state.writing() as connection:
            enqueue_to(connection, receiver.url, "test", "{}", now=time.time() + 3600)
        strict = Sender(state, service.services.signer, replace(service.settings, private_callbacks=False))
        strict.send_due(time.time() + 7200)
        assert receiver.got == []
        with pytest.raises(OSError, match="private"):
            deliveries.post(receiver.url, b"", {}, private=False)
    assert service.call("GET", "/v1/deliveries", Role.AUDITOR).json()["deliveries"][0]["outcome"] == "waiting"
