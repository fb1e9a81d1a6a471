"""Every page: on a phone, in the dark, for assistive technology, and as JSON."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from disavow.federation import Federation
from tests.browser.conftest import PATIENCE, Served, Visit, Visits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

RUN = "looks"
PAGES = (
    "/",
    "/requests",
    "/requests/new",
    "/openings",
    f"/requests/{RUN}-1",
    f"/requests/{RUN}-1/checks",
    f"/requests/{RUN}-2",
    f"/requests/{RUN}-3",
    f"/requests/{RUN}-4",
    f"/runs/{RUN}",
    f"/runs/{RUN}/rounds",
    f"/runs/{RUN}/departures",
    f"/runs/{RUN}/purge",
    f"/runs/{RUN}/log",
    f"/runs/{RUN}/account",
    f"/runs/{RUN}/releases",
    "/verify",
    "/tokens",
)
"""One request is answered and waits for a purge, one waits for approval, one is paused, one is for records."""

WIDTHS = (360, 320)


@pytest.fixture(scope="module")
def with_request(served: Served) -> None:
    """Have four requests in the run: a worker answers the first, two would undo rounds, and one is for records."""
    with Federation.open(served.folder / "runs" / RUN, keys=served.keys) as federation:
        federation.place(served.leavers(RUN)[:1])
        for _ in range(PATIENCE // 100):
            if federation.request(1).answered_at is not None:
                break
            time.sleep(0.1)
        federation.place(served.leavers(RUN))
        federation.pause(3, by="tests", reason="who is it")
        [number] = federation.place(federation.clients()[-1:], records=[["a record", "another record"]])
        federation.pause(number, by="tests", reason="who is it")


def forms(visit: Visit, served: Served) -> Iterator[tuple[str, Page]]:
    """The pages that only a form leads to, and those for nobody."""
    page = visit.goto("/requests/new")
    page.get_by_label("Run").select_option("path")
    page.get_by_label("Client").fill(served.leavers("path")[0])
    page.get_by_role("button", name="Show the forecast").click()
    page.wait_for_load_state()
    yield "forecast", page
    page = visit.goto("/requests/new")
    page.get_by_role("button", name="Show the forecast").click()
    page.get_by_text("Say who asks.").wait_for()
    yield "wrong", page
    page = visit.goto("/requests/new")
    page.get_by_label("Run").select_option("rollback")
    page.get_by_role("textbox", name="Records").fill("shared-visit")
    page.get_by_label("Erase these records wherever they are").check()
    page.get_by_role("button", name="Show the forecast").click()
    page.get_by_text("clients hold these records").wait_for()
    yield "everywhere", page
    visit.goto("/tokens")
    page.get_by_label("Who holds it").fill("tests")
    page.get_by_label("viewer:").check()
    page.get_by_role("button", name="Make the token").click()
    page.get_by_label("Token", exact=True).wait_for()
    yield "token", page
    visit.goto("/verify")
    page.get_by_label("Proof").set_input_files({"name": "p.json", "mimeType": "text/plain", "buffer": b"nonsense"})
    page.get_by_role("button", name="Verify").click()
    page.get_by_role("heading", name="Not valid").wait_for()
    yield "verified", page
    yield "nowhere", visit.goto("/nowhere")


@pytest.mark.usefixtures("with_request")
def test_nothing_is_wider_than_a_phone(served: Served, visits: Visits, cookies: Any, tmp_path: Path) -> None:
    visit = visits(storage_state=cookies, viewport={"width": WIDTHS[0], "height": 740}, is_mobile=True)

    def look(name: str, page: Page) -> None:
        for width in reversed(WIDTHS):
            page.set_viewport_size({"width": width, "height": 740})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        picture = tmp_path / "page.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 5_000, f"{name} is empty"

    for path in PAGES:
        look(path, visit.goto(path))
    for name, page in forms(visit, served):
        look(name, page)


@pytest.mark.usefixtures("with_request")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(served: Served, visits: Visits, cookies: Any, scheme: str) -> None:
    visit = visits(storage_state=cookies, color_scheme=scheme)
    for path in PAGES:
        page = visit.goto(path)
        if path.endswith("-1"):
            page.locator("#checks .badge").first.wait_for(timeout=PATIENCE)
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert serious(page) == [], path
        assert page.locator("h1").count() == 1
    for name, page in forms(visit, served):
        assert serious(page) == [], name
    assert serious(visits(color_scheme=scheme).goto("/login")) == []


def serious(page: Page) -> list[str]:
    """What axe-core finds that is serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in ("serious", "critical")
    ]


def test_the_dark_is_dark(visits: Visits, cookies: Any) -> None:
    def brightness(scheme: str) -> tuple[float, float]:
        page = visits(storage_state=cookies, color_scheme=scheme).goto(f"/runs/{RUN}/rounds")
        colours: list[list[int]] = page.evaluate(
            """() => { const body = getComputedStyle(document.body);
            const line = document.querySelector('.chart.wide .line');
            const read = text => text.match(/\\d+/g).slice(0, 3).map(Number);
            return [read(body.backgroundColor), read(getComputedStyle(line).stroke)]; }"""
        )
        return sum(colours[0]) / 3, sum(colours[1]) / 3

    (light_page, light_line), (dark_page, dark_line) = brightness("light"), brightness("dark")
    assert light_page > 200
    assert dark_page < 60
    assert dark_line > light_line, "a chart adapts, too"


@pytest.mark.usefixtures("with_request")
def test_every_page_has_its_json_and_names_nobody_in_its_title(
    served: Served, visits: Visits, cookies: Any
) -> None:
    visit = visits(storage_state=cookies)
    with Federation.open(served.folder / "runs" / RUN, keys=served.keys) as federation:
        clients = federation.clients()
    for path in PAGES:
        page = visit.goto(path)
        title = page.title()
        assert title.endswith("disavow")
        assert not any(client in title for client in clients)
        address = page.get_by_role("link", name="This page as JSON").get_attribute("href")
        answer = page.request.get(served.url + address)
        assert answer.headers["content-type"] == "application/json"
        assert isinstance(answer.json(), dict), path


def test_charts_have_words_and_a_table(visits: Visits, cookies: Any) -> None:
    page = visits(storage_state=cookies).goto(f"/runs/{RUN}/rounds")
    chart = page.get_by_role("img", name="Accuracy of the model after each round")
    assert chart.count() == 1, "of the two drawings one is shown"
    assert "from" in chart.locator("desc").text_content()
    assert page.locator("tbody tr").count() == 6
