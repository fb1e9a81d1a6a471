"""The pages: what they show to whom, and that their forms do what the interface for programs does."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from disavow import wording
from disavow.domain import Decision, EventKind, RequestState
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.proof.verify import CHECKS
from disavow.server import tokens, views
from disavow.server.access import RULES, SEE_CLIENTS, STAFF, Role
from disavow.server.authentication import COOKIE
from disavow.server.forecasting import Forecasting
from disavow.server.pages import charts
from tests.server.receiver import until
from tests.server.service import RUN, Service

_PATHS = {rule.path for rule in RULES if rule.method == "GET"}
PAGES = ["/", *sorted(path for path in _PATHS if f"{path}.json" in _PATHS)]
FORM = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}


def browse(service: Service, *roles: Role) -> Browser:
    text = tokens.new_session(
        service.services.state, name="somebody", roles=frozenset(roles or STAFF), now=time.time()
    )
    return Browser(service, {"Cookie": f"{COOKIE}={text}", **FORM})


class Browser:
    """Somebody who has logged in."""

    def __init__(self, service: Service, headers: Mapping[str, str]) -> None:
        self.service, self.headers = service, headers

    def get(self, path: str) -> httpx.Response:
        answer: httpx.Response = self.service.http.get(path, headers=self.headers, follow_redirects=False)
        return answer

    def post(self, path: str, **fields: Any) -> httpx.Response:
        answer: httpx.Response = self.service.http.post(
            path, data=fields, headers=self.headers, follow_redirects=False
        )
        return answer

    def file(self, client: str) -> str:
        """Forecast and file a request by the form; the address of its page."""
        shown = self.post("/requests/new", run=RUN, client=client)
        filed = self.post("/requests", **hidden(shown.text))
        assert filed.status_code == 303, filed.text
        return filed.headers["location"]


def hidden(text: str) -> dict[str, str]:
    """The hidden fields of a page."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', text))


