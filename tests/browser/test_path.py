"""From the log-in link to a verified proof: with a mouse, with a keyboard alone, and without JavaScript."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from disavow.ledger.id_search import files_with
from disavow.proof.verify import CHECKS
from disavow.server.settings import OPENINGS
from tests.browser.conftest import PATIENCE, Served, Visit, Visits, disavow

if TYPE_CHECKING:
    from playwright.sync_api import Page


def file_request(visit: Visit, run: str, client: str, verdict: str) -> None:
    """Fill in the form, look at the forecast, file it."""
    page = visit.goto("/requests/new")
    page.get_by_label("Run").select_option(run)
    page.get_by_label("Client").fill(client)
    page.get_by_role("button", name="Show the forecast").click()
    page.get_by_role("heading", name="What would happen").wait_for()
    assert verdict in page.locator("main").inner_text()
    page.get_by_role("button", name="File the request").click()
    page.wait_for_url(re.compile(rf"/requests/{run}-\d+$"))


def download_and_verify(visit: Visit, served: Served, folder: Path) -> None:
    """Download the proof from the page of its request, and verify it on the page for it and by the command."""
    page = visit.page
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download the proof").click()
    proof = folder / waiting.value.suggested_filename
    waiting.value.save_as(proof)
    run, number = proof.name.removesuffix(".proof.json").rsplit("-", 1)
    opening = served.opening(run, int(number))
    disavow("verify", proof, "--key", served.keys / "keys.json", "--opening", opening)
    visit.goto("/verify")
    page.get_by_label("Proof").set_input_files(proof)
    page.get_by_label("Public key").set_input_files(served.keys / "signing.pub")
    page.get_by_role("button", name="Verify").click()
    page.get_by_role("heading", name="Valid", exact=True).wait_for()
    assert "against the key that you gave" in page.locator("main").inner_text()
    rows = page.locator(".checks tbody tr")
    assert rows.count() == len(CHECKS)
    assert re.match(r"1\s+readable\b.*\bPassed", rows.first.inner_text(), re.DOTALL)


def forge(proof: Path) -> Path:
    """Change one letter in the signed part of a proof."""
    data = proof.read_bytes()
    place = data.index(b'"payload":"') + 60
    forged = proof.with_name("forged.json")
    forged.write_bytes(data[:place] + (b"A" if data[place : place + 1] != b"A" else b"B") + data[place + 1 :])
    return forged


def test_the_whole_path(served: Served, visits: Visits, tmp_path: Path) -> None:
    first, second = served.leavers("path")
    visit = visits(accept_downloads=True)
    seen: list[str] = []
    visit.page.on("framenavigated", lambda frame: seen.append(f"{frame.url} {visit.page.title()}"))

    link = served.new_link()
    page = visit.goto(link)
    assert page.get_by_role("heading", level=1).inner_text() == "Overview"

    file_request(visit, "path", first, "Model may stay")
    visit.state("Answered")  # by itself: nobody has to approve what undoes nothing
    assert "What it does not promise" in page.locator("main").inner_text()

    file_request(visit, "path", second, "Retrain from round 1")
    visit.state("Waits for approval")
    assert second in page.locator("#live").inner_text()
    page.get_by_role("button", name="Approve as forecast").click()
    visit.state("Answered")
    text = page.locator("main").inner_text()
    assert "Verdict: retrained from round 1" in text
    cost = page.get_by_role("row", name=re.compile("Rounds trained again"))
    assert cost.locator("td").all_inner_texts() == ["6", "6"]
    assert "Approved by whoever started the service" in " ".join(text.split())
    page.locator("#checks .badge", has_text="Valid").wait_for(timeout=PATIENCE)

    download_and_verify(visit, served, tmp_path)
    page.get_by_label("Proof").set_input_files(forge(next(tmp_path.glob("*.proof.json"))))
    page.get_by_role("button", name="Verify").click()
    page.get_by_role("heading", name="Not valid").wait_for()

    assert page.goto(link).status == 401
    assert "used before" in page.locator("main").inner_text()
    for client in (first, second):
        assert not any(client in each for each in (*seen, *visit.requests)), "no address or title names a client"
        assert files_with(served.folder / "runs" / "path", client) == []
        kept = files_with(served.folder / "runs" / ".service", client)
        assert [path for path in kept if path.parent.name != OPENINGS] == []  # openings are for the leavers
        assert client not in (served.folder / "log").read_text()


def test_a_forecast_that_has_changed_is_shown_again_and_nothing_is_filed(
    served: Served, visits: Visits, cookies: object
) -> None:
    first, second = served.leavers("changed")
    visit = visits(storage_state=cookies)
    page = visit.goto("/requests/new")
    page.get_by_label("Run").select_option("changed")
    page.get_by_label("Client").fill(second)
    page.get_by_role("button", name="Show the forecast").click()
    page.get_by_role("heading", name="What would happen").wait_for()
    other = visits(storage_state=cookies)
    file_request(other, "changed", first, "Model may stay")
    other.state("Answered")
    page.get_by_role("button", name="File the request").click()
    page.get_by_role("alert").wait_for()
    assert "The forecast has changed" in page.get_by_role("alert").inner_text()
    assert "Retrain from round 1" in page.locator("main").inner_text()
    page.get_by_role("button", name="File the request").click()
    visit.state("Waits for approval")
    decide(page, "Pause", "Why the identity is in doubt", "another address")
    visit.state("Paused")
    decide(page, "End the pause", "How the identity was verified", "by telephone")
    visit.state("Waits for approval")
    decide(page, "Extend the deadline", "Why, which is told to who asks", "many requests at once")
    assert "(extended)" in page.locator("#live").inner_text()
    decide(page, "Cancel", "Why it is withdrawn", f"{second} wrote again")
    assert "DSV-" in page.get_by_role("alert").inner_text(), "a reason may not name a client"
    decide(page, "Cancel", "Why it is withdrawn", "written by mistake")
    visit.state("Cancelled")
    assert page.locator("#actions").count() == 0


def decide(page: Page, action: str, label: str, reason: str) -> None:
    """Open one of the forms of a request, fill in the reason, and send it."""
    found = page.locator("details", has=page.locator("summary", has_text=re.compile(f"^{action}$")))
    found.locator("summary").click()
    found.get_by_label(label).fill(reason)
    found.get_by_role("button", name=action).click()


def test_without_javascript(served: Served, visits: Visits, cookies: object, tmp_path: Path) -> None:
    first, second = served.leavers("plain")
    visit = visits(java_script_enabled=False, storage_state=cookies, accept_downloads=True)
    file_request(visit, "plain", first, "Model may stay")
    visit.state("Answered", reload=True)
    file_request(visit, "plain", second, "Retrain from round 1")
    visit.state("Waits for approval", reload=True)
    visit.see("Approve as forecast")
    visit.page.get_by_role("button", name="Approve as forecast").click()
    visit.state("Answered", reload=True)
    address = visit.page.url
    visit.page.get_by_role("link", name="Verify it now").click()
    assert visit.page.locator(".checks tbody tr").count() == len(CHECKS)
    visit.page.goto(address)
    download_and_verify(visit, served, tmp_path)
    hand_over(visit, served, "plain-2", second)


def hand_over(visit: Visit, served: Served, request: str, client: str) -> None:
    """Download the opening of a request from the page of openings, and delete it."""
    page = visit.goto("/openings")
    row = page.get_by_role("row", name=re.compile(request))
    with page.expect_download() as waiting:
        row.get_by_role("link", name="Download").click()
    assert client in Path(waiting.value.path()).read_text()
    row.get_by_label("The leaver has it").check()
    row.get_by_role("button", name="Delete the opening").click()
    page.wait_for_url("**/openings")
    assert row.count() == 0
    assert files_with(served.folder / "runs", client) == []


def test_with_a_keyboard_alone(served: Served, visits: Visits, cookies: object) -> None:
    first, second = served.leavers("keyboard")
    visit = visits(storage_state=cookies)
    page = visit.goto("/")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    for client, state in ((first, "Answered"), (second, "Waits for approval")):
        visit.goto("/")
        tab_to(page, "New request")
        page.keyboard.press("Enter")
        page.wait_for_url("**/requests/new")
        tab_to(page, "Run")
        page.keyboard.type("keyboard")
        tab_to(page, "Client")
        page.keyboard.type(client)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="What would happen").wait_for()
        tab_to(page, "File the request")
        page.keyboard.press("Enter")
        page.wait_for_url("**/requests/keyboard-*")
        visit.state(state)
    page.get_by_role("button", name="Approve as forecast").wait_for()  # the page loads anew with it
    tab_to(page, "Approve as forecast")
    page.keyboard.press("Space")
    visit.state("Answered")
    for name in ("Download the proof", "Download the opening", "The leaver has it (request keyboard-2)"):
        tab_to(page, name)
    page.keyboard.press("Space")
    tab_to(page, "Delete the opening of keyboard-2")
    page.keyboard.press("Enter")
    page.get_by_text("It is not here").wait_for()


def focused(page: Page) -> str:
    """What the focused element is called; it has to be seen that it is focused."""
    described: list[str] = page.evaluate(
        """() => { const e = document.activeElement, s = getComputedStyle(e);
        const label = e.labels && e.labels.length ? e.labels[0] : e;
        return [label.textContent.trim(), s.outlineStyle, s.outlineWidth, e.tagName]; }"""
    )
    name, style, width, tag = described
    assert tag == "BODY" or (style != "none" and float(width.removesuffix("px")) >= 2), f"{name} shows no focus"
    return name


def tab_to(page: Page, name: str) -> None:
    """Press Tab until an element is focused."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"no Tab leads to {name}")


@pytest.mark.parametrize("path", ["/requests/path-1", "/tokens"])
def test_who_is_not_logged_in_is_sent_to_the_page_that_says_how(visits: Visits, path: str) -> None:
    page = visits().goto(path)
    assert page.url.endswith("/login")
    assert page.get_by_role("heading", level=1).inner_text() == "Log in"
