"""What a trace does not show is found out by trying."""

from __future__ import annotations

import types
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from disavow.engines.fused.check import check_reading
from disavow.engines.fused.network import NotFusable, row_of
from disavow.models import build

SHAPE = (1, 8, 8)


class Small(nn.Module):
    """A convolution with batch norm, a shortcut and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.hidden = nn.Linear(128, 8)
        self.fc = nn.Linear(8, 4)

    def maps(self, images: Tensor) -> Tensor:
        conv = self.conv(images)
        maps: Tensor = self.norm(conv) + conv
        return maps

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.hidden(self.maps(images).flatten(1)).relu())
        return scores


class Frozen(Small):
    """Keeps its batch norm in evaluation mode, as is usual where statistics shall not move."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.norm.eval()
        return self


class OnlyInTraining(Small):
    def maps(self, images: Tensor) -> Tensor:
        conv = self.conv(images)
        maps: Tensor = self.norm(conv) + conv if self.training else self.norm(conv)
        return maps


class Stopped(Small):
    def maps(self, images: Tensor) -> Tensor:
        conv = self.conv(images)
        with torch.no_grad():
            maps: Tensor = self.norm(conv) + conv
        return maps


class LowPrecision(Small):
    def maps(self, images: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().maps(images)


def shared_statistics() -> nn.Module:
    network = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 4)
    )
    network[3].running_mean = network[1].running_mean
    return network


def replaced_forward() -> nn.Module:
    network = Small()
    network.hidden.forward = types.MethodType(  # type: ignore[method-assign]
        lambda self, x: 2 * nn.functional.linear(x, self.weight, self.bias), network.hidden
    )
    return network


def in_evaluation() -> nn.Module:
    return OnlyInTraining().eval()


@pytest.mark.parametrize("network", ["convnet", "lenet5", "resnet-mini"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 33, 30)])
def test_our_networks_do_what_was_read_of_them(network: str, shape: tuple[int, int, int]) -> None:
    built = build(network, shape, 10, seed=1)
    before = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    check_reading(built, shape, row_of(built, shape))
    assert all(torch.equal(tensor, before[name]) for name, tensor in built.state_dict().items())


def test_a_shortcut_does_what_was_read_of_it() -> None:
    check_reading(Small(), SHAPE, row_of(Small(), SHAPE))


@pytest.mark.parametrize(
    "made",
    [Frozen, OnlyInTraining, in_evaluation, Stopped, LowPrecision, shared_statistics, replaced_forward],
    ids=lambda made: made.__name__,
)
def test_what_a_trace_does_not_show_is_refused(made: Callable[[], nn.Module]) -> None:
    torch.manual_seed(3)
    network = made()
    with pytest.raises(NotFusable):
        check_reading(network, SHAPE, row_of(network, SHAPE))


def test_a_network_that_fails_is_left_to_others() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(63, 4))
    with pytest.raises(NotFusable, match="a trial of it failed"):
        check_reading(network, SHAPE, row_of(network, SHAPE))


def test_random_numbers_are_drawn_from_nobody() -> None:
    network = build("lenet5", SHAPE, 4, seed=1)
    before = torch.random.get_rng_state()
    check_reading(network, SHAPE, row_of(network, SHAPE))
    assert torch.equal(torch.random.get_rng_state(), before)
