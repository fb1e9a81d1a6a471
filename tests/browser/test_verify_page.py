"""The verify page in Chromium: it agrees with Python, asks nobody, never stands still, and anybody can use it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from disavow.proof import canonical
from disavow.proof.envelope import seal
from disavow.proof.verify import CHECKS
from tests.browser.conftest import PATIENCE, disavow
from tests.browser.test_looks import serious
from tests.proof.made_proofs import SERVER, signer_named
from tests.proof.vectors.short import short
from tests.proof.vectors.valid import LEAVER
from tests.verifier.cases import VECTORS, Case, answered, mutated, vectors

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LARGEST_PAGE = 200_000
BATCH = 250
FREEZE = 2_000
"""Milliseconds."""

VERIFY = """async (messages) => {
    const source = document.querySelector("script").textContent;
    const worker = new Worker(URL.createObjectURL(new Blob([source])));
    const bytes = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
    const file = (text) => text === null ? null : new Blob([bytes(text)]);
    const reports = [];
    for (const { files, options } of messages) {
        const { model, ...more } = options;
        const given = Object.fromEntries(Object.entries(files).map(
            ([role, data]) => [role, role === "receipts" ? data.map(file) : file(data)]));
        reports.push(await new Promise((resolve, reject) => {
            worker.onmessage = ({ data }) => data.report ? resolve(data.report) : reject(new Error(data.error));
            worker.postMessage({ id: 0, files: given, options: more });
        }));
    }
    worker.terminate();
    return reports;
}"""
"""Ask a worker as the page makes it, of the script in the page."""


class Sheet:
    """The page, opened from a file."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.requests, self.complaints = page, list[str](), list[str]()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(address)

    def choose(self, **files: Path | list[Path]) -> None:
        """Choose files in their places, one after the other."""
        for role, chosen in files.items():
            self.page.set_input_files(f"#file-{role}", chosen)

    def heading(self) -> str:
        """Wait for the verdict."""
        self.page.locator("#result:not([hidden]) #heading").wait_for()
        found: str = self.page.locator("#heading").inner_text()
        return found

    def verify(self, cases: list[Case]) -> list[Any]:
        """Ask the page's worker."""
        found: list[Any] = self.page.evaluate(VERIFY, [case.message() for case in cases])
        return found


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "verify.html"
    disavow("verifier", "-o", path)
    assert path.stat().st_size < LARGEST_PAGE
    return path


@pytest.fixture
def sheet(browser: Browser, written: Path) -> Iterator[Callable[..., Sheet]]:
    made = []

    def open_page(**options: Any) -> Sheet:
        context = browser.new_context(offline=True, **options)
        found = Sheet(context.new_page(), written.as_uri())
        made.append((context, found))
        return found

    yield open_page
    for context, found in made:
        context.close()
        assert found.complaints == []  # a request that the policy refuses is told on the console
        assert {each.partition(":")[0] for each in found.requests} <= {"file", "blob"}
        assert len([each for each in found.requests if each.startswith("file:")]) == 1


def without_model(found: Iterator[tuple[Case, Any]]) -> list[tuple[Case, Any]]:
    """A vector has the digest of a model and no file that has it."""
    return [(case, expected) for case, expected in found if case.model is None]


def test_every_vector_agrees_with_python(sheet: Callable[..., Sheet]) -> None:
    cases = without_model(vectors())
    assert len(cases) > 400
    reports = sheet().verify([case for case, _ in cases])
    for (case, _), report in zip(cases, reports, strict=True):
        assert answered(report) == case.expected(), case.about


@pytest.mark.parametrize(
    "count", [500, pytest.param(10_000, marks=[pytest.mark.torture, pytest.mark.timeout(1_800)])]
)
def test_mutations_agree_with_python(sheet: Callable[..., Sheet], count: int) -> None:
    opened, cases, refused = sheet(), list(mutated(count)), set()
    assert len(cases) == count
    for start in range(0, len(cases), BATCH):
        batch = cases[start : start + BATCH]
        for case, report in zip(batch, opened.verify(batch), strict=True):
            assert answered(report) == case.expected(), case.about
            refused.add((report["failed"] or {}).get("number"))
    assert len(refused) > 10
    if count >= 10_000:
        assert refused >= {None, *range(1, 15)}


def test_witnesses_are_recognised_and_so_many_must_have_cosigned(sheet: Callable[..., Sheet]) -> None:
    opened = sheet()
    page = opened.page
    dropped = ("proofs/witness-missing.json", "keys/server.pub", "openings/witness-all.json")
    page.set_input_files("#files", [VECTORS / name for name in (*dropped, "witnesses/witness-all.txt")])
    assert opened.heading() == "Not valid"
    assert "third.example.net" in page.locator("#explanation").inner_text()
    page.get_by_label("How many witnesses").fill("2")
    page.get_by_label("How many witnesses").press("Enter")
    page.locator("#heading", has_text=re.compile("^Valid$")).wait_for()
    assert "2 of 3 have cosigned" in page.locator("#checks tr").nth(CHECKS.index("witnesses")).inner_text()


