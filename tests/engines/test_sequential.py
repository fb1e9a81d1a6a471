from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from disavow.domain import Evaluation
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of
from disavow.models import build
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model
from tests.engines.contract import PARTS, AttributesContract, Case, EngineContract, a_case
from tests.selection import some_of


def sequential(case: Case) -> SequentialEngine[Evaluation]:
    return SequentialEngine(case)


class TestSequential(EngineContract, AttributesContract):
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


@pytest.mark.parametrize(
    ("network", "shape"),
    some_of(
        [
            (network, shape)
            for shape in [(3, 32, 32), (3, 64, 64)]
            for network in ["convnet", "lenet5", "resnet-mini"]
        ],
        [("lenet5", (3, 32, 32)), ("resnet-mini", (3, 32, 32))],
    ),
)
def test_colour_images_of_the_paper_train_as_they_do_in_the_usual_layout(
    network: str, shape: tuple[int, int, int]
) -> None:
    # channels last, the gradient of a strided 1x1 convolution wrote past its memory
    generator = torch.Generator().manual_seed(4)
    case = replace(
        a_case(),
        network=build(network, shape, 40, seed=3),
        images=torch.rand(29, *shape, generator=generator),
        labels=(torch.rand(29, 40, generator=generator) < 0.3).float(),
    )
    [row] = sequential(case).train(case.model, ["bo"], 1).vectors
    network_by_hand, held = build(network, shape, 40, seed=3).train(), case.parts["bo"]
    parameters = list(network_by_hand.parameters())
    for batch in case.batches_of("bo", 1):
        scores = network_by_hand(case.images[held[batch]])
        loss = functional.binary_cross_entropy_with_logits(scores, case.labels[held[batch]])
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.sub_(gradient, alpha=case.settings.learning_rate)
    expected = model_of(network_by_hand).vector - case.model.vector
    assert float((row - expected).norm()) < 1e-4 * float(expected.norm())
