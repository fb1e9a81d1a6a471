"""Clients that train by a method's optimizer: alike in a stack, one after the other, and by a plain loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import disavow
from disavow.compare.averages import weighted_mean
from disavow.compare.local_training import LocalTraining
from disavow.compare.method import Federation, Forgotten
from disavow.compare.methods.rapid_retraining import RapidRetraining
from disavow.compare.problem import Problem
from disavow.compare.training import Training
from disavow.config import TrainingSettings
from disavow.engines.stacked.task_stack import StackedClient
from disavow.engines.state import model_of, put_model, vector_of
from disavow.engines.task_workload import TaskWorkload
from disavow.engines.trainer import Trainer
from disavow.models import LeNet5, ResNetMini
from disavow.rounds.vectors import Model
from disavow.tasks.loading import load
from tests.compare.contract import Given

SETTINGS = TrainingSettings(epochs=2, batch_size=4)
SAMPLES = {"ada": 13, "bob": 4, "cyd": 9, "dan": 3}
"""Eight, two, six and two batches, some of them short: clients leave the stack, and batches have several shapes."""

METHOD = RapidRetraining()


def resnet() -> nn.Module:
    """Without biases that batch norm takes away again: their gradients are nothing but rounding, and steps of
    gradients over curvatures make any of these large.
    """
    network = ResNetMini((3, 8, 8), 4)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.bias = None
    return network


class Tempered(nn.Module):
    """A parameter that is one number, which in a stack has no dimension but the clients'."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.temperature = nn.Linear(192, 4), nn.Parameter(torch.tensor(2.0))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layer(images.flatten(1)) / self.temperature
        return scores


def dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Dropout(0.5), nn.Linear(8, 4))


class Branches(nn.Module):
    """What it computes depends on its inputs, so that it cannot be stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 4)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layer(images.flatten(1))
        return scores if scores.sum() > 0 else 2 * scores


def picky(scores: Tensor, labels: Tensor) -> Tensor:
    """Can be stacked on whole batches alone, which a trial takes."""
    loss = functional.cross_entropy(scores, labels)
    return loss if len(scores) > 1 else loss * float(loss.detach())


def workload_of(model: Callable[[], nn.Module], **parts: Any) -> TaskWorkload:
    drawn = torch.Generator().manual_seed(5)
    clients = {
        client: (torch.randn(samples, 3, 8, 8, generator=drawn), torch.randint(4, (samples,), generator=drawn))
        for client, samples in SAMPLES.items()
    }
    task = disavow.task(model=model, clients=clients, **parts)
    return TaskWorkload(load(task, training=SETTINGS, seed=3), SETTINGS, 3)


def trained(workload: TaskWorkload, *, stacked: bool) -> tuple[Tensor, LocalTraining]:
    training = LocalTraining(workload, stacked=stacked)
    clients = [StackedClient.of(workload, client, 1) for client in ("bob", "ada", "dan", "cyd")]
    return training.train(model_of(workload.network), clients, METHOD._optimizer), training


def step_plainly(network: nn.Module, loss: Tensor, means: list[Any], curvatures: list[Any], step: int) -> None:
    """One step of rapid retraining, tensor by tensor, as its formula is written."""
    parameters = list(network.parameters())
    with torch.no_grad():
        for number, (each, gradient) in enumerate(
            zip(parameters, torch.autograd.grad(loss, parameters), strict=True)
        ):
            means[number] = METHOD.momentum * means[number] + (1 - METHOD.momentum) * gradient
            curvatures[number] = METHOD.decay * curvatures[number] + (1 - METHOD.decay) * gradient**2
            mean = means[number] / (1 - METHOD.momentum**step)
            scaled = (curvatures[number] / (1 - METHOD.decay**step)).sqrt()
            each.sub_(METHOD.learning_rate * mean / (scaled + METHOD.damping * scaled.max()))


def plain_update(workload: TaskWorkload, model: Model, client: str) -> Tensor:
    network = copy.deepcopy(workload.network).train()
    put_model(network, model)
    means, curvatures = ([0.0 for _ in network.parameters()] for _ in range(2))
    for step, positions in enumerate(workload.batches_of(client, 1), start=1):
        loss = workload.loaded.task.loss(network, workload.parts[client].batch(positions))
        step_plainly(network, loss, means, curvatures, step)
    return vector_of(network) - model.vector


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(
    "model", [lambda: LeNet5((3, 8, 8), 4), resnet, Tempered], ids=["LeNet5", "ResNet-mini", "scalar"]
)
def test_updates_are_those_of_a_plain_loop(model: Callable[[], nn.Module], stacked: bool) -> None:
    workload = workload_of(model)
    found, training = trained(workload, stacked=stacked)
    assert training.stacked == stacked
    start = model_of(workload.network)
    expected = torch.stack([plain_update(workload, start, client) for client in ("bob", "ada", "dan", "cyd")])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * METHOD.learning_rate)


def test_dropout_is_the_same_in_a_stack_and_alone() -> None:
    workload = workload_of(dropout)
    (together, training), (alone, _) = (trained(workload, stacked=stacked) for stacked in (True, False))
    assert training.stacked
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4 * METHOD.learning_rate)


@pytest.mark.parametrize(
    "parts", [{"model": Branches}, {"model": dropout, "loss": picky}], ids=["never", "not on every batch"]
)
def test_clients_that_cannot_be_stacked_train_one_after_the_other(parts: dict[str, Any]) -> None:
    workload = workload_of(**parts)
    found, training = trained(workload, stacked=True)
    assert not training.stacked
    assert torch.equal(found, trained(workload, stacked=False)[0])


@dataclass(frozen=True)
class ByHand(RapidRetraining):
    """The same method by what every method may call: a network and the batches of one client after the other."""

    def forget(self, federation: Federation) -> Forgotten:
        training = federation.training
        vector = training.initial
        for each in training.rounds[: math.ceil(self.share * len(training.rounds))]:
            clients = [client for client in each.clients if client in federation.remaining]
            updates = torch.stack([self._update(federation, vector, client, each.number) for client in clients])
            vector = vector + weighted_mean(updates, [federation.samples_of(client) for client in clients])
        return Forgotten(vector)

    def _update(self, federation: Federation, vector: Tensor, client: str, number: int) -> Tensor:
        network = federation.network(vector)
        means, curvatures = ([0.0 for _ in network.parameters()] for _ in range(2))
        for step, batch in enumerate(federation.batches(client, number, epochs=federation.epochs), start=1):
            step_plainly(network, federation.loss(network, batch), means, curvatures, step)
        return federation.vector_of(network) - vector


def test_a_round_by_a_methods_optimizer_has_the_batches_and_the_costs_of_single_clients(
    problem: Problem, trainings: dict[str, Training], trainer: Trainer, tmp_path: Path
) -> None:
    given = Given(problem, trainings, trainer, tmp_path)
    (found, meter), (expected, by_hand) = given.forget(METHOD), given.forget(ByHand())
    torch.testing.assert_close(found.model, expected.model, rtol=1e-3, atol=1e-4 * METHOD.learning_rate)
    assert (meter.client_epochs, meter.bytes_sent) == (by_hand.client_epochs, by_hand.bytes_sent)
