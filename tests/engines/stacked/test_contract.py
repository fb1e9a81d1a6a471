from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from disavow.domain import Evaluation
from disavow.engines.sequential import SequentialEngine
from disavow.engines.stacked import StackedTrainer
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model, Updates
from tests.engines.contract import PARTS, AttributesContract, Case, EngineContract, a_case

CPU = torch.device("cpu")


class OneFederation:
    """A trainer as the engine of one federation."""

    def __init__(self, trainer: StackedTrainer, workload: Workload) -> None:
        self._trainer, self._workload = trainer, workload

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        workload = self._workload.training_for(epochs)
        [updates] = self._trainer.train([Ask(workload, model, tuple(clients), round_number)])
        return replace(updates, vectors=updates.vectors.cpu())

    def evaluate(self, model: Model) -> Evaluation:
        [evaluation] = self._trainer.evaluate(self._workload, [model])
        return evaluation

    def close(self) -> None:
        self._trainer.close()


class StackedContract(EngineContract, AttributesContract):
    """Equal up to rounding, measured by the length of the update.

    Batch norm over a batch of one image of 6x6 multiplies rounding by hundreds: there the reference itself is
    1.5e-5 from float64 in single numbers, so that no absolute tolerance would suit all networks.
    """

    tolerance = 2e-6
    rounding = 3e-5

    def alike(self, one: Tensor, other: Tensor) -> None:
        assert one.shape == other.shape
        assert bool(((one - other).norm(dim=-1) <= self.rounding * other.norm(dim=-1)).all())

    def near(self, row: Tensor, by_hand: Tensor) -> None:
        self.alike(row, by_hand)


class TestStacked(StackedContract):
    """The same schedule, padding and arithmetic as on a GPU, without capturing."""

    def make(self, case: Case) -> Engine:
        return OneFederation(StackedTrainer(CPU), case)


@pytest.mark.parametrize("network", ["convnet", "lenet5", "resnet-mini"])
def test_it_agrees_with_the_reference(network: str) -> None:
    case = a_case(network)
    expected = SequentialEngine(case).train(case.model, list(PARTS), 1).vectors
    engine = OneFederation(StackedTrainer(CPU), case)
    deviation = (engine.train(case.model, list(PARTS), 1).vectors - expected).norm(dim=1) / expected.norm(dim=1)
    assert float(deviation.max()) < 2e-5  # sums in another order: 1.1e-5 through the batch norm of resnet-mini


def test_a_model_that_is_not_finite_is_evaluated_without_an_error() -> None:
    case = a_case()
    broken = Model(case.model.layout, torch.full_like(case.model.vector, math.nan))
    evaluation = OneFederation(StackedTrainer(CPU), case).evaluate(broken)
    assert math.isnan(evaluation.loss)
    assert 0 <= evaluation.accuracy <= 1


@pytest.mark.parametrize("network", ["lenet5", "resnet-mini"])
def test_a_client_whose_training_diverges_spoils_no_other(network: str) -> None:
    case = a_case(network)
    images = case.images.clone()
    images[case.parts["ada"]] = math.inf
    engine = OneFederation(StackedTrainer(CPU), replace(case, images=images))
    rows = engine.train(case.model, list(PARTS), 1).vectors
    expected = OneFederation(StackedTrainer(CPU), case).train(case.model, list(PARTS), 1).vectors
    assert not bool(torch.isfinite(rows[0]).all())
    torch.testing.assert_close(rows[1:], expected[1:], rtol=0.0, atol=2e-6)


def test_the_same_call_gives_the_same_bits() -> None:
    case = a_case("resnet-mini")
    engine = OneFederation(StackedTrainer(CPU), case)
    first = engine.train(case.model, list(PARTS), 4).vectors
    assert torch.equal(engine.train(case.model, list(PARTS), 4).vectors, first)
    assert torch.equal(OneFederation(StackedTrainer(CPU), case).train(case.model, list(PARTS), 4).vectors, first)


def test_closing_twice_is_harmless() -> None:
    trainer = StackedTrainer(CPU)
    case = a_case()
    OneFederation(trainer, case).train(case.model, ["ada"], 1)
    trainer.close()
    trainer.close()
