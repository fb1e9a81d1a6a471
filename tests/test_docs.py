"""Every command, error and setting is documented; the pages made from the code are current."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

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


def test_readme_names_only_commands_and_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for word in {line.split()[1] for line in text.splitlines() if line.startswith(("disavow ", "$ disavow "))} - {
        "disavow"
    }:
        assert f"`disavow {word}" in commands, word
    for target in __import__("re").findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target
