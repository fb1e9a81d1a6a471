"""Several federations, unequal clients, batch norm and momentum: the same as each alone, and as the reference."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from disavow.config import TrainingSettings
from disavow.data.partition import quantity
from disavow.engines.stacked import StackedTrainer
from disavow.engines.state import model_of
from disavow.engines.trainer import Ask
from disavow.errors import ModelMismatch
from disavow.models import build
from disavow.rounds.randomness import training_stream
from disavow.rounds.vectors import Model
from tests.engines.stacked.workloads import (
    AGREEMENT,
    CLASSES,
    CPU,
    SETTINGS,
    Tiny,
    a_workload,
    agrees_but_for_kinks,
    an_ask,
    deviation,
    reference,
)


def changed(**values: object) -> TrainingSettings:
    return SETTINGS.model_copy(update=values)


def test_federations_of_different_settings_seeds_and_data_are_trained_in_one_call_as_each_alone() -> None:
    asks = [
        an_ask(a_workload([9, 20, 3])),
        an_ask(a_workload([16, 16], settings=changed(learning_rate=0.2), seed=2), 5),
        an_ask(a_workload([7, 9, 30, 1], settings=changed(momentum=0.9, batch_size=5), seed=3), 2),
        an_ask(a_workload([10], settings=changed(weight_decay=0.1, epochs=3, momentum=0.5), seed=4)),
    ]
    together = StackedTrainer(CPU).train(asks)
    assert len(together) == len(asks)
    for ask, updates in zip(asks, together, strict=True):
        [alone] = StackedTrainer(CPU).train([ask])
        assert updates.clients == ask.clients
        assert updates.samples == tuple(len(part) for part in ask.workload.parts.values())
        torch.testing.assert_close(updates.vectors, alone.vectors, rtol=0.0, atol=2e-6)
        assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_federations_with_the_same_data_share_it() -> None:
    first = a_workload([9, 20, 3])
    second = replace(first, seed=99, network=build("lenet5", (1, 10, 10), CLASSES, seed=99))
    asks = [an_ask(first), an_ask(second), an_ask(first, 2)]
    for ask, updates in zip(asks, StackedTrainer(CPU).train(asks), strict=True):
        assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_other_networks_and_other_images_go_into_stacks_of_their_own() -> None:
    asks = [
        an_ask(a_workload([9, 4])),
        an_ask(a_workload([9, 4], "resnet-mini")),
        an_ask(a_workload([9, 4], side=12)),
        an_ask(a_workload([9, 4], Tiny())),
        an_ask(a_workload([5, 8], "resnet-mini", seed=3)),
    ]
    for ask, updates in zip(asks, StackedTrainer(CPU).train(asks), strict=True):
        assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_no_ask_and_an_ask_without_clients() -> None:
    trainer, ask = StackedTrainer(CPU), an_ask(a_workload([9, 4]))
    assert trainer.train([]) == []
    nobody, someone = trainer.train([replace(ask, clients=()), ask])
    assert nobody.vectors.shape == (0, ask.model.layout.size)
    assert len(someone) == 2
    assert trainer.evaluate(ask.workload, []) == []


@pytest.mark.parametrize("network", ["lenet5", "resnet-mini"])
def test_quantity_skew_agrees_with_the_reference(network: str) -> None:
    # a bit of everything: many batches, a single sample, short batches of all sizes
    parts = quantity(torch.zeros(150).long().numpy(), 10, 0.7, training_stream(1, "partition"))
    sizes = [len(part) for part in parts]
    assert max(sizes) > 8 * min(sizes)
    ask = an_ask(a_workload(sizes, network, settings=changed(momentum=0.9, learning_rate=0.01)))
    [updates] = StackedTrainer(CPU).train([ask])
    assert agrees_but_for_kinks(updates.vectors, reference(ask).vectors)


def test_momentum_starts_anew_in_each_call() -> None:
    trainer, ask = StackedTrainer(CPU), an_ask(a_workload([9, 20], settings=changed(momentum=0.9)))
    [first], [second] = trainer.train([ask]), trainer.train([ask])
    assert torch.equal(first.vectors, second.vectors)


def test_a_call_without_momentum_after_one_with_it_has_none() -> None:
    trainer, workload = StackedTrainer(CPU), a_workload([9, 20])
    trainer.train([an_ask(replace(workload, settings=changed(momentum=0.9)))])
    [updates] = trainer.train([an_ask(workload)])
    assert deviation(updates.vectors, reference(an_ask(workload)).vectors) < AGREEMENT


def test_clients_of_one_call_may_be_more_than_fit_at_once() -> None:
    ask = an_ask(a_workload([3] * 150, Tiny()))
    [updates] = StackedTrainer(CPU).train([ask])
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_frozen_parameters_stay_as_they_are() -> None:
    network = build("resnet-mini", (1, 10, 10), CLASSES, seed=1)
    network.get_parameter("block1.conv1.weight").requires_grad_(False)
    network.get_parameter("fc.bias").requires_grad_(False)
    ask = an_ask(a_workload([9, 20], network))
    [updates] = StackedTrainer(CPU).train([ask])
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT
    for row in updates.vectors:
        moved = Model(ask.model.layout, row).tensors()
        assert not {"block1.conv1.weight", "fc.bias"} & moved.keys()
        assert bool(moved["fc.weight"].any())


class Tied(nn.Module):
    """An encoder and a decoder with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(100, CLASSES)
        self.again = nn.Linear(100, CLASSES)
        self.again.weight = self.encode.weight

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.encode(images.flatten(1)) + self.again(images.flatten(1)).tanh()
        return scores


