"""Whoever opens a run sees what it holds, and nothing that is damaged."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from disavow.domain import Evaluation
from disavow.errors import IntegrityError, LedgerError
from disavow.ledger import Ledger
from disavow.ledger.database import NAME
from tests.ledger.making import LAYOUT, MOMENT, POLICY, change, create, record_next, vector
from tests.refusals import refuses


def test_policy_layout_and_origin_read_back_equal(tmp_path: Path) -> None:
    with create(tmp_path / "run") as made:
        run_id = made.run_id
    with Ledger.open(tmp_path / "run") as ledger:
        assert (ledger.policy, ledger.layout, ledger.run_id) == (POLICY, LAYOUT, run_id)
        assert (ledger.created_at, ledger.created_by) == (MOMENT, "tests")


def test_summaries_and_evaluations_read_back(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        one, two = record_next(ledger), record_next(ledger)
        assert ledger.unevaluated() == (1, 2)
        ledger.note_evaluation(1, Evaluation(0.5, 1.25))
        ledger.note_evaluation(1, Evaluation(0.75, 1.0))
        ledger.note_evaluation(2, Evaluation(0.125, float("inf")))
        assert ledger.unevaluated() == ()
        first, second = ledger.summaries()
        assert ledger.summary(1) == first
        assert (first.number, first.attempt, first.standing) == (1, 1, True)
        assert (first.participants, first.clusters, first.delta, first.spread) == (4, 2, 0.25, 0.25)
        assert (first.after, first.recorded_at, first.evaluation) == (one.after, MOMENT, Evaluation(0.75, 1.0))
        assert second.after == two.after
        assert second.evaluation is not None
        assert second.evaluation.accuracy == 0.125
        assert second.evaluation.loss != second.evaluation.loss


def test_the_mean_is_of_the_newest_standing_models(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        made = [record_next(ledger).after for _ in range(3)]
        mean, digests = ledger.mean_model(2)
        assert digests == (made[1], made[2])
        assert mean.dtype == np.float32
        np.testing.assert_allclose(mean, (vector(2).astype(np.float64) + vector(3)) / 2, rtol=1e-6)
        assert ledger.mean_model(1)[0].tobytes() == vector(3).tobytes()
        with refuses(LedgerError, "round 0"):
            ledger.mean_model(4)


def test_models_before_and_after_chain_from_the_initial_to_the_next_round(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        assert ledger.model_before(1).tobytes() == vector(0).tobytes()
        assert ledger.digest_before(1) == ledger.initial_model
        for number in (1, 2):
            record_next(ledger)
            assert ledger.model_before(number).tobytes() == vector(number - 1).tobytes()
            assert ledger.model_after(number).tobytes() == vector(number).tobytes()
        assert ledger.next_round() == (3, 1)
        assert ledger.model_before(3).tobytes() == vector(2).tobytes()
        for beyond in (lambda: ledger.model_before(4), lambda: ledger.model_after(3), lambda: ledger.round(0)):
            with refuses(LedgerError, "no standing round"):
                beyond()


@pytest.mark.sqlite
def test_rounds_with_is_answered_from_indices_alone(tmp_path: Path) -> None:
    statements: list[tuple[str, Any]] = []

    def listen(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        if statement.startswith("SELECT"):
            statements.append((statement, parameters))

    with create(tmp_path / "run") as ledger:
        for _ in range(3):
            record_next(ledger)
        sa.event.listen(ledger._engine, "before_cursor_execute", listen)
        assert ledger.rounds_with("ada") == (1, 2, 3)
        assert ledger.rounds_with("somebody else") == ()
    with closing(sqlite3.connect(tmp_path / "run" / NAME)) as connection:
        for statement, parameters in statements:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            scanned = [step for step in plan if step.startswith("SCAN") and "rounds" not in step]
            assert not scanned, plan
    assert any("memberships" in statement for statement, _ in statements)


def test_a_damaged_model_is_never_handed_out(run_dir: Path) -> None:
    with Ledger.open(run_dir) as ledger:
        path = ledger.store.path(ledger.summary(2).after)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with refuses(IntegrityError, path.name):
            ledger.model_after(2)
        with refuses(IntegrityError, path.name):
            ledger.model_before(3)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM run",
        "UPDATE run SET policy = '{}'",
        "UPDATE run SET layout = 'no JSON'",
        "UPDATE run SET created_at = 'once upon a time'",
    ],
)
def test_a_run_row_that_makes_no_sense_is_a_ledger_error(run_dir: Path, statement: str) -> None:
    change(run_dir, statement)
    with pytest.raises(LedgerError):
        Ledger.open(run_dir)


def test_a_reader_on_a_read_only_medium_sees_what_a_crash_left_in_the_write_ahead_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        # taken while the writer is alive: the round is in the log, not yet in the main file
        crashed = Path(shutil.copytree(tmp_path / "run", tmp_path / "crashed"))
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    try:
        with Ledger.open(crashed) as ledger:
            assert ledger.next_round() == (2, 1)
    except LedgerError as refusal:  # refusing is as good as reading; showing fewer rounds than there are is not
        assert "log" in str(refusal) or "read-only" in str(refusal)  # noqa: PT017


def test_times_are_kept_in_utc(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger, at=MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30))))
        assert ledger.round(1).recorded_at == MOMENT
        assert ledger.round(1).recorded_at.tzinfo == UTC
