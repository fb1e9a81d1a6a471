"""A request is filed once, however often and however many at once, and answered, approved or refused."""

from __future__ import annotations

import io
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from disavow.federation import Federation
from disavow.server.access import Role
from tests.server.service import RUN, Service, error_of


def state(service: Service, request: str = "first-1") -> str:
    found: str = service.call("GET", f"/v1/requests/{request}").json()["state"]
    return found


def test_filed_answered_and_proved(service: Service) -> None:
    client = service.clients()[0]
    filed = service.file(client)
    assert filed.status_code == 202
    assert filed.headers["location"] == "/v1/requests/first-1"
    assert filed.json()["state"] == "waiting"
    assert error_of(service.call("GET", "/v1/requests/first-1/proof", Role.AUDITOR)) == (404, "DSV-804")
    service.work()
    shown = service.call("GET", "/v1/requests/first-1").json()
    assert (shown["state"], shown["verdict"], shown["client"]) == ("answered", "deniable", None)
    proof = service.call("GET", "/v1/requests/first-1/proof", Role.AUDITOR)
    verified = service.call("POST", "/v1/verifications", Role.AUDITOR, content=proof.content).json()
    assert verified["valid"] is True
    evidence = service.call("GET", "/v1/requests/first-1/evidence", Role.AUDITOR)
    with zipfile.ZipFile(io.BytesIO(evidence.content)) as archive:
        assert {"evidence.html", "proof.json", "request.json", "keys.json", "checkpoint.txt"} < set(
            archive.namelist()
        )
        assert archive.read("proof.json") == proof.content
    assert client.encode() not in evidence.content + proof.content


def test_the_same_key_gives_the_same_answer_and_another_request_is_refused(service: Service) -> None:
    first, second, *_ = service.clients()
    key = {"Idempotency-Key": "a letter of Monday"}
    token = {"Authorization": f"Bearer {service.token(Role.OPERATOR)}", **key}
    body = {"run": RUN, "client": first}
    numbers = {service.http.post("/v1/requests", json=body, headers=token).json()["number"] for _ in range(3)}
    assert numbers == {1}
    history = service.call("GET", "/v1/requests/first-1").json()["history"]
    assert [event["kind"] for event in history] == ["received"]
    another = service.http.post("/v1/requests", json={**body, "client": second}, headers=token)
    assert error_of(another) == (422, "DSV-809")
    assert service.file(second, headers=key).json()["number"] == 2  # another caller's key is another key
    assert service.file(first).json()["number"] == 1  # asked again: the same request, and it is noted
    assert [e["kind"] for e in service.call("GET", "/v1/requests/first-1").json()["history"]][-1] == "duplicate"


def test_many_at_once_lose_nothing_and_double_nothing(service: Service) -> None:
    clients = service.clients()
    token = {"Authorization": f"Bearer {service.token(Role.OPERATOR)}"}

    def file(client: str) -> int:
        body = {"run": RUN, "client": client}
        answer = service.http.post("/v1/requests", json=body, headers={**token, "Idempotency-Key": client})
        assert answer.status_code == 202, answer.text
        number: int = answer.json()["number"]
        return number

    with ThreadPoolExecutor(16) as pool:
        numbers = list(pool.map(file, clients * 6))
    assert sorted(set(numbers)) == list(range(1, len(clients) + 1))
    assert numbers == numbers[: len(clients)] * 6


def test_one_who_is_unknown_does_not_keep_others_from_filing(service: Service) -> None:
    known = service.clients()[0]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(service.file, ["nobody", known, "no one"]))
    assert [answer.status_code for answer in answers] == [404, 202, 404]
    assert error_of(answers[0])[1] == "DSV-301"
    assert "nobody" not in answers[0].text
    assert known not in answers[0].text  # no other id is suggested


def test_whoever_was_forgotten_is_told_so(service: Service) -> None:
    client = service.clients()[0]
    service.file(client)
    service.work()
    answer = service.file(client)
    assert error_of(answer) == (410, "DSV-303")
    assert client not in answer.text


def rollback(service: Service) -> tuple[str, dict[str, Any]]:
    """A request that waits for an approval, and its forecast."""
    first, second = service.undoing()
    service.file(first)
    service.work()
    filed = service.file(second).json()
    service.work()
    assert state(service, filed["id"]) == "waiting"
    forecast = service.call("GET", f"/v1/requests/{filed['id']}/forecast", Role.APPROVER).json()
    assert forecast["verdict"] == "rollback"
    return filed["id"], forecast


def test_a_rollback_waits_for_an_approval_of_its_forecast(service: Service) -> None:
    request, forecast = rollback(service)
    path = f"/v1/requests/{request}/approval"
    stale = service.call("POST", path, Role.APPROVER, json={"forecast": "0" * 64})
    assert error_of(stale) == (409, "DSV-315")
    assert stale.json()["error"]["forecast"]["digest"] == forecast["digest"]
    approved = service.call("POST", path, Role.APPROVER, json={"forecast": forecast["digest"], "reason": "checked"})
    assert approved.json()["approval"] == "approved"
    service.work()
    shown = service.call("GET", f"/v1/requests/{request}").json()
    assert (shown["state"], shown["verdict"], shown["cost"]["rounds"]) == ("answered", "rollback", 2)
    progress = service.call("GET", f"/v1/runs/{RUN}").json()["progress"]
    assert (progress["phase"], progress["done"]) == ("idle", 2)


