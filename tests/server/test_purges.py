"""Where a run promises a purge, the worker does it in time, or when somebody asks for it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from disavow.federation import Federation
from disavow.proof.envelope import Envelope
from disavow.proof.statement import Predicate, decode_statement
from disavow.rounds.options import now
from disavow.server.access import Role
from disavow.server.settings import ServerSettings
from tests.server.receiver import receiving, until
from tests.server.service import RUN, Service, error_of


def promised(settings: ServerSettings) -> ServerSettings:
    """Have the run of a service promise to purge by the deadline."""
    path = settings.runs / RUN / "config.toml"
    text = path.read_text()
    changed = text.replace('purge = "never"', 'purge = "deadline"')
    assert changed != text
    path.write_text(changed)
    return settings


@pytest.fixture
def settings(settings: ServerSettings) -> ServerSettings:
    """The same service, of a run that promises to purge by the deadline."""
    return promised(settings)


def figure(service: Service, name: str) -> float:
    [line] = [each for each in service.call("GET", "/metrics").text.splitlines() if each.startswith(f"{name}{{")]
    return float(line.rpartition(" ")[2])


def purged_in(proof: bytes) -> int | None:
    predicate = decode_statement(Envelope.decode(proof).statement).predicate
    assert isinstance(predicate, Predicate)
    return predicate.purge


def test_an_interim_answer_is_due_until_the_worker_has_purged_it(service: Service) -> None:
    client = service.clients()[0]
    service.file(client)
    service.work()
    path = f"/v1/requests/{RUN}-1"
    document = service.call("GET", path).json()
    assert (document["state"], document["verdict"], document["purged_at"]) == ("answered", "deniable", None)
    assert figure(service, "disavow_unpurged_requests") == 1
    assert 28 < figure(service, "disavow_deadline_days") < 32
    assert service.call("GET", f"/v1/runs/{RUN}").json()["unpurged"] == 1
    service.file(service.clients()[1])  # due after the first, though that is answered
    due = service.call("GET", "/index.json").json()["due"]
    assert [(each["number"], each["to_purge"]) for each in due] == [(1, True), (2, False)]
    assert "to be purged" in service.call("GET", "/").text


def test_the_worker_purges_when_the_deadline_is_near(service: Service) -> None:
    client = service.clients()[0]
    with receiving() as receiver:
        service.call("POST", "/v1/webhooks", json={"url": receiver.url, "events": ["request.purged"]})
        late = now() - timedelta(days=40)
        with Federation.open(service.run, keys=service.settings.keys, clock=lambda: late) as federation:
            federation.place([client])
        service.work()
        document = service.call("GET", f"/v1/requests/{RUN}-1").json()
        assert document["state"] == "answered"
        assert document["purged_at"] is not None
        until(lambda: receiver.got)
        service.call("POST", f"/v1/requests/{RUN}-1/cancellation")  # whatever happens after, it is told once
        service.file(service.clients()[-1])
        until(lambda: service.services.state.row("SELECT 1 FROM watched") is not None)
    [(_, body)] = receiver.got
    assert json.loads(body)["event"] == "request.purged"
    assert json.loads(body)["request"]["purged_at"] == document["purged_at"]
    assert figure(service, "disavow_unpurged_requests") == 0
    proof = service.call("GET", f"/v1/requests/{RUN}-1/proof", Role.AUDITOR).content
    assert purged_in(proof) is not None
    assert service.call("POST", "/v1/verifications", Role.AUDITOR, content=proof).json()["valid"] is True


def test_an_operator_has_it_purged_as_forecast(service: Service) -> None:
    path, client = f"/v1/runs/{RUN}/purge", service.clients()[0]
    nothing = service.call("POST", path, json={"forecast": "0" * 64})
    assert error_of(nothing) == (409, "DSV-331")
    service.file(client)
    service.work()
    foreseen = service.call("GET", path, Role.VIEWER).json()
    assert foreseen["forecast"]["requests"] == [1]
    stale = service.call("POST", path, json={"forecast": "0" * 64})
    assert error_of(stale) == (409, "DSV-315")
    assert stale.json()["error"]["forecast"]["digest"] == foreseen["digest"]
    accepted = service.call("POST", path, json={"forecast": foreseen["digest"]})
    assert (accepted.status_code, accepted.json()["asked_at"] is None) == (202, False)
    service.work()
    assert service.call("GET", f"/v1/requests/{RUN}-1").json()["purged_at"] is not None
    after = service.call("GET", path).json()
    assert (after["unpurged"], after["asked_at"], after["progress"]["phase"]) == (0, None, "idle")


def test_a_purge_that_has_become_another_one_is_not_done(service: Service) -> None:
    path, (first, second, *_) = f"/v1/runs/{RUN}/purge", service.clients()
    service.file(first)
    service.work()
    digest = service.call("GET", path).json()["digest"]
    assert service.call("POST", path, json={"forecast": digest}).status_code == 202
    service.file(second)
    foreseen = service.call("GET", f"/v1/requests/{RUN}-2/forecast").json()["digest"]
    approved = service.call("POST", f"/v1/requests/{RUN}-2/approval", Role.APPROVER, json={"forecast": foreseen})
    assert approved.status_code == 200
    assert service.call("GET", path).json()["digest"] != digest
    service.work()
    document = service.call("GET", path).json()
    assert (document["unpurged"], document["asked_at"]) == (2, None)
    assert service.call("GET", f"/v1/requests/{RUN}-2").json()["state"] == "answered"
