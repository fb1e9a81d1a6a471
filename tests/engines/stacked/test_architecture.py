from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from disavow.engines.stacked.architecture import architecture
from disavow.models import NETWORKS, build
from tests.engines.stacked.federations import Tiny


class Scaled(nn.Module):
    def __init__(self, factor: float = 1.0, function: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.factor, self.function = [factor], function

    def forward(self, hidden: Tensor) -> Tensor:
        return self.function(self.factor[0] * hidden)


class Masked(nn.Module):
    def __init__(self, value: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((8,), value))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_that_differ_in_their_weights_alone_are_alike(name: str) -> None:
    one, other = build(name, (1, 8, 8), 4, seed=1), build(name, (1, 8, 8), 4, seed=2)
    one.train()(torch.rand(2, 1, 8, 8))
    assert architecture(one) == architecture(other)
    assert hash(architecture(one)) == hash(architecture(other))
    assert architecture(one) == architecture(one.eval())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Tiny(), Tiny(nn.ReLU())),
        (Tiny(nn.LeakyReLU(0.1)), Tiny(nn.LeakyReLU(0.2))),
        (Tiny(Scaled(1.0)), Tiny(Scaled(2.0))),
        (Tiny(Scaled(function=torch.tanh)), Tiny(Scaled(function=torch.sigmoid))),
        (Tiny(Masked(0)), Tiny(Masked(1))),
        (nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3, stride=2)),
        (nn.Linear(2, 3), nn.Linear(2, 3).requires_grad_(False)),
        (build("lenet5", (1, 8, 8), 4, seed=1), build("lenet5", (1, 8, 8), 5, seed=1)),
    ],
)
def test_networks_that_differ_in_anything_else_are_not(one: nn.Module, other: nn.Module) -> None:
    assert architecture(one) != architecture(other)


def test_functions_are_the_same_only_if_they_are_one() -> None:
    assert architecture(Tiny(Scaled(2.0))) == architecture(Tiny(Scaled(2.0)))
    one, other = Scaled(function=lambda hidden: hidden), Scaled(function=lambda hidden: hidden)
    assert architecture(one) != architecture(other)


def test_tied_weights_are_not_like_free_ones() -> None:
    free, tied = (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)) for _ in range(2))
    tied[1].weight = tied[0].weight
    assert architecture(free) != architecture(tied)


def test_a_hook_makes_a_difference() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    one.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert architecture(one) != architecture(other)
