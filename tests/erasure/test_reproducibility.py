"""Whether a retraining can be repeated is read off the ledger, and reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from disavow.domain import ErasureRequest, RequestState
from disavow.erasure.erase import answer_requests, answer_without_training, training_due
from disavow.erasure.reporting import Reporting
from disavow.erasure.reproducibility import repetition
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.rounds.vectors import Model, Updates
from tests.erasure.mechanisms.contract import (
    ToyEngine,
    ask,
    faults,
    pair_first_together_in,
    start_toy,
    toy_settings,
)


@dataclass(frozen=True)
class Forgetful(ToyEngine):
    """Some of its clients do not keep to the seed: a second training differs."""

    clients: frozenset[str] = frozenset()
    trained: list[int] = field(default_factory=list)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        self.trained.append(round_number)
        updates = super().train(model, clients, round_number, epochs=epochs)
        shift = torch.tensor([1e-3 * len(self.trained) * (client in self.clients) for client in clients])
        return replace(updates, vectors=updates.vectors + shift[:, None].float())


def erased(run: Federation, engine: ToyEngine) -> tuple[str, ...]:
    """Let two leave who break round 2; the remarks on it."""
    numbers = ask(run, *pair_first_together_in(run.ledger, 2))
    answer_requests(run.ledger, engine, run.options, run.mechanism, Reporting(remark=repetition))
    return remarks(run.ledger.requests(numbers))


def remarks(requests: Sequence[ErasureRequest]) -> tuple[str, ...]:
    assert all(request.state is RequestState.ANSWERED for request in requests)
    return tuple(request.remark for request in requests)


def fresh(directory: Path) -> Federation:
    """A toy run with another partition each round, trained."""
    run = start_toy(directory, toy_settings(clustering={"sticky": False}, seed=5))
    run.train()
    return run


def test_where_every_survivor_repeats_its_update_nothing_is_remarked(tmp_path: Path) -> None:
    with fresh(tmp_path / "run") as run:
        assert erased(run, ToyEngine(run.settings.seed)) == ("", "")
    assert faults(tmp_path / "run") == []


def test_where_some_do_not_the_report_says_how_many(tmp_path: Path) -> None:
    with fresh(tmp_path / "run") as run:
        leavers = pair_first_together_in(run.ledger, 2)
        others = [client for client in run.ledger.clients() if client not in leavers]
        engine = Forgetful(run.settings.seed, clients=frozenset(others[:2]))
        [remark, same] = erased(run, engine)
    assert remark == same
    assert remark == (
        "retrained, not reproducible: 2 of 7 survivors returned another update from the same model than before"
    )


def test_where_nobody_can_be_compared_it_is_not_called_reproducible(tmp_path: Path) -> None:
    """Everyone of the first time has gone, or did not answer; newcomers trained."""
    with fresh(tmp_path / "run") as run:
        leavers = pair_first_together_in(run.ledger, 2)
        numbers = ask(run, *leavers)
        newcomers = ["new-1", "new-2", "new-3"]
        run.ledger.register(newcomers)
        options = replace(run.options, reachable=lambda: newcomers)
        answer_requests(run.ledger, run.engine, options, run.mechanism, Reporting(remark=repetition))
        assert (
            remarks(run.ledger.requests(numbers))
            == ("retrained, not reproducible: no survivor returned a second update from the same model",) * 2
        )


def test_a_rollback_that_could_not_be_retrained_was_not_retrained_at_all(tmp_path: Path) -> None:
    with fresh(tmp_path / "run") as run:
        leavers = pair_first_together_in(run.ledger, 2)
        numbers = ask(run, *leavers)
        options = replace(run.options, reachable=lambda: [])
        answer_requests(run.ledger, run.engine, options, run.mechanism, Reporting(remark=repetition))
        for remark in remarks(run.ledger.requests(numbers)):
            assert remark.startswith("not retrained: ")
            assert "reproducible" not in remark


@pytest.mark.parametrize("round_number", [2, 3])
def test_what_needs_no_training_is_settled_and_the_rest_waits_for_an_engine(
    tmp_path: Path, round_number: int
) -> None:
    with fresh(tmp_path / "run") as run:
        numbers = ask(run, *pair_first_together_in(run.ledger, round_number))
        before = run.ledger.summaries()
        for _ in range(2):  # twice is once
            assert answer_without_training(run.ledger, run.options, run.mechanism) == ()
            assert {r.state for r in run.ledger.requests(numbers)} == {RequestState.WAITING}
            assert run.ledger.summaries() == before
            assert training_due(run.ledger, run.options)
        run.answer()
        assert {r.state for r in run.ledger.requests(numbers)} == {RequestState.ANSWERED}
        assert run.ledger.next_round() == (5, 1)
        assert not training_due(run.ledger, run.options)
    assert faults(tmp_path / "run") == []


def test_a_deniable_request_is_settled_whole(tmp_path: Path) -> None:
    with fresh(tmp_path / "run") as run:
        [number] = ask(run, "client-04")
        [answered] = answer_without_training(run.ledger, run.options, run.mechanism)
        assert (answered.number, answered.state) == (number, RequestState.ANSWERED)
    with Ledger.open(tmp_path / "run") as ledger:
        assert "client-04" not in ledger.clients()
