"""What a task says of its training is what happens: schedule, clipping and class weights, each by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import disavow
from disavow.tasks.samples import samples_of
from disavow.tasks.training import train_client

INPUTS = torch.arange(24, dtype=torch.float32).reshape(6, 4) / 10
LABELS = torch.tensor([0, 1, 1, 0, 2, 1])
RATE = 0.5


def _network() -> nn.Linear:
    network = nn.Linear(4, 3)
    with torch.no_grad():
        network.weight.copy_(torch.linspace(-1, 1, 12).reshape(3, 4))
        network.bias.zero_()
    return network


def _change(task: disavow.Task, round_number: int = 1) -> Tensor:
    """What one step on all samples adds to the weights."""
    network = _network()
    samples = samples_of((INPUTS, LABELS), owner="client a")
    train_client(task, network, samples, [np.arange(6)], client="a", round_number=round_number)
    return network.weight.detach() - _network().weight.detach()


def _gradient(**loss: Any) -> Tensor:
    network = _network()
    functional.cross_entropy(network(INPUTS), LABELS, **loss).backward()
    assert network.weight.grad is not None
    return network.weight.grad


def _task(**parts: Any) -> disavow.Task:
    return disavow.task(
        model=_network, clients={}, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATE), **parts
    )


class Scheduled(disavow.Task):
    """Half the learning rate in each round."""

    def model(self) -> nn.Module:
        return _network()

    def clients(self) -> dict[str, Any]:
        return {}

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=RATE)

    def learning_rate_factor(self, round_number: int) -> float:
        return 0.5 ** (round_number - 1)


@pytest.mark.parametrize("round_number", [1, 2, 3])
def test_a_schedule_multiplies_the_learning_rate_of_its_round(round_number: int) -> None:
    expected = -RATE * 0.5 ** (round_number - 1) * _gradient()
    torch.testing.assert_close(_change(Scheduled(), round_number), expected)


def test_clipped_gradients_have_at_most_the_norm_that_is_set() -> None:
    network = _network()
    functional.cross_entropy(network(INPUTS), LABELS).backward()
    limit = 0.1 * float(nn.utils.get_total_norm([p.grad for p in network.parameters() if p.grad is not None]))
    torch.testing.assert_close(
        _change(_task(clip_gradients=limit)), -RATE * 0.1 * _gradient(), rtol=1e-4, atol=1e-6
    )
    torch.testing.assert_close(_change(_task(clip_gradients=1e6)), -RATE * _gradient())


def test_class_weights_are_those_of_the_loss() -> None:
    weight = torch.tensor([1.0, 5.0, 0.5])
    weighted = _change(_task(loss=nn.CrossEntropyLoss(weight=weight)))
    torch.testing.assert_close(weighted, -RATE * _gradient(weight=weight))
    assert not torch.allclose(weighted, -RATE * _gradient())
