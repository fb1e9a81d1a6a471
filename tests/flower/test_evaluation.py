"""The app's `evaluate_fn`: asked once about every model that stands, whatever it answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, MetricRecord

from disavow.ledger import Ledger
from tests.flower.builders import make_grid, place, strategy
from tests.flower.test_strategy import leave_together, start, vector_of

pytestmark = pytest.mark.flower

Answer = Callable[[int], MetricRecord | None]


class Judge:
    """An `evaluate_fn` that answers by the round, and remembers what it was asked about."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.evaluated: list[tuple[int, np.ndarray[Any, Any]]] = []

    @property
    def rounds(self) -> list[int]:
        return [number for number, _ in self.evaluated]

    def __call__(self, number: int, arrays: ArrayRecord) -> MetricRecord | None:
        self.evaluated.append((number, vector_of(arrays)))
        return self.answer(number)


def other_names(number: int) -> MetricRecord:
    return MetricRecord({"centralized_acc": 0.5, "step": number})


def only_lists(number: int) -> MetricRecord:
    return MetricRecord({"per_class": [0.5, float(number)]})


def every_second(number: int) -> MetricRecord | None:
    return MetricRecord({"accuracy": 0.5, "loss": 1.0}) if number % 2 == 0 else None


ANSWERS: list[tuple[Answer, list[int], list[int]]] = [
    (other_names, [0, 1, 2, 3, 4], [1, 2, 3, 4]),
    (only_lists, [0, 1, 2, 3, 4], []),
    (every_second, [0, 2, 4], [2, 4]),
    (lambda number: None, [], []),
]
"""What an app answers, the rounds of which the result then tells, and those of which the ledger does."""


@pytest.mark.parametrize(("answer", "evaluated", "noted"), ANSWERS)
def test_every_round_is_asked_about_once_with_its_own_model(
    answer: Answer, evaluated: list[int], noted: list[int], tmp_path: Path
) -> None:
    judge = Judge(answer)
    result = start(strategy(tmp_path / "run"), make_grid(6), 4, evaluate_fn=judge)
    assert judge.rounds == [0, 1, 2, 3, 4]
    assert sorted(result.evaluate_metrics_serverapp) == evaluated
    assert all(result.evaluate_metrics_serverapp[n] == answer(n) for n in evaluated)
    with Ledger.open(tmp_path / "run") as ledger:
        assert all(np.array_equal(vector, ledger.model_before(n + 1)) for n, vector in judge.evaluated)
        assert [summary.number for summary in ledger.summaries() if summary.evaluation] == noted


@pytest.mark.parametrize("answer", [other_names, only_lists, every_second])
def test_rounds_that_are_retrained_are_asked_about_again(answer: Answer, tmp_path: Path) -> None:
    grid, run = make_grid(9), tmp_path / "run"
    leavers = leave_together(run, grid, strategy(run))

    def leaving(number: int) -> MetricRecord | None:
        if number == 3 and leavers:
            place(run, leavers)
            leavers.clear()
        return answer(number)

    judge = Judge(leaving)
    result = start(strategy(run), grid, 4, evaluate_fn=judge)
    assert judge.rounds[judge.rounds.index(3) + 1 :] == [1, 2, 3, 4]
    with Ledger.open(run) as ledger:
        last = dict(judge.evaluated)
        assert all(np.array_equal(last[n], ledger.model_after(n)) for n in (1, 2, 3, 4))
    assert set(result.evaluate_metrics_serverapp) - {0} == {n for n in (1, 2, 3, 4) if answer(n) is not None}


def test_nothing_is_told_of_a_model_that_was_undone(tmp_path: Path) -> None:
    """The first answer about round 1 is about a model that a rollback undoes; about the second there is none."""
    grid, run = make_grid(9), tmp_path / "run"
    leavers = leave_together(run, grid, strategy(run))
    seen: list[int] = []

    def once(number: int) -> MetricRecord | None:
        seen.append(number)
        if number == 3:
            place(run, leavers)
        return MetricRecord({"step": number}) if seen.count(number) == 1 else None

    result = start(strategy(run), grid, 3, evaluate_fn=Judge(once))
    assert seen.count(3) == 2
    assert 3 not in result.evaluate_metrics_serverapp


@pytest.mark.parametrize("answer", [only_lists, lambda number: MetricRecord({"accuracy": 0.5})])
def test_a_start_begins_with_the_model_that_stands(answer: Answer, tmp_path: Path) -> None:
    grid, run = make_grid(6), tmp_path / "run"
    start(strategy(run), grid, 2, evaluate_fn=Judge(answer))
    judge = Judge(answer)
    again = start(strategy(run), grid, 2, evaluate_fn=judge)
    assert judge.rounds == [2]
    assert dict(again.evaluate_metrics_serverapp) == {2: answer(2)}
    judge = Judge(answer)
    start(strategy(run), grid, 3, evaluate_fn=judge)
    assert judge.rounds == [2, 3]


def test_after_a_rollback_without_a_retraining_the_model_that_is_served_is_asked_about(tmp_path: Path) -> None:
    grid, run = make_grid(6), tmp_path / "run"
    start(strategy(run), grid, 2, evaluate_fn=Judge(only_lists))
    place(run, [f"c{i}" for i in range(1, 5)])
    judge = Judge(only_lists)
    result = start(strategy(run), grid, 0, evaluate_fn=judge)
    with Ledger.open(run) as ledger:
        assert ledger.last_round == 0
    assert judge.rounds == [2, 0]
    assert dict(result.evaluate_metrics_serverapp) == {0: only_lists(0)}
