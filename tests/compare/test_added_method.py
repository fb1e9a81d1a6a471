"""The example of docs/compare.md, for real: installed as a package would be, and compared by the command."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from disavow.compare.method import METHODS, Method
from tests.cli.process import COMMAND, ROOT, environment, run
from tests.compare.conftest import SETTINGS

PAGE = ROOT / "docs" / "compare.md"


def test_the_method_of_the_page_is_compared(tmp_path: Path, compared: Path) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.M)
    assert len(code.splitlines()) <= 45
    metadata = tmp_path / "site" / "example-1.0.dist-info"
    metadata.mkdir(parents=True)
    (tmp_path / "site" / "example.py").write_text(code, encoding="utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[disavow.strategies]\nexample = example\n")
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT / "src"), str(ROOT)])
    methods = "retrain-from-scratch,noise-and-repair"
    line = ["compare", str(compared), "--client", "client-03", "--quick", "--methods", methods, "--json"]
    line += ["--jobs", "2"]  # its processes find it, too
    done = run([*COMMAND, *line], cwd=tmp_path, env=environment(PYTHONPATH=path))
    assert done.returncode == 0, done.stderr
    found = {each["method"]: each["figures"] for each in json.loads(done.stdout)["methods"]}
    assert list(found) == ["retrain-from-scratch", "noise-and-repair"]
    epochs = SETTINGS["training"]["epochs"]
    assert found["noise-and-repair"]["client_epochs"]["mean"] == 2 * 7 * epochs
    assert found["noise-and-repair"]["work"]["mean"] == 2 / 3


def test_the_page_lists_every_method_with_what_it_declares() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, method in METHODS.items():
        declared = [method.scheme, method.stores, *("yes" if each else "no" for each in _flags(method))]
        assert f"| `{name}` | {' | '.join(declared)} | {method.claim} |" in text


def _flags(method: Method) -> tuple[bool, bool, bool]:
    return method.leaver_helps, method.needs_public_data, method.exact
