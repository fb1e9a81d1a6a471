from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from disavow.data import client_ids
from disavow.domain import Evaluation
from disavow.ledger import Ledger, RoundSummary
from disavow.rounds.round import run_round
from disavow.rounds.training import evaluate_missing, train
from disavow.rounds.vectors import Model, Updates
from tests.rounds.builders import OPTIONS, POLICY, gaussian, layout_of_size, ledger_of, updates_of


class Counting:
    """An engine that says how often it was asked, and evaluates a model by its first number."""

    def __init__(self, loss: float = 1.0) -> None:
        self.trained: list[int] = []
        self.evaluated: list[float] = []
        self.loss = loss

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        self.trained.append(round_number)
        return updates_of(gaussian(len(clients), 3, seed=round_number), clients=clients)

    def evaluate(self, model: Model) -> Evaluation | None:
        self.evaluated.append(float(model.vector[0]))
        return Evaluation(0.25, self.loss)

    def close(self) -> None:
        """See `Engine`."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return ledger_of(tmp_path / "run", client_ids(6), layout_of_size(3), POLICY)


def test_rounds_are_run_evaluated_and_reported_until_as_many_stand_as_were_asked_for(ledger: Ledger) -> None:
    engine, reported, breaks = Counting(), list[RoundSummary](), list[int]()
    with ledger:
        train(
            ledger,
            engine,
            OPTIONS,
            rounds=3,
            on_round=reported.append,
            between_rounds=lambda: breaks.append(ledger.last_round),
        )
        assert engine.trained == [1, 2, 3]
        assert [summary.number for summary in reported] == [1, 2, 3]
        assert [summary.evaluation for summary in reported] == [Evaluation(0.25, 1.0)] * 3
        assert breaks == [0, 1, 2, 3]
        # the model that a round made, not the one it started from
        assert engine.evaluated == [float(ledger.model_after(number)[0]) for number in (1, 2, 3)]
        assert ledger.unevaluated() == ()


def test_an_interrupted_run_goes_on_where_it_stood_and_ends_with_the_same_model(
    ledger: Ledger, tmp_path: Path
) -> None:
    other = ledger_of(tmp_path / "other", client_ids(6), layout_of_size(3), POLICY)
    with ledger, other:
        train(ledger, Counting(), OPTIONS, rounds=2)
        again = Counting()
        train(ledger, again, OPTIONS, rounds=4)
        assert again.trained == [3, 4]
        train(other, Counting(), OPTIONS, rounds=4)
        assert torch.equal(torch.from_numpy(ledger.model_after(4)), torch.from_numpy(other.model_after(4)))
        train(ledger, again, OPTIONS, rounds=4)
        assert again.trained == [3, 4]


def test_a_round_that_was_recorded_but_not_evaluated_is_evaluated_first(ledger: Ledger) -> None:
    engine, reported = Counting(), list[RoundSummary]()
    with ledger:
        run_round(ledger, engine, OPTIONS)
        train(ledger, engine, OPTIONS, rounds=1, on_round=reported.append)
        assert len(engine.evaluated) == 1
        assert ledger.summary(1).evaluation == Evaluation(0.25, 1.0)
        assert evaluate_missing(ledger, engine) == []


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_kept_as_nan(ledger: Ledger, loss: float) -> None:
    with ledger:
        train(ledger, Counting(loss), OPTIONS, rounds=1)
        evaluation = ledger.summary(1).evaluation
    assert evaluation is not None
    assert math.isnan(evaluation.loss)
    assert evaluation.accuracy == 0.25


class Silent(Counting):
    """Says nothing of the models that it is asked about for the first time."""

    def evaluate(self, model: Model) -> Evaluation | None:
        said = super().evaluate(model)
        return None if len(self.evaluated) <= 2 else said


def test_a_round_without_an_evaluation_keeps_no_later_one_from_its_own(ledger: Ledger) -> None:
    engine = Silent()
    with ledger:
        train(ledger, engine, OPTIONS, rounds=1)
        train(ledger, engine, OPTIONS, rounds=2)
        assert [summary.number for summary in ledger.summaries() if summary.evaluation is not None] == [1, 2]
        first, second = (float(ledger.model_after(number)[0]) for number in (1, 2))
    assert engine.evaluated == [first, first, second, first]
