"""The evidence route gives what `disavow evidence` writes, without opening and PDF; names as the role allows."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile

import pytest

from disavow.evidence.pack import make_pack
from disavow.server.access import Role
from tests.server.service import Service, error_of

PATH = "/v1/requests/first-1/evidence"
REASON = "a passport is missing"


def files_in(service: Service, role: Role, path: str = PATH) -> dict[str, bytes]:
    answer = service.call("GET", path, role)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip"), answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="{path.split("/")[3]}.evidence.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_answered_request_with_everything_that_checks_it(service: Service) -> None:
    client = service.clients()[0]
    service.file(client)
    service.work()
    found = files_in(service, Role.AUDITOR)
    files = (
        "proof.json",
        "keys.json",
        "checkpoint.txt",
        "serving.json",
        "request.json",
        "verify.html",
        "SHA256SUMS",
    )
    assert set(found) == {"evidence.html", *files}
    sums = {line[66:]: line[:64] for line in found["SHA256SUMS"].decode().splitlines()}
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in found.items() if name != "SHA256SUMS"}
    assert all(client.encode() not in data for data in found.values())
    with service.services.runs.federation("first") as federation:
        own = make_pack(federation, 1, names=False, pdf=False).files
    assert set(own) == set(found)
    for name in set(own) - {
        "evidence.html",
        "SHA256SUMS",
        "serving.json",
    }:  # these have a time
        assert own[name] == found[name], name


@pytest.mark.parametrize(("role", "seen"), [(Role.OPERATOR, True), (Role.APPROVER, True), (Role.AUDITOR, False)])
def test_who_decided_and_why_is_for_those_who_may_see_it(service: Service, role: Role, seen: bool) -> None:
    client = service.clients()[0]
    service.file(client)
    paused = service.call("POST", "/v1/requests/first-1/pause", json={"reason": REASON})
    assert paused.status_code == 200
    found = files_in(service, role)
    assert "proof.json" not in found  # it is paused: the pack says so, and proves nothing
    assert json.loads(found["request.json"])["state"] == "paused"
    assert b"Not decided yet" in found["evidence.html"]
    assert (REASON.encode() in found["evidence.html"]) == seen
    assert (REASON.encode() in found["request.json"]) == seen
    assert all(client.encode() not in data for data in found.values())


def test_it_is_refused_to_viewers_and_of_what_is_not_there(service: Service) -> None:
    service.file(service.clients()[0])
    assert error_of(service.call("GET", PATH, Role.VIEWER)) == (403, "DSV-803")
    assert error_of(service.call("GET", "/v1/requests/first-9/evidence", Role.AUDITOR))[0] == 404
