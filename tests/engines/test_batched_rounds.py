from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from disavow.config import from_values
from disavow.domain import Evaluation
from disavow.engines import batched_rounds
from disavow.engines.batched_rounds import BatchedRun, evaluate_rounds, run_rounds
from disavow.engines.sequential import SequentialEngine
from disavow.engines.trainer import Ask, VectorisedEngine
from disavow.engines.workload import Workload
from disavow.errors import BudgetSpent, RoundRefused
from disavow.ledger import Ledger, fsck
from disavow.privacy.budget import Budget
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.randomness import Secrets
from disavow.rounds.round import run_round
from disavow.rounds.vectors import Model, Updates
from tests.engines.contract import a_case


class OneByOne:
    """A trainer without any tricks."""

    def __init__(self) -> None:
        self.batch_sizes: list[int] = []
        self.broken: set[int] = set()

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        self.batch_sizes.append(len(asks))
        found = [SequentialEngine(ask.workload).train(ask.model, ask.clients, ask.round_number) for ask in asks]
        for number in self.broken:
            found[number] = replace(found[number], vectors=torch.full_like(found[number].vectors, torch.nan))
        return found

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        return [SequentialEngine(workload).evaluate(model) for model in models]

    def close(self) -> None:
        pass


@pytest.fixture
def trainer() -> OneByOne:
    return OneByOne()


@pytest.fixture
def federations(tmp_path: Path, trainer: OneByOne) -> Iterator[list[BatchedRun]]:
    with ExitStack() as stack:
        yield [_federation(tmp_path / str(seed), seed, trainer, stack) for seed in (1, 2, 3)]


def _federation(directory: Path, seed: int, trainer: OneByOne, stack: ExitStack) -> BatchedRun:
    case = replace(a_case(), seed=seed)
    values = {"draws": "seeded", "data": {"clients": 4}, "clustering": {"k": 2}}
    ledger = Ledger.create(
        directory,
        policy=from_values(values, source="test").policy,
        layout=case.model.layout,
        initial=case.model.vector.numpy(),
        clients=case.parts,
        config="",
        created_by="test",
        at=now(),
    )
    options = RoundOptions(seed=seed, secrets=Secrets(seed))
    return BatchedRun(stack.enter_context(ledger), VectorisedEngine(case, trainer), options)


def test_each_federation_goes_as_if_it_were_alone(
    federations: list[BatchedRun], trainer: OneByOne, tmp_path: Path
) -> None:
    for _ in range(2):
        recorded = run_rounds(federations)
    assert trainer.batch_sizes == [3, 3]
    assert [each.number for each in recorded] == [2, 2, 2]
    with ExitStack() as stack:
        for seed, in_step in zip((1, 2, 3), federations, strict=True):
            alone = _federation(tmp_path / f"alone-{seed}", seed, OneByOne(), stack)
            for _ in range(2):
                run_round(alone.ledger, alone.engine, alone.options)
            assert [s.after for s in alone.ledger.summaries()] == [s.after for s in in_step.ledger.summaries()]
            assert fsck(in_step.ledger.directory) == []
    assert len({each.ledger.summary(2).after for each in federations}) == 3


def test_a_training_call_has_enough_clients_and_not_many_more(
    federations: list[BatchedRun], trainer: OneByOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched_rounds, "_ENOUGH", 5)
    recorded = run_rounds(federations)
    assert trainer.batch_sizes == [2, 1]
    assert [each.number for each in recorded] == [1, 1, 1]
    assert len({each.ledger.summary(1).after for each in federations}) == 3


def test_rounds_are_evaluated_as_if_each_were_alone(federations: list[BatchedRun]) -> None:
    for each in federations[:2]:
        run_round(each.ledger, each.engine, each.options)
    run_rounds(federations)
    evaluate_rounds(federations)
    evaluate_rounds(federations)
    for each in federations:
        assert each.ledger.unevaluated() == ()
        for summary in each.ledger.summaries():
            after = Model(each.ledger.layout, torch.from_numpy(each.ledger.model_after(summary.number)))
            assert summary.evaluation == each.engine.evaluate(after)


def test_a_refusal_stops_nobody_else(federations: list[BatchedRun], trainer: OneByOne) -> None:
    trainer.broken = {1}
    with pytest.raises(RoundRefused) as caught:
        run_rounds(federations)
    assert caught.value.code == "DSV-601"
    assert [each.ledger.last_round for each in federations] == [1, 0, 1]


def test_a_spent_budget_stops_nobody_else(federations: list[BatchedRun], tmp_path: Path) -> None:
    with ExitStack() as stack:
        spent = _calibrated(tmp_path / "spent", stack)
        with pytest.raises(BudgetSpent) as caught:
            run_rounds([federations[0], spent, federations[1]])
        assert caught.value.code == "DSV-602"
        assert [each.ledger.last_round for each in (federations[0], spent, federations[1])] == [1, 0, 1]
        with pytest.raises(BudgetSpent) as caught:
            run_rounds([spent])
        assert caught.value.code == "DSV-602"


def _calibrated(directory: Path, stack: ExitStack) -> BatchedRun:
    """A federation whose budget is less than one round costs."""
    plain = _federation(directory, 4, OneByOne(), stack)
    policy = replace(plain.ledger.policy, noise="calibrated", clip=1.0, tau=1.0)
    plain.ledger.policy = policy
    return replace(plain, options=replace(plain.options, budget=Budget(1.0, 1e-5)))


def test_no_federations_make_no_rounds() -> None:
    assert run_rounds([]) == []
