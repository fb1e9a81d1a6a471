"""OpenDSR as its specification has it: discovery, requests, signed receipts, status, cancellation, callbacks."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from disavow.server.access import Role
from tests.server.receiver import receiving, until
from tests.server.service import RUN, Service

ID = "a7551968-d5d6-44b2-9831-815ac9017798"


def body(client: str, **more: Any) -> dict[str, Any]:
    return {
        "regulation": "gdpr",
        "subject_request_id": ID,
        "subject_request_type": "erasure",
        "submitted_time": "2026-10-02T15:00:00Z",
        "subject_identities": [
            {"identity_type": "controller_customer_id", "identity_value": client, "identity_format": "raw"}
        ],
        "api_version": "2.0",
        **more,
    }


@pytest.fixture
def controller(service: Service) -> dict[str, str]:
    return {"Authorization": f"Bearer {service.token(Role.OPERATOR, name='a controller')}"}


def check_signature(service: Service, headers: Any, content: bytes) -> None:
    """Check as section 8.8 says: by the certificate that discovery names."""
    discovery = service.http.get("/opendsr/v2/discovery").json()
    pem = service.http.get(discovery["processor_certificate"].partition("testserver")[2]).content
    key = x509.load_pem_x509_certificate(pem).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    assert headers["x-opendsr-processor-domain"] == "testserver"
    key.verify(base64.b64decode(headers["x-opendsr-signature"]), content, padding.PKCS1v15(), SHA256())


def test_a_request_from_discovery_to_completion(service: Service, controller: dict[str, str]) -> None:
    client = service.clients()[0]
    found = service.http.get("/opendsr/v2/discovery").json()
    assert found["supported_subject_request_types"] == ["erasure"]
    assert found["supported_identities"] == [{"identity_type": "controller_customer_id", "identity_format": "raw"}]
    with receiving() as receiver:
        sent = json.dumps(body(client, status_callback_urls=[receiver.url])).encode()
        receipt = service.http.post("/opendsr/v2/requests", content=sent, headers=controller)
        assert receipt.status_code == 201
        check_signature(service, receipt.headers, receipt.content)
        receipt_body = receipt.json()
        assert base64.b64decode(receipt_body["encoded_request"]) == sent
        assert receipt_body["subject_request_id"] == ID
        assert receipt_body["received_time"] < receipt_body["expected_completion_time"]
        assert {"controller_id", "processor_signature"} <= receipt_body.keys()
        status = service.http.get(f"/opendsr/v2/requests/{ID}", headers=controller)
        check_signature(service, status.headers, status.content)
        assert status.json()["request_status"] == "pending"
        service.work()
        until(lambda: b"completed" in receiver.got[-1][1])
    callbacks = [json.loads(content) for _, content in receiver.got]
    statuses = [each["request_status"] for each in callbacks if each["request_status"] != "in_progress"]
    assert statuses == ["pending", "completed"]
    for headers, content in receiver.got:
        check_signature(service, headers, content)
        assert json.loads(content)["status_callback_url"] == receiver.url
        assert client.encode() not in content
    status = service.http.get(f"/opendsr/v2/requests/{ID}", headers=controller)
    assert status.json()["request_status"] == "completed"
    assert status.json()["results_url"].endswith(f"/v1/requests/{RUN}-1/proof")


def test_sent_twice_is_filed_once(service: Service, controller: dict[str, str]) -> None:
    first, second, *_ = service.clients()
    answers = [service.http.post("/opendsr/v2/requests", json=body(first), headers=controller) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["received_time"] == answers[1].json()["received_time"]
    assert service.call("GET", "/v1/requests").json()["requests"][0]["history"][1:] == []
    refused(service.http.post("/opendsr/v2/requests", json=body(second), headers=controller))
    assert len(service.call("GET", "/v1/requests").json()["requests"]) == 1


def test_cancelled_while_pending_and_not_after(service: Service, controller: dict[str, str]) -> None:
    service.http.post("/opendsr/v2/requests", json=body(service.clients()[0]), headers=controller)
    cancelled = service.http.delete(f"/opendsr/v2/requests/{ID}", headers=controller)
    assert cancelled.status_code == 202
    check_signature(service, cancelled.headers, cancelled.content)
    status = service.http.get(f"/opendsr/v2/requests/{ID}", headers=controller).json()
    assert status["request_status"] == "cancelled"
    other = ID.replace("a7", "b7")
    again = body(service.clients()[1], subject_request_id=other)
    service.http.post("/opendsr/v2/requests", json=again, headers=controller)
    service.work()
    refused(service.http.delete(f"/opendsr/v2/requests/{other}", headers=controller))


def test_nobody_sees_the_requests_of_another_controller(service: Service, controller: dict[str, str]) -> None:
    service.http.post("/opendsr/v2/requests", json=body(service.clients()[0]), headers=controller)
    assert service.call("GET", f"/opendsr/v2/requests/{ID}").status_code == 404
    assert service.call("DELETE", f"/opendsr/v2/requests/{ID}").status_code == 404


def refused(answer: httpx.Response) -> dict[str, Any]:
    """Section 7.5: 400, with an error object that names nobody."""
    assert answer.status_code == 400
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == 400
    assert {"domain", "reason", "message"} == error["errors"][0].keys()
    return error


@pytest.mark.parametrize(
    "change",
    [
        {"subject_request_type": "access"},
        {"regulation": "lgpd"},
        {"subject_request_id": "a7551968-d5d6-14b2-9831-815ac9017798"},
        {"subject_request_id": "nonsense"},
        {"api_version": "3.0"},
        {"submitted_time": "yesterday"},
        {"subject_identities": []},
        {"subject_identities": [{"identity_type": "email", "identity_value": "a", "identity_format": "raw"}]},
        {"status_callback_urls": ["file:///etc/passwd"]},
        {"extensions": {"testserver": {"run": "another"}}},
    ],
)
def test_what_cannot_be_used_is_refused(
    service: Service, controller: dict[str, str], change: dict[str, Any]
) -> None:
    request = body(service.clients()[0], **change)
    refused(service.http.post("/opendsr/v2/requests", json=request, headers=controller))
    assert service.call("GET", "/v1/requests").json()["requests"] == []


def test_an_unknown_data_subject_is_not_repeated(service: Service, controller: dict[str, str]) -> None:
    answer = service.http.post("/opendsr/v2/requests", json=body("somebody-else"), headers=controller)
    refused(answer)
    assert "somebody-else" not in answer.text
    broken = service.http.post("/opendsr/v2/requests", content=b"{", headers=controller)
    refused(broken)
