from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from disavow.engines.fused import layers
from disavow.engines.fused.layers import layer_of
from disavow.engines.fused.memory import Delta, Memory
from disavow.engines.fused.nodes import Convolution, Node, Norm, Row, Sum, cells

ROWS, BATCH, CHANNELS = 3, 7, 3
COUNTS = [5, 0, 7]
MOMENTUM, EPSILON = 0.3, 1e-5


def memory_of(nodes: tuple[Node, ...], size: int, device: torch.device) -> Memory:
    """Random maps of two convolutions, numbers 0 and 1; what is not a number at empty positions."""
    generator = torch.Generator().manual_seed(4)
    nothing = torch.zeros(0, device=device)
    memory = Memory.of(Row(nodes, size, ()), rows=ROWS, batch=BATCH, images=nothing, labels=nothing)
    memory.count.copy_(torch.tensor(COUNTS))
    memory.parameters.copy_(torch.rand(ROWS, size, generator=generator) + 0.5)
    for number, out in enumerate(memory.out):
        maps = torch.randn(out.shape, generator=generator) if number < 2 else torch.full(out.shape, torch.nan)
        for row, count in enumerate(COUNTS):
            maps[row, count:] = torch.nan
        out.copy_(maps)
    return memory


def convolution(side: int) -> Convolution:
    return Convolution(-1, 1, side, side, CHANNELS, 1, 1, 0, side, side, side, side, 0, None)


def norm(source: int, side: int, offset: int, *, relu: bool = False) -> Norm:
    """Its tensors begin one after the other at `offset`."""
    weight, bias, mean, variance = (offset + CHANNELS * i for i in range(4))
    return Norm(source, (CHANNELS, side, side), weight, bias, mean, variance, EPSILON, MOMENTUM, relu)


class Applied:
    """What a norm of the maps of a convolution does, by PyTorch in double precision."""

    def __init__(self, memory: Memory, row: int, node: Norm) -> None:
        self.learned = [self._tensor(memory, row, start).requires_grad_() for start in (node.weight, node.bias)]
        self.statistics = [self._tensor(memory, row, start) for start in (node.mean, node.variance)]

    @staticmethod
    def _tensor(memory: Memory, row: int, start: int) -> Tensor:
        return memory.parameters[row, start : start + CHANNELS].double().cpu()

    def __call__(self, maps: Tensor, *, training: bool = True) -> Tensor:
        mean, variance = self.statistics
        weight, bias = self.learned
        return functional.batch_norm(maps, mean, variance, weight, bias, training, MOMENTUM, EPSILON)


def maps_of(tensor: Tensor, row: int, side: int) -> Tensor:
    return tensor[row, : COUNTS[row]].double().cpu().view(-1, CHANNELS, side, side)