def test_the_whole_path_by_the_file_inputs(sheet: Callable[..., Sheet]) -> None:
    opened = sheet()
    page = opened.page
    opened.choose(proof=VECTORS / "proofs" / "deniable.json")
    assert "public key" in page.locator("#state").inner_text()
    opened.choose(keys=VECTORS / "keys" / "server.pub")
    assert opened.heading() == "Valid, but it names nobody"
    opened.choose(opening=VECTORS / "openings" / "deniable.json")
    page.locator("#heading", has_text=re.compile("^Valid$")).wait_for()
    assert "client-01" in page.locator("#explanation").inner_text()
    rows = page.locator("#checks tr")
    assert rows.count() == len(CHECKS)
    assert re.match(r"1\s+readable\s+✓ Passed", rows.first.inner_text())
    assert "deniable does not mean not used" in page.locator("#limits").inner_text()
    page.get_by_label("Client id").fill("client-1")
    page.get_by_label("Client id").press("Tab")
    page.locator("#heading", has_text="Not valid").wait_for()
    assert "Check 14 (opening)" in page.locator("#explanation").inner_text()


def test_files_are_dropped_together_and_found_by_what_they_are(sheet: Callable[..., Sheet]) -> None:
    opened = sheet()
    names = [
        "proofs/rollback.json",
        "keys/server.pub",
        "openings/rollback.json",
        "checkpoints/with-this-checkpoint.txt",
    ]
    files = [[Path(name).name, base64.b64encode((VECTORS / name).read_bytes()).decode()] for name in names]
    opened.page.evaluate(
        """(files) => {
        const data = new DataTransfer();
        for (const [name, text] of [...files, ["what.txt", btoa("nothing")]])
            data.items.add(new File([Uint8Array.from(atob(text), (each) => each.charCodeAt(0))], name));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }""",
        files,
    )
    assert opened.heading() in ("Valid", "Not valid")
    shown = {
        role: opened.page.locator(f"#name-{role}").inner_text()
        for role in ("proof", "keys", "opening", "checkpoint")
    }
    assert shown == {
        "proof": "rollback.json",
        "keys": "server.pub",
        "opening": "rollback.json",
        "checkpoint": "with-this-checkpoint.txt",
    }
    assert "what.txt" in opened.page.locator("#notice").inner_text()


def test_a_model_file_and_a_receipt(sheet: Callable[..., Sheet], tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"another model" * 100_000)
    opened = sheet()
    opened.choose(proof=VECTORS / "proofs" / "deniable.json", keys=VECTORS / "keys" / "server.pub", model=model)
    assert opened.heading() == "Valid, but of another model"
    receipt = next(
        path
        for path in sorted((VECTORS / "receipts").rglob("*.json"))
        if b"disavow/receipt/v2" in path.read_bytes()
    )
    opened.choose(proof=receipt)
    opened.page.locator("#heading", has_text="Valid receipt").wait_for()


