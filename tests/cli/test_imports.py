"""What the commands that only read or answer do not load: that is what makes them start quickly."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from disavow import config
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now
from tests.cli.process import environment, run
from tests.conftest import SMALL

NEVER = {
    *("torch", "scipy", "sklearn", "pandas", "matplotlib", "dp_accounting", "flwr"),
    *("alembic", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql"),
    "rich",
}
"""What no command loads that neither trains nor draws; Rich is for terminals."""

ARRAYS = {"numpy", "safetensors"}
"""What only those load that read the numbers of a model."""

CHECKS = {"disavow.run_checks", "disavow.ledger.fsck_run", "disavow.ledger.id_search"}

VERIFIER = {"disavow.proof.checks", "disavow.proof.verify", "disavow.erasure.prove", "disavow.erasure.erase"}
"""What only those load that answer, prove or check."""

PROGRAM = """
import json, sys
from disavow.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
finally:
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def signed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose log is signed and in which any one client is deniable; its keys lie beside it."""
    folder = tmp_path_factory.mktemp("imports")
    generate(folder / "keys", name="tests", passphrase=None, at=time_to_text(now()))
    settings = config.from_values({**SMALL, "rounds": 1, "deniability": {"x": 2}}, source="tests")
    with Federation.create(folder / "run", settings, keys=folder / "keys") as federation:
        federation.train()
    return folder / "run"


@pytest.mark.parametrize(
    ("arguments", "unloaded"),
    [
        (["status", "RUN"], NEVER | ARRAYS | CHECKS | VERIFIER),
        (["requests", "RUN"], NEVER | ARRAYS | CHECKS | VERIFIER),
        (["clients", "RUN"], NEVER | ARRAYS | CHECKS | VERIFIER),
        (["erase", "RUN", "client-01", "--dry-run"], NEVER | ARRAYS | CHECKS | VERIFIER),
        (["erase", "RUN", "client-01", "--yes"], NEVER | ARRAYS | CHECKS),
        (["receipt", "RUN", "client-01", "--output", "OUT"], NEVER | ARRAYS | CHECKS | VERIFIER),
        (["export", "RUN", "--output", "OUT"], NEVER | ARRAYS | CHECKS | VERIFIER),
        (["evidence", "ANSWERED", "1", "--output", "OUT", "--no-pdf"], NEVER | ARRAYS | CHECKS),
        (["fsck", "RUN"], NEVER),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_that_reads_or_answers_loads_only_what_it_needs(
    signed_run: Path, tmp_path: Path, arguments: list[str], unloaded: set[str]
) -> None:
    copied = shutil.copytree(signed_run.parent, tmp_path / "copied")
    paths = {"RUN": str(copied / "run"), "ANSWERED": str(copied / "run"), "OUT": str(tmp_path / "out")}
    if "ANSWERED" in arguments:
        with Federation.open(copied / "run", keys=copied / "keys") as federation:
            federation.erase("client-01")
    command = [sys.executable, "-c", PROGRAM, *(paths.get(argument, argument) for argument in arguments)]
    ended = run(command, cwd=None, env=environment(DISAVOW_KEYS=str(copied / "keys")))
    assert ended.returncode == 0, ended.stderr
    loaded = set(json.loads(ended.stdout.splitlines()[-1]))
    assert "disavow.ledger" in loaded
    assert loaded & unloaded == set()
