"""Erasures that are interrupted, or read while they happen, are completed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from disavow.domain import Cost, Evaluation, RequestState, Verdict
from disavow.ledger import backend, database, fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.keyring import Keyring
from disavow.ledger.keyring.table import TABLE
from disavow.ledger.ledger import Ledger as LedgerClass
from disavow.ledger.models import ModelStore
from disavow.ledger.transaction import Transaction
from disavow.rounds.vectors import Model
from tests.erasure.erased_runs import Interrupted, failing, forgotten, keys_of, toy
from tests.erasure.mechanisms.contract import (
    ToyEngine,
    ask,
    digests,
    faults,
    leave,
    reopen_toy,
    standing,
    start_toy,
    toy_settings,
)
from tests.selection import some_of


@dataclass(frozen=True)
class Undisturbed:
    """Two clients who take a rollback, the answers they are due, and the models that it ends in."""

    pair: list[str]
    due: list[tuple[Verdict | None, Cost | int | None]]
    models: list[str]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    with start_toy(folder / "run", toy_settings(), keys=folder / "keys") as run:
        run.train()
        pair = sorted(run.ledger.membership(1)[0])[:2]
        due = [(r.verdict, r.cost and r.cost.rounds) for r in leave(run, *pair)]
        return Undisturbed(pair, due, digests(run.ledger))


@pytest.mark.parametrize("same_process", some_of([True, False], [False]))
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (LedgerClass, "remove_leftovers"),
        (LedgerClass, "forget"),
        (LedgerClass, "note_evaluation"),
        (LedgerClass, "record"),
        (Transaction, "give_up_contributions"),
        (Transaction, "finish_erasures"),
        (Keyring, "advance"),
        (Keyring, "confirm"),
        (Keyring, "finish_forgetting"),
        (Keyring, "_write_keys"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else value,
)
def test_whatever_step_fails_the_next_call_goes_on_with_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Undisturbed,
    kind: type,
    step: str,
    same_process: bool,
) -> None:
    pair, due, models = undisturbed.pair, undisturbed.due, undisturbed.models
    run = toy(tmp_path / "run")
    keys = keys_of(run.ledger, *pair)
    ask(run, *pair)
    real, hook = getattr(kind, step), failing([1, 3])

    def disturbed(*arguments: Any, **named: Any) -> Any:
        hook()
        return real(*arguments, **named)

    monkeypatch.setattr(kind, step, disturbed)
    interruptions = 0
    while True:
        try:
            run.answer()
        except Interrupted:
            interruptions += 1
            assert faults(tmp_path / "run") == []
            if not same_process:
                run.close()
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(kind, step, real)
                    run = reopen_toy(tmp_path / "run")
        else:
            break
    assert interruptions > 0
    assert [(r.verdict, r.cost and r.cost.rounds) for r in run.ledger.requests()] == due
    assert [r.state for r in run.ledger.requests()] == [RequestState.ANSWERED] * 2
    assert digests(run.ledger) == models
    assert set(run.ledger.store.digests()) == {run.ledger.initial_model, *models}
    assert run.ledger.unevaluated() == ()
    assert forgotten(run.ledger.keyring, keys, *pair)
    run.close()
    assert fsck(tmp_path / "run") == []
    for client in pair:
        assert files_with(tmp_path / "run", client) == []


def test_superseded_models_are_gone_before_a_request_counts_as_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold the leaver undeniably: even after a failure in the very moment of their deletion."""
    with toy(tmp_path / "run") as run:
        ask(run, *sorted(run.ledger.membership(1)[0])[:2])
        with monkeypatch.context() as patch:
            patch.setattr(ModelStore, "remove", failing([1]))
            with pytest.raises(Interrupted):
                run.answer()
        run.answer()
        assert {request.state for request in run.ledger.requests()} == {RequestState.ANSWERED}
        assert set(run.ledger.store.digests()) == {run.ledger.initial_model, *digests(run.ledger)}


def test_the_last_rebuilt_round_is_evaluated_though_its_evaluation_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toy(tmp_path / "run") as run:
        ask(run, *sorted(run.ledger.membership(1)[0])[:2])
        real, hook = ToyEngine.evaluate, failing([4])

        def evaluate(engine: ToyEngine, model: Model) -> Evaluation:
            hook()
            return real(engine, model)

        monkeypatch.setattr(ToyEngine, "evaluate", evaluate)
        with pytest.raises(Interrupted):
            run.answer()
        run.answer()
        assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(n, 2) for n in range(1, 5)]
        assert run.ledger.unevaluated() == ()


@pytest.mark.sqlite
def test_readers_in_the_way_delay_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetting overwrites a key: nothing in the files of the run has to wait until nobody reads it."""
    monkeypatch.setattr(backend, "BUSY_SECONDS", 0.1)
    with toy(tmp_path / "run") as run:
        keys = keys_of(run.ledger, "client-01")
        ask(run, "client-01")
        with (
            closing(sqlite3.connect(tmp_path / "run" / database.NAME, isolation_level=None)) as reader,
            closing(sqlite3.connect(run.ledger.keyring.folder / TABLE, isolation_level=None)) as identifying,
        ):
            for connection, table in ((reader, "rounds"), (identifying, "clients")):
                connection.execute("BEGIN")
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert [request.state for request in run.answer()] == [RequestState.ANSWERED]
            assert forgotten(run.ledger.keyring, keys, "client-01")
            assert files_with(tmp_path / "run", "client-01") == []
    assert fsck(tmp_path / "run") == []


LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM rounds").fetchone()[0])
connection.close()
"""


def rounds_seen_by_another_process(directory: Path) -> int:
    command = [sys.executable, "-c", LOOK, str(directory / database.NAME)]
    return int(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.sqlite
def test_after_an_erasure_other_processes_still_see_what_the_run_records(tmp_path: Path) -> None:
    """POSIX drops all locks of a process on a file when the process closes any descriptor of that file.

    Whoever searches the bytes of an open ledger must not give up SQLite's locks that way: the next reader to close
    would take itself for the last one and delete the log, and what is recorded from then on goes nowhere.
    """
    with toy(tmp_path / "run") as run:
        assert rounds_seen_by_another_process(tmp_path / "run") == 4
        leave(run, "client-01")
        assert rounds_seen_by_another_process(tmp_path / "run") == 4
        replace(run, settings=run.settings.model_copy(update={"rounds": 6})).train()
        assert rounds_seen_by_another_process(tmp_path / "run") == 6
    assert rounds_seen_by_another_process(tmp_path / "run") == 6
    assert fsck(tmp_path / "run") == []


def test_a_check_of_a_run_at_work_raises_no_false_alarm(tmp_path: Path) -> None:
    """`disavow erase` checks the run first, and the process that holds it may be deleting models meanwhile."""
    with toy(tmp_path / "run") as run:
        ask(run, *sorted(run.ledger.membership(1)[0])[:2])
        done: list[int] = []

        def meanwhile(checked: int, total: int) -> None:
            if not done:
                done.append(total)
                assert len(run.answer()) == 2

        assert [str(finding) for finding in fsck(tmp_path / "run", meanwhile) if finding.fault] == []
        assert done
