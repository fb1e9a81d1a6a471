"""A real service with real runs and a worker, and a real Chromium that looks at it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from disavow import config
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now
from disavow.server.settings import OPENINGS
from tests.conftest import SMALL

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

RUNS = ("path", "changed", "keyboard", "plain", "looks")
"""One for each test that changes one; they are served together."""

SETTINGS: dict[str, Any] = {
    **SMALL,
    "rounds": 6,
    "deniability": {"x": 2},
    "requests": {"approval": "rollback"},
}
"""Anybody can leave at once; the second of the smallest cluster takes a rollback, which has to be approved."""

GATED: dict[str, dict[str, Any]] = {
    "rollback": {},
    "purge": {"deniability": {"x": 2, "purge": "deadline"}},
}
"""Runs whose rounds are trained only when a test lets them (`Served.gate`), with what they have of their own."""

ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # tests run as root, in a container
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60_000
"""Milliseconds. A worker that starts has torch to import, on a machine that has other things to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@dataclass(frozen=True)
class Served:
    """A service that runs, as a process of its own."""

    url: str
    login: str
    folder: Path

    @property
    def gate(self) -> Path:
        """The file that holds back the rounds of `GATED`; see `gated_task`."""
        return self.folder / "gate"

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    def new_link(self) -> str:
        """Another link that logs in once, as `disavow token link` prints it."""
        found = disavow("token", "link", "--json", "--runs", self.folder / "runs", "--url", self.url)
        link: str = json.loads(found)["login"]
        return link

    def opening(self, run: str, number: int) -> Path:
        """Where the opening of an answered request lies."""
        openings = self.folder / "runs" / ".service" / OPENINGS
        with Federation.open(self.folder / "runs" / run, keys=self.keys, openings=openings) as federation:
            return federation.opening_of(number)

    def leavers(self, run: str) -> tuple[str, str]:
        """Two clients of one cluster: the first can leave, and then the second takes a rollback."""
        with Federation.open(self.folder / "runs" / run, keys=self.keys) as federation:
            groups = federation.ledger.membership(1)
        smallest = min((sorted(group) for group in groups), key=len)
        return smallest[0], smallest[1]


def disavow(*arguments: str | Path) -> str:
    """Run a command, and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "disavow", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("browser")
    generate(folder / "keys", name="tests", passphrase=None, at=time_to_text(now()))
    for i, run in enumerate(RUNS):
        more = {"deniability": {"x": 2, "purge": "deadline"}} if run == "looks" else {}
        settings = config.from_values({**SETTINGS, "seed": 7 + i, **more}, source="tests")
        with Federation.create(folder / "runs" / run, settings, keys=folder / "keys") as federation:
            federation.train()
    task = {
        "factory": "gated_task:build",
        "path": str(Path(__file__).parent),
        "options": {"gate": str(folder / "gate")},
    }
    own = {name: value for name, value in SETTINGS.items() if name not in ("data", "model", "training")}
    for run, more in GATED.items():
        settings = config.from_values({**own, "task": task, **more}, source="tests")
        with Federation.create(folder / "runs" / run, settings, keys=folder / "keys") as federation:
            federation.train()
    command = [sys.executable, "-m", "disavow", "serve", "--json", "--port", "0"]
    command += ["--runs", str(folder / "runs"), "--keys", str(folder / "keys")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    log = (folder / "log").open("wb")
    with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment) as process:
        assert process.stdout is not None
        text = b""
        while not text.rstrip().endswith(b"}"):
            line = process.stdout.readline()
            assert line, (folder / "log").read_text()
            text += line
        document = json.loads(text)
        yield Served(document["url"], document["login"], folder)
        process.terminate()
        code, written = process.wait(30), (folder / "log").read_text()
        assert code == 0, written
        assert "Fatal Python error" not in written, "the worker stops as it should, too"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.fail("Chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield found
        found.close()


@pytest.fixture(scope="session")
def cookies(served: Served, browser: Browser) -> Any:
    """What a browser keeps that has logged in."""
    context = browser.new_context()
    context.new_page().goto(served.login)
    state = context.storage_state()
    context.close()
    return state


@dataclass(frozen=True, eq=False)
class Visit:
    """A page of a browser of its own, with what it did that nobody sees."""

    page: Page
    url: str
    complaints: list[str]
    requests: list[str]

    def goto(self, path: str) -> Page:
        """Open a page of the service."""
        answer = self.page.goto(path if path.startswith("http") else self.url + path)
        assert answer is not None
        return self.page

    def see(self, text: str) -> None:
        """Load the page anew until it shows something that is being made."""
        for _ in range(PATIENCE // 500):
            if text in self.page.locator("main").inner_text():
                return
            self.page.wait_for_timeout(500)
            self.page.goto(self.page.url)
        raise AssertionError(f"there is no {text}")

    def state(self, name: str, *, reload: bool = False) -> None:
        """Wait until the page of a request says so: by itself, or by loading it anew."""
        from playwright.sync_api import expect

        badge = self.page.locator("#live .badge")
        if not reload:
            expect(badge).to_have_text(name, timeout=PATIENCE)
            return
        for _ in range(PATIENCE // 500):
            if badge.inner_text().endswith(name):
                return
            self.page.wait_for_timeout(500)
            self.page.goto(self.page.url)
        raise AssertionError(f"it is {badge.inner_text()}, and not {name}")


class Visits:
    """Opens browsers, and looks afterwards whether they complained."""

    def __init__(self, browser: Browser, served: Served) -> None:
        self._browser, self._served = browser, served
        self.made: list[tuple[BrowserContext, Visit]] = []

    def __call__(self, **options: Any) -> Visit:
        """Open a browser; `options` are those of `Browser.new_context`."""
        context = self._browser.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        visit = Visit(page, self._served.url, [], [])
        page.on("console", lambda message: visit.complaints.append(message.text))
        page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        page.on("request", lambda request: visit.requests.append(request.url))
        self.made.append((context, visit))
        return visit


@pytest.fixture
def visits(browser: Browser, served: Served) -> Iterator[Visits]:
    found = Visits(browser, served)
    yield found
    for context, visit in found.made:
        context.close()
        # a refused style or script is told on the console
        assert [each for each in visit.complaints if "status of 4" not in each] == []
        assert all(each.startswith((served.url + "/", "data:")) for each in visit.requests), (
            "no other host is asked"
        )
