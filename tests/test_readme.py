"""The README can be followed: its first run, line by line, as a new user types it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.cli.process import environment, run

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def commands_of(heading: str) -> str:
    """The commands of the console block under a heading, as a shell script."""
    section = README.split(f"\n## {heading}\n", 1)[1]
    [block] = re.findall(r"```console\n(.*?)```", section.split("\n## ", 1)[0], re.DOTALL)
    return str(re.sub(r"^\$ ", "", block, flags=re.MULTILINE))


def test_the_first_run_and_the_line_that_verifies_work_as_pasted(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    alone = environment(HOME=str(tmp_path), PATH="/usr/bin:/bin")
    alone.pop("DISAVOW_KEYS")
    followed = run(["bash", "-e", "-c", commands_of("A first run of your own")], cwd=tmp_path, env=alone)
    assert followed.returncode == 0, followed.stderr
    assert (tmp_path / "model.safetensors").is_file()
    [check] = re.findall(r"check it: (disavow verify .*)", followed.stdout)
    assert "--client client-07" in check
    pasted = run(["bash", "-c", f"source .venv/bin/activate; {check}"], cwd=tmp_path, env=alone)
    assert pasted.returncode == 0, pasted.stdout + pasted.stderr


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 155
