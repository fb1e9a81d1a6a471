"""The verify page is one small file whose policy allows what is in it, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

from disavow.errors import ConfigError
from disavow.proof.verify import CHECKS
from disavow.verifier.assemble import assemble
from tests.cli.process import assert_refused, disavow

MODULES = Path(__file__).parents[2] / "src" / "disavow" / "verifier" / "page"


def hash_of(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_has_the_hashes_of_script_and_style_and_no_source_beside_them() -> None:
    page = assemble().decode()
    [script] = re.findall("<script>(.*?)</script>", page, re.S)
    [style] = re.findall("<style>(.*?)</style>", page, re.S)
    [policy] = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert dict(each.split(" ", 1) for each in policy.split("; ")) == {
        "default-src": "'none'",
        "script-src": f"'{hash_of(script)}'",
        "style-src": f"'{hash_of(style)}'",
        "worker-src": "blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert page.index("Content-Security-Policy") < page.index("<style>"), "a policy holds for what follows it"


def test_it_is_small_and_refers_to_nothing_outside() -> None:
    page = assemble()
    assert len(page) < 200_000
    assert re.findall(rb"(?:src|href|action)=", page) == []
    assert re.findall(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", page) == []
    assert b"{{" not in page
    assert all(line.encode() in page for line in ("class Sha256", "answerMessages(globalThis)"))


def test_it_has_all_checks_under_their_names() -> None:
    listed = (MODULES / "checks.mjs").read_text(encoding="utf-8").partition("export const CHECKS = [")[2]
    assert tuple(re.findall(r'\["(\w+)", \w+\]', listed)) == CHECKS


def test_the_command_writes_it_and_keeps_what_is_there(tmp_path: Path) -> None:
    output = tmp_path / "verify.html"
    document = json.loads(disavow("verifier", "-o", output, "--json").stdout)
    assert document == {"page": str(output), "bytes": len(assemble())}
    assert output.read_bytes() == assemble()
    output.write_bytes(b"something else")
    assert_refused(disavow("verifier", "-o", output), ConfigError, "verify.html", "--force")
    assert disavow("verifier", "-o", output, "--force").returncode == 0
    assert output.read_bytes() == assemble()