def hostile(folder: Path) -> Iterator[tuple[str, dict[str, Path]]]:
    """Files as large as are read, each of which costs a careless verifier much."""
    key, limit = str(SERVER.public), 16 << 20

    def files(name: str, proof: bytes, keys: str = key, **more: bytes) -> tuple[str, dict[str, Path]]:
        found = {"proof": proof, "keys": keys.encode(), **more}
        paths = {role: folder / f"{name}-{role}" for role in found}
        for role, data in found.items():
            paths[role].write_bytes(data)
        return name, paths

    made = short("hostile", x=2).train(3).leave(LEAVER).proof(LEAVER)
    statement = json.loads(made.payload)
    yield files("brackets", b"[" * limit)
    yield files("strings", b"[" + b",".join([b'""'] * 1_400_000) + b"]")
    yield files("one-string", b'"' + b"\\u00e9" * (limit // 6 - 1) + b'"')
    yield files("too-large", b"{" * (limit + 5))
    yield files("bomb", seal(b" " * limit, SERVER, packed=True))
    bomb = zlib.compress(b" " * (1 << 30), 9)
    packed = json.loads(seal(b"", SERVER, packed=True))
    packed["payload"] = base64.b64encode(bomb).decode()
    yield files("gigabyte", canonical.encode(packed))
    closed = {"type": "closed rounds", "rounds": base64.b64encode(bytes(64 * 180_000)).decode()}
    long = {**statement, "predicate": {**statement["predicate"]}}
    long["predicate"]["leaves"] = [statement["predicate"]["leaves"][0], closed]
    yield files("long-log", seal(canonical.encode(long), SERVER, packed=True))
    many = {**statement, "predicate": {**statement["predicate"]}}
    many["predicate"]["leaves"] = statement["predicate"]["leaves"][:1] * 15_000
    yield files("many-leaves", seal(canonical.encode(many), SERVER, packed=True))
    entry = {"key": key, "from": "2026-01-01T00:00:00.000000+00:00", "until": None, "revoked": None}
    others = [{**entry, "key": str(signer_named(f"key-{number}").public)} for number in range(4_000)]
    keys = json.dumps({"type": "disavow/keys/v2", "keys": [*others, entry]})
    line = statement["predicate"]["checkpoint"].rpartition("\n\n")[2]
    note = (statement["predicate"]["checkpoint"] + line * 130)[:16_000].rpartition("\n")[0] + "\n"
    yield files("many-keys", made.proof, keys, checkpoint=note.encode())
    yield files("opening", made.proof, opening=b"[" + b",".join([b"1"] * 8_000_000) + b"]")


def test_no_hostile_file_makes_the_page_stand_still(sheet: Callable[..., Sheet], tmp_path: Path) -> None:
    opened = sheet()
    opened.page.evaluate(
        """() => {
        let last = performance.now();
        window.longest = 0;
        setInterval(() => {
            const now = performance.now();
            window.longest = Math.max(window.longest, now - last);
            last = now;
        }, 10);
    }"""
    )
    for name, files in hostile(tmp_path):
        opened.page.set_input_files("#files", files["proof"])  # the page looks what it is
        opened.choose(keys=files["keys"], proof=files["proof"])
        if more := {role: path for role, path in files.items() if role not in ("keys", "proof")}:
            opened.choose(**more)
        assert opened.heading() in ("Not valid", "Cannot be read", "Valid, but it names nobody"), name
        assert opened.page.evaluate("window.longest") < FREEZE, name
        for button in opened.page.get_by_role("button", name="Remove the").all()[::-1]:
            button.click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(sheet: Callable[..., Sheet], scheme: str) -> None:
    opened = sheet(color_scheme=scheme)
    assert serious(opened.page) == []
    files = {"proof": VECTORS / "proofs" / "deniable.json", "keys": VECTORS / "keys" / "server.pub"}
    opened.choose(**files)
    opened.heading()
    opened.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert serious(opened.page) == []
    opened.choose(keys=VECTORS / "keys" / "stranger.pub")
    opened.page.locator("#heading", has_text="Not valid").wait_for()
    assert serious(opened.page) == []


def test_it_fits_a_phone_and_the_dark(sheet: Callable[..., Sheet]) -> None:
    opened = sheet(color_scheme="dark", viewport={"width": 320, "height": 640}, is_mobile=True)
    opened.choose(proof=VECTORS / "proofs" / "rollback.json", keys=VECTORS / "keys" / "server.pub")
    opened.heading()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 320
    colour = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall("[0-9]+", colour)[:3])) < 60


def test_it_can_be_used_with_a_keyboard_alone(sheet: Callable[..., Sheet]) -> None:
    page = sheet().page
    # or the browser is told to hand over a chooser only when somebody waits for it, which may come after the key
    page.on("filechooser", lambda chooser: None)

    def tab_to(selector: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"no key leads to {selector}")

    for selector, path in (("#file-proof", "proofs/deniable.json"), ("#file-keys", "keys/server.pub")):
        tab_to(selector)
        with page.expect_file_chooser() as waiting:
            page.keyboard.press("Space")
        waiting.value.set_files(VECTORS / path)
    page.locator("#result:not([hidden])").wait_for()
    assert page.evaluate("document.activeElement.id") == "heading"
    tab_to("summary")
    page.keyboard.press("Enter")
    assert page.locator("#facts").is_visible()


def test_text_of_a_file_is_never_markup_and_hides_nothing(sheet: Callable[..., Sheet], tmp_path: Path) -> None:
    opening = tmp_path / "opening.json"
    data = json.loads((VECTORS / "openings" / "deniable.json").read_bytes())
    opening.write_bytes(canonical.encode({**data, "client": "<img src=x onerror=alert(1)>\u202egpj"}))
    opened = sheet()
    opened.choose(proof=VECTORS / "proofs" / "deniable.json", keys=VECTORS / "keys" / "server.pub", opening=opening)
    opened.page.locator("#heading", has_text="Not valid").wait_for()
    assert opened.page.locator("img").count() == 0
    assert "\u202e" not in opened.page.locator("main").inner_text()


def test_the_policy_lets_nothing_out(sheet: Callable[..., Sheet]) -> None:
    opened = sheet()
    found = opened.page.evaluate(
        """async () => { const tried = [];
        for (const go of [() => fetch("https://example.org/"), () => fetch("data:,x")])
            tried.push(await go().then(() => "out", () => "refused"));
        return tried; }"""
    )
    assert found == ["refused", "refused"]
    assert any("Content Security Policy" in each for each in opened.complaints)
    opened.complaints.clear()
    opened.requests[:] = [each for each in opened.requests if each.startswith(("file:", "blob:"))]