def near(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    difference = (found.cpu().double().flatten() - expected.detach().flatten()).abs().max()
    assert float(difference) <= tolerance * (1 + float(expected.detach().abs().max()))


@pytest.fixture(params=[8192, 40], ids=["one part", "several parts"])
def numbers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_NUMBERS", request.param)


@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("side", [4, 5])
def test_a_norm_is_as_pytorch_computes_it(side: int, relu: bool, device: torch.device) -> None:
    node = norm(0, side, 0, relu=relu)
    memory = memory_of((convolution(side), convolution(side), node), 4 * CHANNELS, device)
    before = replace(memory, parameters=memory.parameters.clone())
    delta, to = memory.zeros(BATCH, cells(node)), memory.zeros(BATCH, cells(node)) + 2.0
    delta += torch.randn(delta.shape, generator=torch.Generator().manual_seed(1)).to(device)
    memory.rates[:, 0] = 1.0
    layer = layer_of(memory, 2)
    layer.prepare(delta, (Delta(to, add=True),))
    for action in (*layer.forward, *layer.backward, *layer.update):
        action(ROWS)
    for row, count in enumerate(COUNTS):
        assert not memory.out[2][row, count:].any()
        if not count:
            assert torch.equal(memory.parameters[row], before.parameters[row])
            continue
        applied, maps = Applied(before, row, node), maps_of(memory.out[0], row, side).requires_grad_()
        out = applied(maps).relu() if relu else applied(maps)
        out.backward(maps_of(delta, row, side))
        near(memory.out[2][row, :count], out)
        assert maps.grad is not None
        near(to[row, :count] - 2.0, maps.grad)
        steps = [of.detach() - of.grad for of in applied.learned if of.grad is not None]
        near(memory.parameters[row], torch.cat([*steps, *applied.statistics]))


def test_maps_whose_mean_is_large_beside_their_deviation(device: torch.device) -> None:
    side, node = 4, norm(0, 4, 0)
    memory = memory_of((convolution(side), convolution(side), node), 4 * CHANNELS, device)
    maps = memory.out[0].view(ROWS, BATCH, CHANNELS, side * side)
    maps.mul_(0.1).add_(1000.0)
    maps[:, :, 1] = 1e6  # no deviation at all
    maps[:, 0, 2, 0] = -1000.0  # one that lies far away, where the sums begin
    before = replace(memory, parameters=memory.parameters.clone())
    for action in layer_of(memory, 2).forward:
        action(ROWS)
    for row, count in enumerate(COUNTS):
        if count:
            applied = Applied(before, row, node)
            out = applied(maps_of(memory.out[0], row, side))
            near(memory.out[2][row, :count], out, 1e-3)
            near(memory.parameters[row, node.variance :], applied.statistics[1], 1e-5)


def test_scores_are_normalised_by_the_running_statistics(device: torch.device) -> None:
    side, node = 5, norm(0, 5, 0)
    memory = memory_of((convolution(side), convolution(side), node), 4 * CHANNELS, device)
    before = replace(memory, parameters=memory.parameters.clone())
    for action in layer_of(memory, 2).known:
        action(ROWS)
    assert torch.equal(memory.parameters, before.parameters)
    near(memory.out[2][2], Applied(memory, 2, node)(maps_of(memory.out[0], 2, side), training=False))


@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("side", [4, 5])
@pytest.mark.parametrize("ways", ["own and fresh", "fresh and added", "added to one"])
def test_a_sum_passes_its_delta_on(side: int, relu: bool, ways: str, device: torch.device) -> None:
    node = Sum((0, 1), (CHANNELS, side, side), relu)
    memory = memory_of((convolution(side), convolution(side), node), 1, device)
    generator = torch.Generator().manual_seed(1)
    delta = torch.randn(ROWS, BATCH, cells(node), generator=generator).to(device)
    for row, count in enumerate(COUNTS):
        delta[row, count:] = 0.0
    given, fresh, added = (
        delta.clone(),
        memory.zeros(BATCH, cells(node)) + torch.nan,
        memory.zeros(BATCH, cells(node)),
    )
    towards = {
        "own and fresh": (Delta(delta, False), Delta(fresh, False)),
        "fresh and added": (Delta(fresh, False), Delta(added, True)),
        "added to one": (Delta(fresh, False), Delta(fresh, True)),
    }[ways]
    layer = layer_of(memory, 2)
    layer.prepare(delta, towards)
    for action in (*layer.forward, *layer.backward):
        action(ROWS)
    for row, count in enumerate(COUNTS):
        out = memory.out[0][row, :count] + memory.out[1][row, :count]
        near(memory.out[2][row, :count], out.relu().cpu() if relu else out.cpu()) if count else None
        assert not memory.out[2][row, count:].any()
    opened = torch.where(memory.out[2] > 0, given, 0.0) if relu else given
    for to in towards:
        # a dense layer adds up what lies in empty positions too
        assert torch.equal(to.tensor, 2 * opened if ways == "added to one" else opened)
