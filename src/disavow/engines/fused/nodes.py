"""What a network is made of, as the kernels see it: nodes, and where their numbers lie in a client's row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

IMAGES = -1
"""The source of a node that reads the images themselves."""


@dataclass(frozen=True)
class _Follower:
    """A node that reads one other."""

    source: int

    @property
    def sources(self) -> tuple[int, ...]:
        """The nodes that it reads."""
        return (self.source,)


@dataclass(frozen=True)
class Convolution(_Follower):
    """A convolution, with what follows it; `weight` and `bias` are where they begin in a client's row."""

    inputs: int
    height: int
    width: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    map_height: int
    map_width: int
    out_height: int
    out_width: int
    weight: int
    bias: int | None
    relu: bool = False
    pooled: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """What goes out for an image."""
        return self.outputs, self.out_height, self.out_width

    @property
    def weights(self) -> int:
        """How many weights it has."""
        return self.outputs * self.inputs * self.kernel**2


@dataclass(frozen=True)
class Dense(_Follower):
    """A dense layer; `weight` and `bias` are where they begin in a client's row."""

    inputs: int
    outputs: int
    weight: int
    bias: int
    relu: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """What goes out for an image."""
        return (self.outputs,)

    @property
    def weights(self) -> int:
        """How many weights it has."""
        return self.outputs * self.inputs


@dataclass(frozen=True)
class Norm(_Follower):
    """A batch norm over maps; what it learns and its running statistics begin at these offsets of a row."""

    shape: tuple[int, ...]
    weight: int
    bias: int
    mean: int
    variance: int
    epsilon: float
    momentum: float
    relu: bool = False


@dataclass(frozen=True)
class Sum:
    """Two maps added up."""

    sources: tuple[int, ...]
    shape: tuple[int, ...]
    relu: bool = False


Node = Convolution | Dense | Norm | Sum


def cells(node: Node) -> int:
    """Numbers that go out for an image."""
    return int(np.prod(node.shape))


@dataclass(frozen=True)
class Row:
    """A client's row: the nodes in their order, its length, and which part of it each tensor of the model is."""

    nodes: tuple[Node, ...]
    size: int
    spans: tuple[tuple[int, int, int], ...]
    """For each tensor of the model: where it begins in the vector, where in the row, and how long it is."""
