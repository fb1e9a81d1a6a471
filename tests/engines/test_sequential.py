from __future__ import annotations

import math
from dataclasses import replace

import torch

from disavow.engines.sequential import SequentialEngine
from disavow.federation.local_training import Engine
from disavow.federation.vectors import Model
from tests.engines.contract import PARTS, Case, EngineContract, a_case


def sequential(case: Case) -> SequentialEngine:
    return SequentialEngine(case)


class TestSequential(EngineContract):
    """The reference: equal to the last bit, whoever else takes part."""

    def make(self, case: Case) -> Engine:
        return sequential(case)


def test_a_model_that_is_not_finite_is_evaluated_without_an_error() -> None:
    case = a_case()
    broken = Model(case.model.layout, torch.full_like(case.model.vector, math.nan))
    evaluation = sequential(case).evaluate(broken)
    assert math.isnan(evaluation.loss)
    assert 0 <= evaluation.accuracy <= 1


def test_a_client_whose_training_diverges_spoils_no_other() -> None:
    case = a_case("resnet-mini")
    images = case.images.clone()
    images[case.parts["ada"]] = math.inf
    rows = sequential(replace(case, images=images)).train(case.model, list(PARTS), 1).vectors
    assert not bool(torch.isfinite(rows[0]).all())
    assert torch.equal(rows[1:], sequential(case).train(case.model, list(PARTS), 1).vectors[1:])
