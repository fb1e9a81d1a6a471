"""How a kernel of a convolution is compiled and launched."""

from __future__ import annotations

from dataclasses import dataclass

from disavow.engines.fused.nodes import IMAGES, Convolution

SHARED = 44 * 1024
"""Bytes of shared memory that a block may use; every GPU has 48 KiB without being asked."""

CHUNK = 8
"""Images whose gradients of the weights one block adds up."""


@dataclass(frozen=True)
class LaunchConfig:
    """A kernel for a convolution's shape, and how it is launched: `groups` blocks for so many images."""

    source: str
    kernel: str
    defines: dict[str, int]
    threads: int
    images: int
    groups: int = 1

    def blocks(self, batch: int) -> int:
        """Blocks for a row of so many positions."""
        return -(-batch // self.images) * self.groups


def shape_of(layer: Convolution) -> dict[str, int]:
    """Name a convolution's shape as all of its kernels do.

    Args:
        layer: Its shape.

    Returns:
        Macros.
    """
    return {
        "IC": layer.inputs, "IH": layer.height, "IW": layer.width, "OC": layer.outputs, "K": layer.kernel,
        "STRIDE": layer.stride, "PAD": layer.padding, "OH": layer.map_height, "OW": layer.map_width,
        "CH": layer.out_height, "CW": layer.out_width, "SIDE": 2 if layer.pooled else 1, "RELU": int(layer.relu),
        "GATHER": int(layer.source == IMAGES), "BIAS": int(layer.bias is not None),
    }  # fmt: skip


def divisors(number: int) -> list[int]:
    """List the divisors of a number.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]

    Args:
        number: At least one.

    Returns:
        All, rising.
    """
    return [each for each in range(1, number + 1) if number % each == 0]
