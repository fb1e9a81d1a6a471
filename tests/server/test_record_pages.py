"""Records on the pages: filed by the form, with errors at their field; shown to whom, and for how long."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from disavow import config
from disavow.federation import Federation
from disavow.server.access import SEE_CLIENTS, STAFF, Role
from disavow.server.settings import ServerSettings
from tests.browser.gated_task import CLIENTS
from tests.server.conftest import SETTINGS
from tests.server.service import RUN, Service, error_of
from tests.server.test_pages import Browser, Outline, browse, hidden
from tests.server.test_records import keys_of

EVERYWHERE = "everywhere"
SHARED = "shared-visit"


def sent(page: str) -> dict[str, str]:
    """What the button that files a request would send."""
    texts = re.findall(r'<textarea name="(\w+)" hidden>([^<]*)</textarea>', page)
    return {**hidden(page), **{name: html.unescape(value) for name, value in texts}}


def file(browser: Browser, **fields: Any) -> str:
    """Forecast and file by the form; where that leads."""
    shown = browser.post("/requests/new", **fields)
    assert shown.status_code == 200, shown.text
    filed = browser.post("/requests", **sent(shown.text))
    assert filed.status_code == 303, filed.text
    where: str = filed.headers["location"]
    return where


def test_records_are_shown_to_who_sees_clients_until_they_are_erased(service: Service) -> None:
    client = service.clients()[0]
    first, second, *_ = keys_of(service, client)
    where = file(browse(service), run=RUN, client=client, records=f" {first}\n\n{second}\n{first}\n")
    for role in sorted(STAFF):
        page, shown = browse(service, role).get(where), browse(service, role).get(f"{where}.json").json()
        assert shown["request"]["records"] == 2, "how many is no secret"
        assert "2 records" in page.text
        assert shown["record_keys"] == (sorted([first, second]) if role in SEE_CLIENTS else None)
        assert (f"<code>{html.escape(first)}</code>" in page.text) is (role in SEE_CLIENTS)
        assert Outline(page.text).open == []
    service.work()
    for role in sorted(STAFF):
        page, shown = browse(service, role).get(where), browse(service, role).get(f"{where}.json").json()
        assert (shown["request"]["state"], shown["record_keys"]) == ("answered", None)
        assert re.fullmatch("[0-9a-f]{64}", shown["records_commitment"])
        assert shown["records_commitment"] in page.text
        assert "not kept in readable form" in page.text
        assert "the client stays" in page.text.lower()
        assert f"<code>{html.escape(first)}</code>" not in page.text


@pytest.mark.parametrize(
    ("fields", "field", "status", "code"),
    [
        ({"client": "", "records": ""}, "client", 422, "DSV-801"),
        ({"client": "nobody", "records": ""}, "client", 404, "DSV-301"),
        ({"client": "nobody", "records": "a"}, "client", 404, "DSV-301"),
        ({"client": "", "records": "", "everywhere": "true"}, "records", 422, "DSV-801"),
        ({"client": "somebody", "records": "a", "everywhere": "true"}, "client", 422, "DSV-801"),
        ({"client": "somebody", "records": "\n".join(map(str, range(1001)))}, "records", 422, "DSV-801"),
        ({"client": "somebody", "records": "x" * 1025}, "records", 422, "DSV-801"),
    ],
)
@pytest.mark.parametrize("path", ["/requests/new", "/requests"])
def test_what_is_wrong_is_said_at_its_field(
    service: Service, path: str, fields: dict[str, str], field: str, status: int, code: str
) -> None:
    answer = browse(service).post(path, run=RUN, key="k", **fields)
    assert answer.status_code == status, answer.text
    assert f"<code>{code}" in answer.text
    assert re.findall(r'<p class="wrong" id="(\w+)-wrong">', answer.text) == [field]
    [tag] = re.findall(rf"<(?:input|textarea) id=\"{field}\"[^>]*>", answer.text)
    assert 'aria-invalid="true"' in tag
    assert f"{field}-wrong" in tag
    assert service.call("GET", "/v1/requests").json()["requests"] == []


def test_a_record_that_was_erased_is_said_at_its_field(service: Service) -> None:
    client = service.clients()[0]
    record = keys_of(service, client)[0]
    file(browse(service), run=RUN, client=client, records=record)
    service.work()
    again = browse(service).post("/requests/new", run=RUN, client=client, records=record)
    assert (again.status_code, "<code>DSV-305" in again.text) == (410, True)
    assert 'id="records-wrong"' in again.text


@pytest.fixture
def shared(settings: ServerSettings, folder: Path) -> ServerSettings:
    """A second run, of whose clients each holds the same record."""
    task = {
        "factory": "gated_task:build",
        "path": str(Path(__file__).parents[1] / "browser"),
        "options": {"gate": str(folder / "gate")},
    }
    own = {name: value for name, value in SETTINGS.items() if name not in ("data", "model", "training")}
    values = config.from_values({**own, "rounds": 1, "task": task}, source="tests")
    with Federation.create(settings.runs / EVERYWHERE, values, keys=settings.keys) as federation:
        federation.train()
    return settings


@pytest.mark.usefixtures("shared")
def test_records_are_erased_wherever_they_are(service: Service) -> None:
    browser = browse(service)
    page = browser.post(
        "/requests/new", run=EVERYWHERE, client="", records=f"{SHARED}\npractice-3/visit-0", everywhere="true"
    )
    assert page.status_code == 200, page.text
    assert f"{CLIENTS} clients hold these records" in page.text
    fields = sent(page.text)
    for _ in range(2):  # sent twice, it files once
        filed = browser.post("/requests", **fields)
        assert (filed.status_code, filed.headers.get("location")) == (303, f"/requests?run={EVERYWHERE}")
    found = service.call("GET", f"/v1/requests?run={EVERYWHERE}").json()["requests"]
    assert {each["client"]: each["records"] for each in found} == {
        f"practice-{i}": 2 if i == 3 else 1 for i in range(CLIENTS)
    }
    assert all(len(each["history"]) == 1 for each in found)
    stale = browser.post("/requests", **{**fields, "forecast": "0" * 64, "key": "another"})
    assert stale.status_code == 409


@pytest.mark.usefixtures("shared")
def test_a_program_finds_who_holds_records(service: Service) -> None:
    path, body = "/v1/records/holders", {"run": EVERYWHERE, "records": ["practice-1/visit-2"]}
    found = service.call("POST", path, json=body)
    assert found.json()["holders"] == [{"client": "practice-1", "records": ["practice-1/visit-2"]}]
    nobody = service.call("POST", path, json={**body, "records": ["no such record"]})
    assert error_of(nobody) == (404, "DSV-304")
    assert "no such record" not in nobody.text.replace("there is no such record", "")
    assert error_of(service.call("POST", path, Role.APPROVER, json=body)) == (403, "DSV-803")
    page = browse(service).post("/requests/new", run=EVERYWHERE, client="", records="none", everywhere="true")
    assert (page.status_code, 'id="records-wrong"' in page.text) == (404, True)