class Outline(HTMLParser):
    """The tags that are open at the end of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link", "input", "br", "path", "circle", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("path", "circle", "rect"):
            assert self.open.pop() == tag


def test_every_page_shows_what_its_json_says(service: Service) -> None:
    first, second = service.undoing()
    browser = browse(service)
    browser.file(first)
    service.work()
    browser.file(second)
    assert len(PAGES) >= 13
    for path in PAGES:
        for number in (1, 2):
            address = path.format(run=RUN, request=f"{RUN}-{number}")
            if path.endswith("/checks") and number == 2:
                assert browser.get(address).status_code == 404
                continue
            page, data = browser.get(address), browser.get("/index.json" if path == "/" else f"{address}.json")
            assert (page.status_code, data.status_code) == (200, 200), address
            assert Outline(page.text).open == []
            assert page.text.count("<h1") == 1
            assert " style=" not in page.text, "the policy refuses it"
            assert isinstance(data.json(), dict)


@pytest.mark.parametrize("role", sorted(STAFF))
def test_clients_are_named_to_whoever_may_see_them(service: Service, role: Role) -> None:
    client = service.clients()[0]
    where = browse(service, Role.OPERATOR).file(client)
    browser = browse(service, role)
    for path in (where, f"/runs/{RUN}/departures", "/", "/requests", f"/runs/{RUN}/log", f"/runs/{RUN}/rounds"):
        page = browser.get(path)
        assert page.status_code == 200
        named = role in SEE_CLIENTS and path in (where, f"/runs/{RUN}/departures")
        assert (client in page.text) is named, path
        assert (client in browser.get(f"{path.rstrip('/') or '/index'}.json").text) <= (role in SEE_CLIENTS)
        assert client not in re.findall("<title>(.*?)</title>", page.text)[0]


def test_an_approval_is_for_the_forecast_that_was_seen(service: Service) -> None:
    first, second = service.undoing()
    browser = browse(service)
    where = browser.file(second)
    until(lambda: browser.get(f"{where}.json").json()["forecast"])  # a page does not wait for it
    stale = browser.get(f"{where}.json").json()["forecast"]["digest"]
    browser.post(f"{where}/pause", reason="who is it")
    browser.file(first)
    service.work()
    browser.post(f"{where}/resumption", reason="we know now")
    refused = browser.post(f"{where}/approval", forecast=stale)
    assert refused.status_code == 409
    assert "The forecast has changed" in refused.text
    until(lambda: browser.get(f"{where}.json").json()["forecast"]["digest"] != stale)
    now = browser.get(f"{where}.json").json()
    done = browser.post(f"{where}/approval", forecast=now["forecast"]["digest"], reason="as asked")
    assert (done.status_code, done.headers["location"]) == (303, where)
    service.work()
    document = browser.get(f"{where}.json").json()
    assert document["request"]["state"] == "answered"
    assert document["seen_forecast"]["cost"]["rounds"] == document["request"]["cost"]["rounds"] == 2


def test_a_form_that_is_sent_twice_files_one_request(service: Service) -> None:
    browser = browse(service)
    fields = hidden(browser.post("/requests/new", run=RUN, client=service.clients()[0]).text)
    assert {browser.post("/requests", **fields).headers["location"] for _ in range(2)} == {f"/requests/{RUN}-1"}
    [request] = browser.get("/requests.json").json()["requests"]
    assert [event["kind"] for event in request["history"]] == ["received"]


@pytest.mark.parametrize(
    ("path", "fields", "status", "code"),
    [
        ("/requests/new", {"run": RUN, "client": "nobody"}, 404, "DSV-301"),
        ("/requests/new", {"run": "none", "client": "nobody"}, 404, "DSV-804"),
        ("/requests/new", {}, 422, "DSV-801"),
        ("/requests", {"run": RUN, "client": "nobody", "key": "k"}, 404, "DSV-301"),
        (f"/requests/{RUN}-1/pause", {"reason": ""}, 422, "DSV-"),
        (f"/requests/{RUN}-1/resumption", {"reason": "he called"}, 409, "DSV-"),
        (f"/requests/{RUN}-1/extension", {"until": "tomorrow", "reason": "many"}, 422, "DSV-801"),
        (f"/requests/{RUN}-1/approval", {"forecast": "x"}, 422, "DSV-801"),
        (f"/requests/{RUN}-99/pause", {"reason": "why"}, 404, "DSV-311"),
        ("/tokens", {"name": "", "role": ["viewer"]}, 422, "DSV-801"),
        ("/tokens", {"name": "a", "role": ["king"]}, 422, "DSV-"),
        ("/tokens", {"name": "a", "role": ["client"]}, 422, "DSV-"),
        ("/tokens/99/revocation", {}, 422, "DSV-"),
    ],
)
def test_what_is_refused_is_said_on_a_page(
    service: Service, path: str, fields: dict[str, object], status: int, code: str
) -> None:
    browser = browse(service)
    browser.file(service.clients()[0])
    before = service.call("GET", "/v1/requests").json()
    answer = browser.post(path, **fields)
    assert answer.status_code == status, answer.text
    assert f"<code>{code}" in answer.text
    assert service.call("GET", "/v1/requests").json() == before


def test_nobody_makes_a_token_with_rights_of_others(service: Service) -> None:
    operator = browse(service, Role.OPERATOR)
    refused = operator.post("/tokens", name="mine", role=["operator", "approver"])
    assert (refused.status_code, "DSV-803" in refused.text) == (403, True)
    made = operator.post("/tokens", name="mine", role=["operator"], run=[RUN], days="5")
    [text] = re.findall(r'value="(dsv_[\w-]+)"', made.text)
    assert text not in operator.get("/tokens").text, "it is shown once"
    as_token = {"Authorization": f"Bearer {text}"}
    document = service.http.get("/v1/whoami", headers=as_token).json()
    assert (document["roles"], document["runs"]) == (["operator"], [RUN])
    [token] = operator.get("/tokens.json").json()["tokens"]
    assert operator.post(f"/tokens/{token['id']}/revocation").status_code == 303
    assert service.http.get("/v1/whoami", headers=as_token).status_code == 401


def test_a_signed_call_is_no_form(service: Service) -> None:
    headers = {"Authorization": 'Disavow-Node key="", created="1", nonce="n", signature=""'}
    answer = service.http.post("/verify", files={"proof": b"x"}, headers=headers)
    assert answer.status_code == 401


def test_the_soonest_deadline_is_found_however_many_there_are(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_AT_ONCE", 2)
    start = datetime.now(UTC) - timedelta(days=2)
    clients = service.clients()
    with Ledger.open(service.run, shared=True, keys=service.settings.keys) as ledger:
        for i, client in enumerate(clients):
            ledger.place_requests([client], at=start + timedelta(hours=i))
        later = Decision("o", start + timedelta(days=1), "many")
        for number in (1, 2):
            ledger.decide_request(number, EventKind.EXTENDED, later, until=start + timedelta(days=80))
        ledger.decide_request(3, EventKind.PAUSED, later)  # its time stands still: others are due before it
    with Federation.open(service.run, keys=service.settings.keys) as federation:
        expected = [each.request.number for each in federation.due()]
        assert expected[-3:] == [3, 1, 2]
        for most in range(1, len(clients) + 1):
            assert [each.number for each in views.soonest(federation, most)] == expected[:most]


def test_a_chart_of_many_points_keeps_their_extremes() -> None:
    points = [(float(i), 0.5) for i in range(1, 5000)]
    points[2500] = (2501.0, 0.9)
    drawn = charts._thinned(points)
    assert len(drawn) <= 250
    assert {points[0], points[2500], points[-1]} <= set(drawn)
    text = charts.line_chart("a", "<b>", [("x", points)], x_label="round", y_label="share", percent=True)
    assert "<b>" not in text
    assert Outline(str(text)).open == []
    assert charts.line_chart("a", "none", [("x", [])], x_label="round", y_label="share") == ""


def test_a_forecast_that_takes_long_is_shown_once_it_is_made() -> None:
    forecasting = Forecasting()
    going_on = threading.Event()

    def make(name: str) -> dict[str, object]:
        going_on.wait(10)
        return {"digest": name}

    def ask(changes: int, name: str, patience: float) -> tuple[object, bool]:
        return forecasting.ask("run", 1, changes, lambda: make(name), patience=patience)

    assert ask(1, "first", 0.01) == (None, True)
    going_on.set()
    assert ask(1, "first", 10) == ({"digest": "first"}, False)
    going_on.clear()
    assert ask(2, "second", 0.01) == ({"digest": "first"}, True), "the last one, meanwhile"
    going_on.set()
    assert ask(2, "second", 10) == ({"digest": "second"}, False)
    with pytest.raises(ZeroDivisionError):
        forecasting.ask("run", 2, 1, lambda: {"digest": 1 // 0}, patience=10)
    assert forecasting.ask("run", 2, 1, lambda: {"digest": "third"}, patience=10) == ({"digest": "third"}, False)
    forecasting.close()


def test_releases_are_shown_with_who_has_them(service: Service) -> None:
    with Federation.open(service.run, keys=service.settings.keys) as federation:
        federation.export(to="the hospital of Basel")
    for role in sorted(STAFF):
        page = browse(service, role).get(f"/runs/{RUN}/releases")
        assert page.status_code == 200
        assert "the hospital of Basel" in page.text


def test_every_check_and_state_has_its_words() -> None:
    assert list(wording.CHECKS) == list(CHECKS)
    assert {each.value for each in RequestState} == set(wording.STATE_NAMES)
    assert {each.value for each in EventKind} == set(wording.EVENTS)
