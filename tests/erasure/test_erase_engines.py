"""Engines that refuse, or cannot train the run, while it is rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from disavow import config, runs
from disavow.domain import RequestState
from disavow.errors import CannotRetrain, RoundRefused
from disavow.ledger import fsck
from disavow.ledger.id_search import files_with
from disavow.rounds.vectors import Model, Updates
from tests.erasure.erased_runs import REAL, reopened, toy
from tests.erasure.mechanisms.contract import (
    ToyEngine,
    ask,
    leave,
    pair_first_together_in,
    standing,
)
from tests.rounds.builders import MOMENT


def test_the_clock_of_the_run_is_the_clock_of_its_answers(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        then = replace(run, own_options=replace(run.options, clock=lambda: MOMENT))
        [request] = leave(then, "client-01")
        assert (request.asked_at, request.answered_at) == (MOMENT, MOMENT)


@dataclass(frozen=True)
class Diverging(ToyEngine):
    """From the second attempt on, somebody returns what cannot be aggregated."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = super().train(model, clients, round_number)
        if round_number == 3:
            updates.vectors[0, 0] = float("nan")
        return updates


def test_a_retraining_that_is_refused_serves_the_earlier_model_instead_of_failing_for_ever(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        pair = sorted(run.ledger.membership(1)[0])[:2]
        ask(run, *pair)
        answered = replace(run, own_engine=Diverging(run.options.seed)).answer()
        assert [str(request.verdict) for request in answered] == ["rollback to round 1"] * 2
        assert "round 3 refused" in answered[0].remark
        assert answered[0].remark.endswith("the model of round 2 is served")
        assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(1, 2), (2, 2)]
        left = run.ledger.clients()
        assert not set(pair) & set(left)
    assert fsck(tmp_path / "run") == []
    # what is said as it happens may name whose update it was; what is stored may not
    assert [client for client in (*left, *pair) if files_with(tmp_path / "run", client)] == []


@dataclass(frozen=True)
class Naming(ToyEngine):
    """A user's own engine, which refuses a round in words of its own."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        if round_number == 3:
            raise RoundRefused(f"{clients[0]} has had enough")
        return super().train(model, clients, round_number)


def test_the_words_of_somebody_elses_refusal_are_not_stored(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        ask(run, *sorted(run.ledger.membership(1)[0])[:2])
        answered = replace(run, own_engine=Naming(run.options.seed)).answer()
        assert "DSV-601" in answered[0].remark
        assert "enough" not in answered[0].remark
        left = run.ledger.clients()
    assert [client for client in left if files_with(tmp_path / "run", client)] == []


@dataclass(frozen=True)
class Unfit(ToyEngine):
    """Somebody's engine of another model: it never says so, and its updates are too short."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = super().train(model, clients, round_number, epochs=epochs)
        return replace(updates, vectors=updates.vectors[:, :-1])


@dataclass(frozen=True)
class Stranger(ToyEngine):
    """Somebody's engine that has never heard of these clients."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        raise KeyError(clients[0])


@pytest.mark.parametrize(("engine", "error"), [(Unfit, CannotRetrain), (Stranger, KeyError)])
def test_an_engine_that_cannot_train_the_run_undoes_nothing(
    tmp_path: Path, engine: type[ToyEngine], error: type[Exception]
) -> None:
    with toy(tmp_path / "run") as run:
        numbers, before = ask(run, *sorted(run.ledger.membership(1)[0])[:2]), run.ledger.summaries()
        with pytest.raises(error):
            replace(run, own_engine=engine(run.options.seed)).answer()
        assert run.ledger.summaries() == before
        assert {request.state for request in run.ledger.requests(numbers)} == {RequestState.WAITING}
        run.answer()
        assert {request.state for request in run.ledger.requests(numbers)} == {RequestState.ANSWERED}


@pytest.mark.parametrize("changed", [{"model": {"name": "convnet"}}, {"data": {"clients": 4}}])
@pytest.mark.parametrize("name", ["sequential", "vectorised"])
def test_our_engines_refuse_another_model_and_clients_they_have_no_data_of(
    real: Path, changed: dict[str, Any], name: str
) -> None:
    """The ids of the first four clients are the same: one of the others must be looked for."""
    values = {**REAL, "engine": {"name": name}, **changed}
    with reopened(real) as run, closing(runs.prepare(config.from_values(values, source="tests")).engine) as engine:
        numbers, before = ask(run, *pair_first_together_in(run.ledger, 3)), run.ledger.summaries()
        with pytest.raises(CannotRetrain):
            replace(run, own_engine=engine).answer()
        assert run.ledger.summaries() == before
        assert {request.state for request in run.ledger.requests(numbers)} == {RequestState.WAITING}
