"""An id is data from elsewhere: what it holds beyond printable characters never reaches a terminal as it is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from disavow import config, runs
from disavow.cli.audit import lines
from disavow.cli.output import print_json
from disavow.data import load
from disavow.domain import Layout, TensorSpec, escaped
from disavow.errors import RoundRefused
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.local_training import accept
from disavow.rounds.options import now
from disavow.rounds.vectors import Updates
from disavow.tasks import ImageTask
from tests.audit.test_report import LESS, MORE, SAME, audit
from tests.cli.forked import disavow
from tests.conftest import SMALL

HOSTILE = "nobody\x1b[2J\x1b]0;title\x07\r\n\nVALID proof about 'everybody'.\u202e\u2066\x9b31m\x7f\u200b\u2028\t"
"""Clears the screen, sets the title, forges a line, turns the text around, hides characters."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A signed run in which one client has a hostile id."""
    folder = tmp_path_factory.mktemp("hostile")
    generate(folder / "keys", name="tests", passphrase=None, at=time_to_text(now()))
    settings = config.from_values({**SMALL, "rounds": 2}, source="tests")
    data = load(settings.data, seed=settings.seed)
    names = [HOSTILE if name == "client-03" else name for name in data.parts]
    data = replace(data, parts=dict(zip(names, data.parts.values(), strict=True)))
    made = runs.prepare(settings, ImageTask(settings.data, settings.model, data))
    prepared = runs.Prepared(made.loaded, made.engine)
    with Federation.create(folder / "run", settings, keys=folder / "keys", prepared=prepared) as run:
        run.train()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISAVOW_KEYS", str(folder / "keys"))
        yield folder


def clean(result: subprocess.CompletedProcess[str], *, status: int = 0) -> None:
    assert result.returncode == status, result.stderr
    for output in (result.stdout, result.stderr):
        assert [character for character in output if not (character.isprintable() or character == "\n")] == []
        assert not any(line.startswith("VALID proof about 'everybody'") for line in output.splitlines())


def named(result: subprocess.CompletedProcess[str], *path: str | int) -> str:
    """The id that a command tells as JSON: escaped in the text, itself once it is read."""
    clean(result)
    found = json.loads(result.stdout)
    for step in path:
        found = found[step]
    return str(found)


def test_no_command_prints_an_id_as_it_is(folder: Path) -> None:
    run, keys, out = folder / "run", folder / "keys", folder / "out"
    clean(disavow("status", run))
    clean(disavow("erase", run, HOSTILE, "--dry-run"))
    assert named(disavow("erase", run, HOSTILE, "--dry-run", "--json"), "clients", 0) == HOSTILE
    clean(disavow("prove", run, HOSTILE, "-o", out))
    clean(disavow("receipt", run, HOSTILE, "-o", folder / "receipts"))
    assert named(disavow("receipt", run, HOSTILE, "-o", folder / "receipts", "--json"), "client") == HOSTILE
    clean(disavow("verify", folder / "receipts" / "receipt-1.json", "--key", keys / "signing.pub"))
    with Ledger.open(run, shared=True) as ledger:
        ledger.place_requests([HOSTILE], at=now())
    clean(disavow("requests", run))
    assert named(disavow("requests", run, "--json"), "requests", 0, "client") == HOSTILE
    clean(disavow("erase", run, HOSTILE))
    clean(disavow("erase", run, HOSTILE, "--dry-run"))
    assert named(disavow("erase", run, HOSTILE, "--json"), "requests", 0, "client") == HOSTILE
    [opening] = (folder / "run.openings").glob("request-1-*.json")
    verify = ("verify", run / "proofs" / "request-1.json", "--key", keys / "signing.pub", "--opening", opening)
    clean(disavow(*verify))
    assert named(disavow(*verify, "--json"), "names") == HOSTILE
    clean(disavow(*verify, "--client", HOSTILE + "\x1b"), status=1)
    clean(disavow("fsck", run, "--absent", HOSTILE))
    for command in ("erase", "audit --client"):
        name, *option = command.split()
        clean(disavow(name, run, *option, HOSTILE + "\x1b"), status=7)


def test_a_refused_round_names_clients_escaped() -> None:
    layout = Layout((TensorSpec("weight", (4,)),))
    updates = Updates((HOSTILE, "b", "c"), (1, 1, 1), torch.full((3, 4), float("nan")))
    with pytest.raises(RoundRefused) as refused:
        accept(updates, layout=layout, k=2, round_number=1)
    assert str(refused.value).isprintable()


def test_a_report_of_an_audit_names_its_client_escaped() -> None:
    for attackers in ((SAME,), (MORE,), (LESS,)):
        report = replace(audit(*attackers), client=HOSTILE)
        assert all(line.isprintable() for line in (*report.conclusion(), *lines(report, Path("run"))))


@pytest.mark.parametrize("text", ["client-07", "Zoë", "客户", "a b", "back\\slash", "it's"])
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    assert escaped(text) == text


def test_escaping_twice_is_escaping_once() -> None:
    assert escaped(escaped(HOSTILE)) == escaped(HOSTILE)
    assert escaped(HOSTILE + "\ud800").isprintable()


def test_json_reads_back_as_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"ids": [HOSTILE, "\U000e0001", "Zoë", "\ud800"], HOSTILE: 1}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert [character for character in printed if not (character.isprintable() or character == "\n")] == []
    assert "Zoë" in printed
