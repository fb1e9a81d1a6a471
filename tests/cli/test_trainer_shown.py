"""Which trainer trained a round is recorded and shown: without a compiler another one does it, with other bits."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from disavow.engines.compiled.build import NoKernels, load
from disavow.ledger import Ledger
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import COMMAND, environment, write_config
from tests.conftest import SMALL

try:
    load()
except NoKernels as reason:
    pytest.skip(f"no kernels: {reason}", allow_module_level=True)

pytestmark = pytest.mark.skipif(find_spec("ziglang") is not None, reason="there is always a compiler here")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds trained with a compiler, the third where there is none."""
    folder = tmp_path_factory.mktemp("trainers")
    file = write_config(folder / "config.toml", {**SMALL, "rounds": 2})
    first = disavow("train", file, "--run", folder / "run")
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("trained by compiled") == 1
    kept = folder / "run" / "config.toml"
    kept.write_text(re.sub(r"(?m)^rounds = 2$", "rounds = 3", kept.read_text()))
    without = {**environment(), "PATH": ""}
    without.pop("CXX", None)
    second = process.run([*COMMAND, "resume", str(folder / "run")], cwd=None, env=without)
    assert second.returncode == 0, second.stderr
    assert "no C++ compiler" in second.stderr
    assert "round 3: trained by pool, the rounds before it by compiled" in second.stderr
    return folder / "run"


def test_the_ledger_knows_who_trained_each_round(run: Path) -> None:
    with Ledger.open(run) as ledger:
        assert [summary.trainer for summary in ledger.summaries()] == ["compiled", "compiled", "pool"]


def test_status_shows_it(run: Path) -> None:
    assert "compiled (rounds 1 to 2), pool (round 3)" in disavow("status", run).stdout
    document = json.loads(disavow("status", run, "--json").stdout)
    assert [one["trainer"] for one in document["rounds"]] == ["compiled", "compiled", "pool"]
