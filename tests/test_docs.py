"""Every command, error and setting is documented; the pages made from the code are current."""

from __future__ import annotations

import importlib.util
import pydoc
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from disavow.ledger import fsck

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert spec is not None
assert spec.loader is not None
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


@pytest.mark.parametrize("page", sorted(generate.PAGES))
def test_reference_pages_are_current(page: str) -> None:
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == generate.PAGES[page](), "run: python docs/generate.py"


def test_the_python_on_the_page_about_engines_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(compile(code, "docs/engines.md", "exec"), found)
    assert found["recorded"].number == 4
    assert not fsck(tmp_path / "runs" / "own")


PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_python_name_in_the_docs_exists(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in re.findall(r"`(disavow(?:\.[A-Za-z_]+)+)`", text):
        if find_spec("flwr") is None and ".flower" in name:
            continue
        assert pydoc.locate(name) is not None, name


def prose_of(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """The names that a page gives, and those of its headings: lower case, hyphens, no punctuation."""
    prose = prose_of(page)
    headings = re.findall(r"^#+ +(.*?) *$", prose, re.MULTILINE)
    texts = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading) for heading in headings]
    named = re.findall(r'<a id="(.*?)">', prose)
    return {*named, *(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts)}


@pytest.mark.parametrize("page", [*PAGES, *(path.relative_to(ROOT) for path in ROOT.glob("*.md"))], ids=str)
def test_every_link_leads_to_a_file_and_a_place_in_it(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(ROOT / page)):
        if re.match(r"\w+:", target):  # the web
            continue
        file, _, anchor = target.partition("#")
        found = (ROOT / page).parent / file if file else ROOT / page
        assert found.exists(), target
        assert not anchor or anchor in anchors_of(found), target


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_nothing_is_left_to_be_filled_in(page: Path) -> None:
    assert not re.findall(r"@@|\bTODO\b|\bTBD\b|\bXXX\b", prose_of(ROOT / page))


def test_readme_names_only_commands_and_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for word in {line.split()[1] for line in text.splitlines() if line.startswith(("disavow ", "$ disavow "))} - {
        "disavow"
    }:
        assert f"`disavow {word}" in commands, word
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_architecture_names_files_and_functions_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "disavow"
    files = set(re.findall(r"`([\w/]+/\w+\.py)(?:::\w+)?`", text))
    assert len(files) > 30
    for file in files:
        assert (package / file).exists() or (ROOT / file).exists(), file
    for file, name in re.findall(r"`([\w/]+\.py)`, `([\w.]+)`", text):
        source = (package / file).read_text(encoding="utf-8")
        assert all(
            re.search(rf"^ *(?:async def|def|class) {each}\b", source, re.MULTILINE) for each in name.split(".")
        ), name
    for folder in re.findall(r"`(\w+(?:/\w+)*/)`", text):
        assert (package / folder).is_dir() or (ROOT / folder).is_dir(), folder