def test_tied_weights_stay_tied_even_if_noise_has_parted_them() -> None:
    workload = a_workload([9, 20], Tied())
    model = model_of(workload.network)
    parted = Model(model.layout, model.vector + 0.01 * torch.arange(model.layout.size) / model.layout.size)
    ask = Ask(workload, parted, tuple(workload.parts), 1)
    [updates] = StackedTrainer(CPU).train([ask])
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_a_model_of_another_network_is_refused() -> None:
    ask = an_ask(a_workload([9, 20]))
    other = model_of(build("convnet", (1, 10, 10), CLASSES, seed=1))
    with pytest.raises(ModelMismatch):
        StackedTrainer(CPU).train([replace(ask, model=other)])
    with pytest.raises(ModelMismatch):
        StackedTrainer(CPU).evaluate(ask.workload, [other])


def test_several_models_are_evaluated_as_each_alone() -> None:
    workload = a_workload([9, 20], "resnet-mini")
    models = [model_of(build("resnet-mini", (1, 10, 10), CLASSES, seed=seed)) for seed in range(20)]
    trainer = StackedTrainer(CPU)
    together = trainer.evaluate(workload, models)
    for model, evaluation in zip(models, together, strict=True):
        [alone] = trainer.evaluate(workload, [model])
        assert evaluation.loss == pytest.approx(alone.loss, abs=1e-6)
        assert evaluation.accuracy == alone.accuracy


def test_a_trainer_holds_no_samples_that_nobody_else_holds() -> None:
    trainer, workload = StackedTrainer(CPU), a_workload([9, 20])
    trainer.train([an_ask(workload)])
    trainer.evaluate(workload, [model_of(workload.network)])
    images = weakref.ref(workload.images)
    del workload
    gc.collect()
    assert images() is None


def test_a_closed_trainer_holds_nothing() -> None:
    trainer, ask = StackedTrainer(CPU), an_ask(a_workload([9, 20]))
    trainer.train([ask])
    trainer.evaluate(ask.workload, [ask.model])
    trainer.close()
    assert len(trainer._copies) == 0
    assert len(trainer._networks) == 0
