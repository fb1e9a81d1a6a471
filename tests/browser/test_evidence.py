"""The document of an evidence pack in Chromium: it asks nobody, runs nothing, can be read by all, and prints."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from disavow import config
from disavow.evidence.pack import DOCUMENT, PDF, check_folder, make_pack, write_folder
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now
from tests.browser.conftest import SETTINGS
from tests.browser.test_looks import serious

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

A4_WIDTH = 794
"""Pixels, at 96 to the inch."""


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A request that is answered, printed too, and one that waits for an approval."""
    folder = tmp_path_factory.mktemp("packs")
    generate(folder / "keys", name="tests", passphrase=None, at=time_to_text(now()))
    settings = config.from_values({**SETTINGS, "rounds": 2}, source="tests")
    with Federation.create(folder / "run", settings, keys=folder / "keys") as federation:
        federation.train()
        smallest = min((sorted(group) for group in federation.ledger.membership(1)), key=len)
        federation.erase(smallest[:1])
        federation.place(smallest[1:2])
        for number, name in enumerate(("answered", "waiting"), start=1):
            check_folder(folder / name, folder / "run")
            write_folder(make_pack(federation, number, pdf=number == 1), folder / name)
    return folder


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": A4_WIDTH, "height": 1123})
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", ["answered", "waiting"])
@pytest.mark.parametrize("width", [A4_WIDTH, 360])
def test_it_asks_nobody_and_anybody_can_read_it(packs: Path, page: Page, name: str, width: int) -> None:
    requests, complaints = list[str](), list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.set_viewport_size({"width": width, "height": 800})
    address = (packs / name / DOCUMENT).as_uri()
    page.goto(address)
    assert (requests, complaints) == ([address], [])
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # its style is the one that its policy allows: the box has a border
    assert page.locator(".lead").evaluate("(each) => getComputedStyle(each).borderTopWidth") == "2px"
    # what a reader sees before anything else
    first = page.locator("section").first.inner_text()
    assert "What this means" in first
    assert "What was NOT promised" in first


def test_its_policy_stops_what_is_put_into_it(packs: Path, page: Page, tmp_path: Path) -> None:
    text = (packs / "answered" / DOCUMENT).read_text(encoding="utf-8")
    image = "<img alt='' src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>"
    put_in = f"<script>window.ran = 1</script>{image}<style>h1 {{ color: red; }}</style>"
    (tmp_path / "changed.html").write_text(text.replace("<main>", f"<main>{put_in}"), encoding="utf-8")
    refused = list[str]()
    page.on("console", lambda message: refused.append(message.text))
    page.goto((tmp_path / "changed.html").as_uri())
    assert page.evaluate("window.ran") is None
    assert page.locator("h1").evaluate("(each) => getComputedStyle(each).color") != "rgb(255, 0, 0)"
    assert len([each for each in refused if "Content Security Policy" in each]) == 3


def test_the_printed_document_has_its_words_and_no_trace_of_where_it_lay(packs: Path) -> None:
    data = (packs / "answered" / PDF).read_bytes()
    assert data.startswith(b"%PDF-")
    unpacked = data + b"".join(map(_inflated, re.findall(rb"stream\r?\n(.*?)endstream", data, flags=re.S)))
    assert b"/URI" not in unpacked
    assert b"file:" not in unpacked
    assert str(packs).encode() not in unpacked
    assert b"disavow-pdf-" not in unpacked
    if (pages := re.findall(rb"/Type /Pages\s*/Count (\d+)", unpacked)) != []:
        assert 2 <= int(pages[0]) <= 6


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


def test_the_pack_verifies_itself(packs: Path, page: Page) -> None:
    folder = packs / "answered"
    page.goto((folder / "verify.html").as_uri())
    page.set_input_files("#file-proof", folder / "proof.json")
    page.set_input_files("#file-keys", folder / "keys.json")
    page.set_input_files("#file-checkpoint", folder / "checkpoint.txt")
    page.locator("#result:not([hidden]) #heading").wait_for()
    assert page.locator("#heading").inner_text() == "Valid, but it names nobody"
