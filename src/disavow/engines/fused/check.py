"""Whether a network does what was read of it.

A trace shows the operations of one call, not what surrounds them: a part that stays in evaluation mode, a branch on
the mode, gradients that are stopped, hooks, lower precision. So both are tried on a few samples, and compared.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from disavow.engines.fused.network import NotFusable
from disavow.engines.fused.nodes import IMAGES, Convolution, Dense, Node, Norm, Row
from disavow.engines.state import layout_of, model_of

_SAMPLES = 4
_ROUNDING = 1e-3
"""The same operations differ by far less than this, of their size; the smallest, of all."""


def check_reading(network: nn.Module, shape: tuple[int, int, int], row: Row) -> None:
    """Compare a network with what was read of it, on a few samples.

    Args:
        network: Any module.
        shape: Channels, height and width of its images.
        row: What was read.

    Raises:
        NotFusable: Scores, gradients or statistics are not those of the nodes in the row.
    """
    plain = copy.deepcopy(network).cpu()
    images = torch.rand(_SAMPLES, *shape, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]):
        try:
            found = [_trained(plain, images), {"scores": _scored(plain, images)}]
        except Exception as error:  # what a user's module does is anybody's guess; another trainer says so itself
            raise NotFusable(f"a trial of it failed: {error}") from None
    read = _Reading(network, row)
    expected = [read.trained(images), {"scores": read.scores(images, training=False).detach()}]
    for theirs, ours in zip(found, expected, strict=True):
        largest = max(float(tensor.norm()) for tensor in ours.values())
        for name, tensor in ours.items():
            allowed = _ROUNDING * (float(tensor.norm()) + _ROUNDING * largest)
            if not float((theirs[name] - tensor).norm()) <= allowed:
                raise NotFusable(f"it does not do with its {name} what its layers would do")


def _loss(scores: Tensor) -> Tensor:
    return (scores * torch.linspace(-1, 1, scores.numel()).view_as(scores)).sum()


def _trained(network: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Gradients, and the state after them that is not learned."""
    network.train()
    named = dict(network.named_parameters())
    gradients = torch.autograd.grad(_loss(network(images)), list(named.values()), materialize_grads=True)
    after = {name: tensor for name, tensor in network.state_dict().items() if name not in named}
    floating = {name: tensor.clone() for name, tensor in after.items() if tensor.is_floating_point()}
    return {**dict(zip(named, gradients, strict=True)), **floating}


@torch.no_grad()
def _scored(network: nn.Module, images: Tensor) -> Tensor:
    scores: Tensor = network.eval()(images)
    return scores


class _Reading:
    """The nodes of a row as PyTorch's own functions, with the network's numbers."""

    def __init__(self, network: nn.Module, row: Row) -> None:
        parameters = {name for name, _ in network.named_parameters()}
        vector = model_of(network).vector.cpu()
        self._nodes = row.nodes
        self._learned: dict[str, Tensor] = {}
        self._other: dict[str, Tensor] = {}
        self._at: dict[int, Tensor] = {}
        for (spec, first, last), (_, offset, _) in zip(layout_of(network).spans(), row.spans, strict=True):
            tensor = vector[first:last].reshape(spec.shape).clone()
            learned = spec.name in parameters
            (self._learned if learned else self._other)[spec.name] = tensor.requires_grad_(learned)
            self._at[offset] = tensor

    def trained(self, images: Tensor) -> Mapping[str, Tensor]:
        """See `_trained`."""
        loss = _loss(self.scores(images, training=True))
        gradients = torch.autograd.grad(loss, list(self._learned.values()))
        return {**dict(zip(self._learned, gradients, strict=True)), **self._other}

    def scores(self, images: Tensor, *, training: bool) -> Tensor:
        """What the last node gives."""
        values = {IMAGES: images}
        for number, node in enumerate(self._nodes):
            sources = [values[source] for source in node.sources]
            value = self._value(node, sources, training=training)
            values[number] = value.relu() if node.relu else value
        return values[len(self._nodes) - 1]

    def _value(self, node: Node, sources: list[Tensor], *, training: bool) -> Tensor:
        at = self._at
        if isinstance(node, Convolution):
            bias = None if node.bias is None else at[node.bias]
            maps = functional.conv2d(sources[0], at[node.weight], bias, node.stride, node.padding)
            if node.pooled:
                ceiling = 2 * node.out_height > node.map_height or 2 * node.out_width > node.map_width
                maps = functional.max_pool2d(maps, 2, ceil_mode=ceiling)
            return maps
        if isinstance(node, Norm):
            statistics, learned = (at[node.mean], at[node.variance]), (at[node.weight], at[node.bias])
            return functional.batch_norm(
                sources[0], *statistics, *learned, training, node.momentum, node.epsilon
            )  # fmt: skip
        if isinstance(node, Dense):
            return functional.linear(sources[0].flatten(1), at[node.weight], at[node.bias])
        return sources[0] + sources[1]
