"""The pages of purges and openings: who sees what, what may be started, and what is left afterwards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from disavow.ledger.id_search import files_with
from disavow.server.access import STAFF, Role
from disavow.server.settings import ServerSettings
from tests.server.service import RUN, Service, error_of
from tests.server.test_pages import Outline, browse, hidden
from tests.server.test_purges import promised

PAGE, REQUEST = f"/runs/{RUN}/purge", f"/requests/{RUN}-1"


@pytest.fixture
def settings(settings: ServerSettings) -> ServerSettings:
    """The same service, of a run that promises to purge by the deadline."""
    return promised(settings)


def answered(service: Service) -> str:
    """Have a client answered that may still be in the model; the client."""
    client = service.clients()[0]
    service.file(client)
    service.work()
    return client


@pytest.mark.parametrize("role", sorted(STAFF))
def test_an_interim_answer_says_when_its_purge_is_due_and_what_it_takes(service: Service, role: Role) -> None:
    client = answered(service)
    browser = browse(service, role)
    shown = browser.get(f"{REQUEST}.json").json()["interim"]
    assert (shown["promised"], shown["at_risk"], shown["running"]) == (True, None, None)
    assert 28 < shown["days_left"] < 32
    assert shown["forecast"]["cost"]["rounds"] == 2
    page = browser.get(REQUEST).text
    assert "This answer is an interim one" in page
    assert "Purge due" in page
    listed = browser.get(PAGE)
    assert client not in listed.text
    assert [each["id"] for each in browser.get(f"{PAGE}.json").json()["waiting"]] == [f"{RUN}-1"]
    assert ("Start the purge now" in listed.text) is (role is Role.OPERATOR)


def test_a_purge_is_started_from_its_page_as_it_was_forecast(service: Service) -> None:
    answered(service)
    browser = browse(service)
    stale = browser.post(PAGE, forecast="0" * 64)
    assert (stale.status_code, "<code>DSV-315" in stale.text) == (409, True)
    assert "The forecast has changed" in stale.text
    started = browser.post(PAGE, **hidden(browser.get(PAGE).text))
    assert (started.status_code, started.headers["location"]) == (303, PAGE)
    waiting = browser.get(PAGE).text
    assert "A purge is about to begin" in waiting
    assert "Start the purge now" not in waiting
    assert browser.get(f"{REQUEST}.json").json()["poll_seconds"] == 2
    service.work()
    shown = browser.get(f"{PAGE}.json").json()
    assert (shown["unpurged"], shown["waiting"], shown["running"]) == (0, [], None)
    [past] = shown["purges"]
    assert (past["first_round"], past["last_round"], past["cost"]["rounds"]) == (1, 2, 2)
    assert past["finished_at"] is not None
    [purged] = shown["purged"]
    assert (purged["id"], purged["in_time"], purged["second_proof"]) == (f"{RUN}-1", True, True)
    page = browser.get(PAGE)
    assert f'href="/v1/requests/{RUN}-1/proof"' in page.text
    assert Outline(page.text).open == []
    assert browser.get(f"{REQUEST}.json").json()["interim"] is None
    nothing = browser.post(PAGE, forecast="0" * 64)
    assert (nothing.status_code, "<code>DSV-331" in nothing.text) == (409, True)
    assert f'href="/v1/requests/{RUN}-1/proof"' not in browse(service, Role.VIEWER).get(PAGE).text


def test_pages_of_purged_requests_go_back_to_the_first(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from disavow.server.pages import purge

    monkeypatch.setattr(purge, "_MOST", 1)
    for client in service.clients()[:2]:
        service.file(client)
    service.work()
    browser = browse(service)
    for number in (1, 2):
        path, digest = f"/requests/{RUN}-{number}", hidden(browser.get(f"/requests/{RUN}-{number}").text)
        if "forecast" in digest:
            browser.post(f"{path}/approval", forecast=digest["forecast"])
    service.work()
    if browser.get(f"{PAGE}.json").json()["unpurged"]:
        browser.post(PAGE, **hidden(browser.get(PAGE).text))
        service.work()
    newest = browser.get(f"{PAGE}.json").json()
    older = browser.get(f"{PAGE}.json?before={newest['before']}").json()
    assert [[each["id"] for each in page["purged"]] for page in (newest, older)] == [[f"{RUN}-2"], [f"{RUN}-1"]]
    assert older["before"] is None


def test_an_opening_is_downloaded_and_then_deleted(service: Service, folder: Path) -> None:
    client = answered(service)
    browser = browse(service)
    assert [each["id"] for each in browser.get("/openings.json").json()["openings"]] == [f"{RUN}-1"]
    for path in ("/openings", REQUEST):
        page = browser.get(path)
        assert f'href="/v1/requests/{RUN}-1/opening"' in page.text
        assert "An opening names who left" in page.text
        assert client not in page.text
        assert Outline(page.text).open == []
    refused = browser.post(f"{REQUEST}/opening/deletion", back="openings")
    assert (refused.status_code, "<code>DSV-801" in refused.text) == (422, True)
    assert client in browser.get(f"/v1/requests/{RUN}-1/opening").text, "nothing was deleted"
    deleted = browser.post(f"{REQUEST}/opening/deletion", back="openings", handed_over="true")
    assert (deleted.status_code, deleted.headers["location"]) == (303, "/openings")
    assert "No opening is here" in browser.get("/openings").text
    assert "An opening names who left" not in browser.get(REQUEST).text
    assert files_with(folder, client) == []
    again = browser.post(f"{REQUEST}/opening/deletion", handed_over="true")
    assert (again.status_code, "<code>DSV-804" in again.text) == (404, True)


@pytest.mark.parametrize("role", sorted(STAFF - {Role.OPERATOR}))
def test_openings_are_for_operators_alone(service: Service, role: Role) -> None:
    answered(service)
    browser = browse(service, role)
    assert error_of(browser.get("/openings.json")) == (403, "DSV-803")
    page = browser.get(REQUEST).text
    assert not re.search(r"opening", page.partition("<main")[2])
    assert browser.get(f"{REQUEST}.json").json()["opening"] is None
