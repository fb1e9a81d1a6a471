"""`disavow erase` where it cannot be done: its exit code, and that nothing was changed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from disavow import config
from disavow.domain import TrainedBy
from disavow.errors import ConfigError, IntegrityError, KeyringMissing, LedgerVersion, RunMissing, UnknownClient
from disavow.federation import Federation
from disavow.ledger import fsck
from disavow.ledger.database import NAME
from disavow.ledger.id_search import files_with
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now
from tests.cli.erasing import SETTINGS, Command, contents, models, states
from tests.cli.process import assert_refused
from tests.data.making import write

# -- refusals ----------------------------------------------------------------------------------------------------


def test_an_unknown_client_is_exit_7_and_then_nobody_is_placed(run: Path, disavow: Command) -> None:
    for more in ([], ["--dry-run"]):
        result = disavow("erase", run, "client-01", "nobody", *more)
        assert_refused(result, UnknownClient, "'nobody'")
    assert states(run) == []


def test_an_id_that_is_no_text_is_exit_7_like_any_other_unknown_one(run: Path, disavow: Command) -> None:
    """Bytes that are no UTF-8 reach a program as lone surrogates."""
    result = disavow("erase", run, b"\xff\xfe".decode(errors="surrogateescape"))
    assert result.returncode == 7, result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert states(run) == []


def test_nobody_named_is_exit_2(run: Path, disavow: Command) -> None:
    result = disavow("erase", run)
    assert result.returncode == 2
    assert "CLIENT" in result.stderr
    assert states(run) == []


def test_no_run_is_exit_2_and_none_comes_into_being(tmp_path: Path, disavow: Command) -> None:
    for result in (disavow("erase", tmp_path / "no", "client-01"), disavow("requests", tmp_path / "no")):
        assert_refused(result, RunMissing, tmp_path / "no")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_is_exit_1_and_nothing_is_changed(run: Path, disavow: Command) -> None:
    victim = sorted((run / "models").iterdir())[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    before = contents(run)
    result = disavow("erase", run, "client-01", "--check")
    assert_refused(result, IntegrityError, victim.name[:12])
    assert contents(run) == before


def test_a_wrong_passphrase_is_exit_2_and_nobody_is_placed(
    run: Path, disavow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(run.parent / "keys", name="tests", passphrase="right", at=time_to_text(now()))
    monkeypatch.setenv("DISAVOW_PASSPHRASE", "wrong")
    result = disavow("erase", run, "client-01")
    assert_refused(result, ConfigError, "signing.pem")
    assert states(run) == []


def test_a_rollback_whose_data_is_gone_is_exit_10_and_deniable_ones_are_answered_all_the_same(
    tmp_path: Path, disavow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    data = write(tmp_path / "data")
    settings = {**SETTINGS, "rounds": 1, "data": {"name": "mnist", "clients": 8, "dir": str(data)}}
    run = tmp_path / "run"
    with Federation.create(run, config.from_values(settings, source="tests")) as started:
        started.train()
        smaller, larger = sorted((sorted(group) for group in started.ledger.membership(1)), key=len)
    shutil.rmtree(data)
    answered = disavow("erase", run, larger[0])
    assert answered.returncode == 0, answered.stderr
    before = models(run)
    result = disavow("erase", run, *smaller[:-1], "--yes", "--json")
    assert result.returncode == 10
    state_of_client = {one["client"]: one["state"] for one in json.loads(result.stdout)["requests"]}
    assert state_of_client == {**dict.fromkeys(smaller[:-2], "answered"), smaller[-2]: "waiting"}
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"error DSV-302: {smaller[-2]}: ")
    assert str(data) in error
    assert models(run) == before
    assert fsck(run) == []


def test_a_run_of_own_code_is_never_retrained_on_something_else(
    run: Path, pair: list[str], disavow: Command
) -> None:
    """As `Ledger.create` records it; what trained it is not what config.toml says."""
    with closing(sqlite3.connect(run / NAME)) as connection, connection:
        connection.execute("UPDATE run SET trainer = ?", (TrainedBy("python").to_json(),))
    before = models(run)
    foretold = disavow("erase", run, *pair, "--dry-run")
    assert foretold.returncode == 0
    assert "cannot be trained here" in foretold.stdout
    assert json.loads(disavow("erase", run, *pair, "--dry-run", "--json").stdout)["cannot_retrain"]
    for refused in (disavow("erase", run, *pair, "--yes"), disavow("resume", run)):
        assert refused.returncode == 10, refused.stderr
        assert "docs/erasure.md" in refused.stderr.splitlines()[-1]
    assert models(run) == before
    assert states(run)[-1] == "waiting"
    assert disavow("audit", run, "--client", pair[-1]).returncode != 0
    dropped = disavow("erase", run, pair[-1], "--yes", "--without-retraining")
    assert dropped.returncode == 0, dropped.stderr
    assert "not retrained: retraining was declined; the initial model is served" in dropped.stdout
    assert models(run) == []
    assert states(run) == ["answered"] * len(pair)


def test_a_missing_keyring_is_exit_2_and_says_where_to_look(run: Path, disavow: Command) -> None:
    assert disavow("erase", run, "client-01").returncode == 0
    result = disavow("erase", run, "client-02", keys=run.parent / "other keys")
    assert_refused(result, KeyringMissing, "DISAVOW_KEYS")
    assert states(run) == ["answered"]
    assert not (run.parent / "other keys").exists()


def test_keys_inside_the_run_are_exit_2(run: Path, disavow: Command) -> None:
    shutil.copytree(run.parent / "keys", run / "keys")
    before = contents(run)
    result = disavow("erase", run, "client-01", keys=run / "keys")
    assert_refused(result, ConfigError, run / "keys")
    assert contents(run) == before


def test_an_older_format_is_not_taken_for_damage(run: Path, disavow: Command) -> None:
    with closing(sqlite3.connect(run / NAME)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        connection.commit()
    result = disavow("erase", run, "client-01")
    assert_refused(result, LedgerVersion, "0001")


# -- a disk that refuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rollback", "limit"),
    [
        (True, 60_000),  # too small for what a verdict writes
        (True, 100_000),  # too small for the log of a rebuild
        (False, 60_000),  # likewise, where nothing is undone
    ],
)
def test_files_that_may_not_grow_are_exit_14_and_resume_completes_what_they_stopped(
    run: Path, pair: list[str], rollback: bool, limit: int, disavow: Command
) -> None:
    assert (run / NAME).stat().st_size > limit
    leavers: Sequence[str] = pair if rollback else pair[:1]
    result = disavow("erase", run, *leavers, "--yes", limit=limit)  # a limit of the system, not a full disk
    assert result.returncode == 14, result.stderr
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"error DSV-701: {run} cannot be read or written: ")
    assert f"`disavow resume {run}` goes on" in error
    assert "make room" not in error
    assert "Traceback" not in result.stderr
    assert [str(finding) for finding in fsck(run) if finding.fault] == []
    assert len(states(run)) == len(leavers)
    assert "answered" not in states(run)
    result = disavow("resume", run)
    assert result.returncode == 0, result.stderr
    assert states(run) == ["answered"] * len(leavers)
    assert [(number, attempt) for number, attempt, _ in models(run)] == [(n, 1 + rollback) for n in (1, 2, 3)]
    assert fsck(run) == []
    for client in leavers:
        assert files_with(run, client) == []
