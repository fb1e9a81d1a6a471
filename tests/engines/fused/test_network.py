from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from disavow.engines.fused.network import NotFusable, row_of
from disavow.engines.fused.nodes import IMAGES, Convolution, Dense, Norm, Sum
from disavow.engines.state import layout_of
from disavow.models import build

SHAPE = (1, 8, 8)


def test_resnet_mini_is_read_as_it_is_written() -> None:
    network = build("resnet-mini", SHAPE, 10, seed=1)
    row = row_of(network, SHAPE)
    kinds = [type(node) for node in row.nodes]
    block = [Convolution, Norm, Convolution, Norm, Convolution, Norm, Sum]
    assert kinds == [*block, *block, Dense]
    assert [node.sources for node in row.nodes[:7]] == [(IMAGES,), (0,), (1,), (2,), (IMAGES,), (4,), (3, 5)]
    assert [node.relu for node in row.nodes[:7]] == [False, True, False, False, False, False, True]
    assert row.nodes[-1].sources == (13,)


def test_every_tensor_of_the_model_has_its_own_stretch_of_the_row() -> None:
    network = build("resnet-mini", SHAPE, 10, seed=1)
    row, layout = row_of(network, SHAPE), layout_of(network)
    taken = sorted((place, place + length) for _, place, length in row.spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))
    assert taken[-1][1] <= row.size
    assert [(first, first + length) for first, _, length in row.spans] == [(a, b) for _, a, b in layout.spans()]


class Forwards(nn.Module):
    """A network that does what it is rates with a convolution, a batch norm and a dense layer."""

    def __init__(self, rates: Callable[[Forwards, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.fc = nn.Linear(128, 4)
        self.rates = rates

    def forward(self, images: Tensor) -> Tensor:
        return self.rates(self, images)


def test_what_forwards_does_by_default_can_be_read() -> None:
    assert len(row_of(Forwards(lambda n, x: n.fc(n.norm(n.conv(x)).flatten(1))), SHAPE).nodes) == 3


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (lambda n, x: n.fc(n.norm(n.conv(x)).flatten(1)).relu(), "does not end in a dense layer"),
        (lambda n, x: n.fc((n.norm(n.conv(x)) * 2).flatten(1)), "mul is not a layer that the kernels know"),
        (lambda n, x: n.fc((n.norm(n.conv(x)) + 1).flatten(1)), "reads something that no layer gives"),
        (lambda n, x: n.fc((n.norm(n.conv(x)) + x).flatten(1)), "does not add two maps of one shape"),
        (lambda n, x: n.fc(torch.relu(n.norm(n.conv(x.relu()))).flatten(1)), "relu does not follow a layer"),
        (lambda n, x: n.fc(n.norm(n.conv(n.conv(x))).flatten(1)), "conv.weight is used twice"),
        (lambda n, x: n.fc(n.norm(n.conv(x)).flatten()), "flatten does not keep samples apart"),
        (lambda n, x: n.fc(n.conv(x).flatten(1)), "parameters or buffers beside those of its layers"),
        (lambda n, x: n.conv(x), "does not end in a dense layer"),
        (lambda n, x: n.fc(n.norm(n.conv(x) if x.sum() > 0 else x).flatten(1)), "cannot be traced"),
    ],
)
def test_what_the_kernels_do_not_know_is_named(rates: Callable[[Forwards, Tensor], Tensor], said: str) -> None:
    with pytest.raises(NotFusable, match=said):
        row_of(Forwards(rates), SHAPE)


def test_a_relu_is_not_taken_for_those_who_read_what_was_before_it() -> None:
    def rates(network: Forwards, images: Tensor) -> Tensor:
        maps = network.norm(network.conv(images))
        scores: Tensor = network.fc((maps.relu() + maps).flatten(1))
        return scores

    with pytest.raises(NotFusable, match="relu does not follow a layer, and nothing else"):
        row_of(Forwards(rates), SHAPE)


def test_a_flat_view_is_the_same_node() -> None:
    def rates(network: Forwards, images: Tensor) -> Tensor:
        maps = network.conv(images)
        closed = maps.flatten(1).relu()
        scores: Tensor = network.fc(network.norm(maps).flatten(1) + closed)
        return scores

    with pytest.raises(NotFusable, match="relu does not follow a layer, and nothing else"):
        row_of(Forwards(rates), SHAPE)


def test_adding_in_place_is_adding_if_nobody_else_reads_the_sum() -> None:
    def rates(network: Forwards, images: Tensor) -> Tensor:
        maps = network.conv(images)
        inner = network.norm(maps)
        inner = inner.add_(maps)
        scores: Tensor = network.fc(inner.flatten(1))
        return scores

    def twice(network: Forwards, images: Tensor) -> Tensor:
        maps = network.conv(images)
        inner = network.norm(maps)
        maps = maps.add_(inner)
        scores: Tensor = network.fc(maps.flatten(1))
        return scores

    assert isinstance(row_of(Forwards(rates), SHAPE).nodes[2], Sum)
    with pytest.raises(NotFusable, match="does not follow a layer, and nothing else"):
        row_of(Forwards(twice), SHAPE)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(1, 2, 3, dilation=2), nn.Flatten(), nn.Linear(32, 4)],
        [nn.Conv2d(1, 2, (3, 1)), nn.Flatten(), nn.Linear(96, 4)],
        [nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(128, 4)],
        [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, affine=False), nn.Flatten(), nn.Linear(72, 4)],
        [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten(), nn.Linear(72, 4)],
        [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, momentum=None), nn.Flatten(), nn.Linear(72, 4)],
        # a batch of one sample has no deviation, which PyTorch refuses and no kernel would notice
        [nn.Conv2d(1, 2, 8), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 4)],
        [nn.BatchNorm2d(1), nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 4)],
        [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 4)],
        [nn.Conv2d(1, 2, 3), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(8, 4)],
        [nn.Flatten(), nn.Linear(64, 4, bias=False)],
        [nn.Flatten(), nn.Linear(64, 4), nn.Dropout(0.5)],
    ],
    ids=str,
)
def test_layers_of_other_kinds_are_refused(layers: list[nn.Module]) -> None:
    with pytest.raises(NotFusable):
        row_of(nn.Sequential(*layers), SHAPE)


def test_frozen_and_tied_parameters_are_refused() -> None:
    frozen = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 4))
    frozen[1].requires_grad_(False)
    tied = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 4))
    tied[2].weight = tied[1].weight
    for network in (frozen, tied):
        with pytest.raises(NotFusable):
            row_of(network, SHAPE)


def test_a_network_with_hooks_is_refused() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    network[1].register_forward_hook(lambda *_: None)
    with pytest.raises(NotFusable, match="hooks"):
        row_of(network, SHAPE)
