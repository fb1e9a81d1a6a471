"""Work that takes long is watched on its page: a rollback that trains again, and a purge, round by round."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import PATIENCE, SETTINGS, Served, Visit, Visits, disavow
from tests.browser.gated_task import let_train
from tests.browser.test_path import file_request

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROUNDS = SETTINGS["rounds"]


@pytest.fixture
def gate(served: Served) -> Iterator[Path]:
    """No round is trained before a test lets it."""
    let_train(served.gate, 0)
    yield served.gate
    served.gate.unlink()


def watch(visit: Visit, gate: Path) -> None:
    """See the bar stand still where nothing may be trained, and follow what may."""
    from playwright.sync_api import expect

    for done in (0, 2, ROUNDS - 1):
        let_train(gate, done)
        text = f"Rounds trained again: {done} of {ROUNDS}"
        bar = visit.page.get_by_label(text)
        expect(bar).to_be_visible(timeout=PATIENCE)
        assert (bar.get_attribute("value"), bar.get_attribute("max")) == (str(done), str(ROUNDS))
    let_train(gate, ROUNDS)


def proof_from(page: Page, link: str, served: Served, folder: Path) -> str:
    """Download a proof, and verify it by the command; what that says."""
    with page.expect_download() as waiting:
        page.get_by_role("link", name=link).click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    run, number = path.name.removesuffix(".proof.json").rsplit("-", 1)
    opening = served.opening(run, int(number))
    return disavow("verify", path, "--key", served.keys / "keys.json", "--opening", opening)


def test_a_rollback_is_watched_until_its_proof(
    served: Served, visits: Visits, cookies: object, gate: Path, tmp_path: Path
) -> None:
    first, second = served.leavers("rollback")
    visit = visits(storage_state=cookies, accept_downloads=True)
    page = visit.page
    file_request(visit, "rollback", first, "Model may stay")
    visit.state("Answered")
    file_request(visit, "rollback", second, "Retrain from round 1")
    visit.state("Waits for approval")
    page.get_by_role("button", name="Approve as forecast").click()
    visit.state("Being erased")
    watch(visit, gate)
    visit.state("Answered")  # nobody loads the page anew: it renews itself
    assert page.locator("progress").count() == 0
    assert "retrained from round 1" in page.locator("main").inner_text()
    assert "rollback" in proof_from(page, "Download the proof", served, tmp_path)


def test_a_purge_is_started_and_watched_until_the_second_proof(
    served: Served, visits: Visits, cookies: object, gate: Path, tmp_path: Path
) -> None:
    leaver, _ = served.leavers("purge")
    visit = visits(storage_state=cookies, accept_downloads=True)
    page = visit.page
    file_request(visit, "purge", leaver, "Model may stay")
    visit.state("Answered")
    interim = page.locator("#live").inner_text()
    assert "This answer is an interim one" in interim
    assert re.search(r"Purge due\s+\d+ \w+ 20\d\d, \d+ days left", interim)
    assert f"{ROUNDS} rounds trained again" in interim
    request = page.url

    page.get_by_role("link", name="Purges of this run").click()
    assert "1 request waits for a purge" in page.locator("#live").inner_text()
    page.get_by_role("button", name="Start the purge now").click()
    visit.state("A purge is running")
    plain = visits(storage_state=cookies, java_script_enabled=False)
    plain.goto(request)
    watch(visit, gate)
    visit.state("Nothing to purge")
    assert "purge" in proof_from(page, "Download the second proof", served, tmp_path)
    assert leaver not in page.locator("main").inner_text()
    plain.see("nothing that this client contributed before is in the model")
