"""Records of a client that stays: filed where the task is not, looked up by the worker that has it."""

from __future__ import annotations

from typing import Any

import pytest

from disavow.errors import CannotRetrain
from disavow.federation import Federation
from disavow.ledger import fsck
from disavow.ledger.journal import CLIENT_LEAVES
from disavow.server.access import Role
from tests.server.service import RUN, Service, error_of


def keys_of(service: Service, client: str) -> list[str]:
    with Federation.open(service.run, keys=service.settings.keys) as federation:
        found = federation.record_keys_of(client)
    assert found is not None
    return list(dict.fromkeys(found))


def file(service: Service, client: str, records: list[str], **more: Any) -> Any:
    return service.call("POST", "/v1/requests", json={"run": RUN, "client": client, "records": records}, **more)


def shown(service: Service, number: int) -> dict[str, Any]:
    document: dict[str, Any] = service.call("GET", f"/v1/requests/{RUN}-{number}").json()
    return document


def test_records_are_erased_and_the_client_stays(service: Service) -> None:
    client = service.clients()[0]
    record, other, *_ = keys_of(service, client)
    body = {"run": RUN, "client": client, "records": [record]}
    foreseen = service.call("POST", "/v1/forecasts", json=body).json()
    assert foreseen["verdict"] == "deniable"
    filed = file(service, client, [record])
    assert (filed.status_code, filed.json()["records"], filed.json()["state"]) == (202, 1, "waiting")
    assert service.call("GET", f"/v1/requests/{RUN}-1/forecast").json()["digest"] == foreseen["digest"]
    service.work()
    assert (shown(service, 1)["state"], shown(service, 1)["remark"]) == ("answered", "")
    assert client in service.clients()
    assert record not in keys_of(service, client)
    proof = service.call("GET", f"/v1/requests/{RUN}-1/proof", Role.AUDITOR)
    assert service.call("POST", "/v1/verifications", Role.AUDITOR, content=proof.content).json()["valid"] is True
    again = file(service, client, [record])
    assert error_of(again) == (410, "DSV-305")
    assert record not in again.json()["error"]["message"]
    assert client not in again.text
    assert file(service, client, [other]).json()["number"] == 2


def test_a_record_that_nobody_has_is_refused_by_the_worker(service: Service) -> None:
    client = service.clients()[0]
    assert file(service, client, ["no such record"]).status_code == 202
    service.work()
    request = shown(service, 1)
    assert (request["state"], request["remark"]) == ("refused", "")
    [refusal] = [event for event in request["history"] if event["kind"] == "refused"]
    assert (refusal["actor"], refusal["reason"]) == ("the worker", "unknown record")
    assert not [finding for finding in fsck(service.run, keys=service.settings.keys) if finding.fault]


def test_all_records_of_a_client_are_for_another_request(service: Service) -> None:
    client = service.clients()[0]
    first, *rest = keys_of(service, client)
    assert file(service, client, [first]).json()["number"] == 1
    assert file(service, client, rest).json()["number"] == 2
    service.work()
    assert [shown(service, number)["state"] for number in (1, 2)] == ["answered", "refused"]


def test_the_same_records_twice_are_one_request(service: Service) -> None:
    client = service.clients()[0]
    one, two, *_ = keys_of(service, client)
    token = {"Authorization": f"Bearer {service.token(Role.OPERATOR)}", "Idempotency-Key": "letter"}

    def send(*records: str) -> Any:
        body = {"run": RUN, "client": client, "records": list(records)}
        return service.http.post("/v1/requests", json=body, headers=token)

    assert [send(one, two).json()["number"], send(two, one, one).json()["number"]] == [1, 1]
    assert [event["kind"] for event in shown(service, 1)["history"]] == ["received"]
    assert error_of(send(one)) == (422, "DSV-809")
    assert file(service, client, [two, one]).json()["number"] == 1  # without the key: asked again
    assert service.file(client).json()["number"] == 2  # all of it is another request


def test_records_that_cannot_be_looked_up_wait_and_keep_nobody_waiting(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from disavow import runs

    client, other, *_ = service.clients()
    record = keys_of(service, client)[0]
    file(service, client, [record])
    service.file(other)
    with monkeypatch.context() as patch:

        def gone(*_: object, **__: object) -> None:
            raise CannotRetrain("the data is gone")

        patch.setattr(runs, "find_again", gone)
        service.work()
        assert (shown(service, 1)["state"], shown(service, 2)["state"]) == ("waiting", "answered")
        assert shown(service, 1)["remark"] == "its records are yet to be looked up"
    service.file(service.clients()[-1])  # something happens, and the run is looked at again
    service.work()
    assert shown(service, 1)["state"] == "answered"


def test_a_request_whose_client_has_left_meanwhile_is_given_up(service: Service) -> None:
    client = service.clients()[0]
    file(service, client, keys_of(service, client)[:1])
    service.call("POST", f"/v1/requests/{RUN}-1/pause", json={"reason": "who is it?"})
    service.file(client)
    service.work()
    request = shown(service, 1)
    assert (request["state"], request["history"][-1]["reason"]) == ("cancelled", CLIENT_LEAVES)
    assert not [finding for finding in fsck(service.run, keys=service.settings.keys) if finding.fault]


def test_a_rollback_for_records_is_approved_as_it_was_forecast(service: Service) -> None:
    first, second = service.undoing()
    service.file(first)
    service.work()
    filed = file(service, second, keys_of(service, second)[:1]).json()
    service.work()
    path = f"/v1/requests/{filed['id']}"
    assert service.call("GET", path).json()["approval"] == "awaited"
    foreseen = service.call("GET", f"{path}/forecast", Role.APPROVER).json()
    assert foreseen["verdict"] == "rollback"
    approved = service.call("POST", f"{path}/approval", Role.APPROVER, json={"forecast": foreseen["digest"]})
    assert approved.status_code == 200, approved.text
    service.work()
    assert service.call("GET", path).json()["state"] == "answered"


@pytest.mark.parametrize("records", [[], [""], ["a"] * 1001, "a"])
def test_what_is_no_list_of_records_is_refused(service: Service, records: Any) -> None:
    assert error_of(file(service, service.clients()[0], records)) == (422, "DSV-801")