def test_refused_paused_extended_cancelled(service: Service) -> None:
    request, _ = rollback(service)
    path = f"/v1/requests/{request}"
    why: dict[str, Any] = {"json": {"reason": "is it them?"}}
    assert service.call("POST", f"{path}/pause", **why).json()["state"] == "paused"
    assert error_of(service.call("POST", f"{path}/pause", **why)) == (409, "DSV-312")
    assert service.call("POST", f"{path}/resumption", **why).json()["state"] == "waiting"
    before = service.call("GET", path).json()["due"]
    assert service.call("POST", f"{path}/extension", **why).json()["extended_until"] > before
    assert error_of(service.call("POST", f"{path}/extension", **why)) == (422, "DSV-313")
    assert service.call("POST", f"{path}/denial", Role.APPROVER, **why).json()["state"] == "refused"
    service.work()
    assert state(service, request) == "refused"
    again = service.file(service.undoing()[1]).json()
    cancelled = service.call("POST", f"/v1/requests/{again['id']}/cancellation")
    assert cancelled.json()["state"] == "cancelled"
    assert error_of(service.call("POST", f"{path}/cancellation")) == (409, "DSV-312")


def test_a_reason_that_names_a_client_is_refused(service: Service) -> None:
    first, second, *_ = service.clients()
    service.file(first)
    answer = service.call("POST", "/v1/requests/first-1/pause", json={"reason": f"{second} wrote the letter"})
    assert error_of(answer) == (422, "DSV-108")


def test_lists_are_paged_and_filtered(service: Service) -> None:
    clients = service.clients()
    for client in clients[:5]:
        service.file(client)
    service.call("POST", "/v1/requests/first-2/pause", json={"reason": "in doubt"})

    def numbers(**query: Any) -> tuple[list[int], int | None]:
        document = service.call("GET", "/v1/requests", params={"run": RUN, **query}).json()
        return [each["number"] for each in document["requests"]], document["before"]

    assert numbers(most=2) == ([5, 4], 4)
    assert numbers(most=2, before=4) == ([3, 2], 2)
    assert numbers(most=2, before=2) == ([1], None)
    assert numbers(state="paused") == ([2], None)
    assert numbers(state=["paused", "waiting"]) == ([5, 4, 3, 2, 1], None)
    found = service.call("POST", "/v1/requests/search", json={"run": RUN, "client": clients[2]}).json()
    assert found["number"] == 3
    overview = service.call("GET", "/index.json").json()["runs"][0]
    assert (overview["requests"]["waiting"], overview["requests"]["paused"]) == (4, 1)
    assert 28 < overview["days_to_deadline"] < 32


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/v1/runs/first", {"policy", "clients", "progress", "models"}),
        ("/v1/runs/first/rounds", {"rounds"}),
        ("/v1/runs/first/account", {"claims", "delta"}),
        ("/v1/runs/first/releases", {"releases"}),
        ("/v1/runs/first/departures", {"departures", "next"}),
        ("/v1/runs/first/log/checkpoint", {"size", "root", "checkpoint"}),
    ],
)
def test_what_a_run_shows(service: Service, path: str, keys: set[str]) -> None:
    document = service.call("GET", path).json()
    assert keys <= document.keys()
    assert json.dumps(document, allow_nan=False)
    assert str(service.run) not in json.dumps(document)


def test_the_log_is_proved_to_grow(service: Service) -> None:
    from disavow.proof.merkle import root_by_path

    old = service.call("GET", "/v1/runs/first/log/checkpoint").json()
    service.file(service.clients()[0])
    service.work()
    new = service.call("GET", "/v1/runs/first/log/checkpoint").json()
    assert new["size"] > old["size"]
    document = service.call("GET", "/v1/runs/first/log/consistency", params={"old": old["size"]}).json()
    assert document["new"] == new["size"]
    assert document["proof"]
    leaf = service.call("GET", "/v1/runs/first/log/inclusion", params={"leaf": 1}).json()
    path = [bytes.fromhex(each) for each in leaf["path"]]
    assert root_by_path(bytes.fromhex(leaf["hash"]), 1, leaf["size"], path).hex() == new["root"]
    for query in ({"old": 10**6}, {"old": 3, "new": 2}):
        answer = service.call("GET", "/v1/runs/first/log/consistency", params=query)
        assert error_of(answer) == (422, "DSV-801")


def test_the_forecast_of_somebody_who_has_not_asked(service: Service) -> None:
    body = {"run": RUN, "client": service.clients()[0]}
    assert service.call("POST", "/v1/forecasts", json=body).json()["verdict"] == "deniable"
    with Federation.open(service.run, keys=service.settings.keys) as federation:
        assert federation.requests() == ()


def test_a_forecast_needs_no_torch(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from disavow import runs

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the service loaded the data")

    monkeypatch.setattr(runs, "find_again", refuse)
    first, second = service.undoing()
    service.file(first)
    service.work()
    document = service.call("POST", "/v1/forecasts", json={"run": RUN, "client": second}).json()
    assert document["verdict"] == "rollback"
