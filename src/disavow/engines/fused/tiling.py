"""How the work of a convolution is divided over threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from disavow.engines.fused.network import NotFusable
from disavow.engines.fused.nodes import IMAGES, Convolution

_SHARED = 44 * 1024
"""Bytes of shared memory that a block may use; every GPU has 48 KiB without being asked."""

_THREADS = 256

_SUMS = 48
"""Sums that a thread keeps in registers, at most."""

_WARP = 32
"""Threads that run together."""

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


@dataclass(frozen=True)
class Tiling:
    """How the kernels of a convolution are compiled and launched; nobody asks for the gradient of the images."""

    forward: LaunchConfig
    weight: LaunchConfig
    input: LaunchConfig | None


def tiling_of(layer: Convolution) -> Tiling:
    """Divide a convolution's work over threads.

    Args:
        layer: Its shape.

    Returns:
        How its kernels are compiled and launched.

    Raises:
        NotFusable: The shape does not fit into a block.
    """
    first = layer.source == IMAGES
    shape = {
        "IC": layer.inputs, "IH": layer.height, "IW": layer.width, "OC": layer.outputs, "K": layer.kernel,
        "STRIDE": layer.stride, "PAD": layer.padding, "OH": layer.map_height, "OW": layer.map_width,
        "CH": layer.out_height, "CW": layer.out_width, "SIDE": 2 if layer.pooled else 1, "RELU": int(layer.relu),
        "GATHER": int(first), "BIAS": int(layer.bias is not None), "BAND": layer.out_height,
    }  # fmt: skip
    taps = layer.kernel**2
    forward = _direct(
        layer, shape, "direct_forward", layer.inputs * taps, layer.outputs, layer.map_height, layer.map_width
    )
    backward = _direct(layer, shape, "direct_input", layer.outputs * taps, layer.inputs, layer.height, layer.width)
    return Tiling(
        forward or _forward_tiling(layer, shape),
        _direct_weight(layer, shape) or _weight_tiling(layer, shape),
        None if first else backward or _input_tiling(layer, shape),
    )


def _direct(
    layer: Convolution, shape: dict[str, int], kernel: str, taps: int, channels: int, rows: int, columns: int
) -> LaunchConfig | None:
    """The way of a convolution that is not pooled, if its weights, in whole fours of channels, fit into a block."""
    fours = -(-channels // 4)
    if layer.pooled or 16 * (taps + 1) * fours > _SHARED:
        return None
    each = _divisor(fours, 5)
    down = next((d for d in (4, 2) if _deep(rows, columns, d) and _fits(layer, each, d)), 1)
    images = max(1, 4 * _THREADS // (rows // down * columns * fours // each))
    defines = {**shape, "EACH": each, "DOWN": down, "IMAGES": images}
    return LaunchConfig("direct.cu", kernel, defines, _THREADS, images)


def _overlapping(layer: Convolution) -> bool:
    """Whether neighbouring outputs of a convolution that is not pooled see the same pixels."""
    return not layer.pooled and layer.stride == 1 and layer.kernel > 1


def _fits(layer: Convolution, each: int, down: int) -> bool:
    """Whether what a thread reads and sums for so many places, one below the other, fits into registers."""
    seen = (down + layer.kernel - 1) * layer.kernel
    return _overlapping(layer) and 4 * each * down <= _SUMS and seen <= _SUMS


def _deep(rows: int, columns: int, down: int) -> bool:
    """Whether a thread can take so many rows without leaving too little for others."""
    return rows % down == 0 and rows // down * columns >= _THREADS // 2


def _seen(cells: int, shape: dict[str, int]) -> int:
    """Rows, or columns, of the images that so many rows, or columns, of cells can see."""
    return (cells * shape["SIDE"] - 1) * shape["STRIDE"] + shape["K"]


def _band(layer: Convolution, fits: Callable[[int], bool]) -> int:
    """How many rows of cells a block takes at a time: all of them, or else the fewest bands that fit."""
    bands = (-(-layer.out_height // count) for count in range(1, layer.out_height + 1))
    for band in bands:
        if fits(band):
            return band
    raise NotFusable("a convolution's images or kernels are too large for a block")


def _padded(k: int) -> int:
    """Numbers in a row of a kernel in shared memory."""
    return -(-k // 4) * 4


def _forward_tiling(layer: Convolution, shape: dict[str, int]) -> LaunchConfig:
    # neighbouring threads read two by two; the next row of cells goes on where the last one ended
    pitch = _congruent(_seen(layer.out_width, shape), layer.out_width + layer.out_width % 2, 16)
    weights = layer.outputs * (layer.inputs * layer.kernel * _padded(layer.kernel) + 1)

    def images(band: int) -> int:
        return min(4, (_SHARED // 4 - weights) // (layer.inputs * _seen(band, shape) * pitch))

    band = _band(layer, lambda band: images(band) >= 1)
    defines = {**shape, "PITCH": pitch, "IMAGES": images(band), "GROUP": _divisor(layer.outputs, 8), "BAND": band}
    bands = -(-layer.out_height // band)
    return LaunchConfig("kernels.cu", "conv_forward", defines, _THREADS, images(band), bands)


def _weight_tiling(layer: Convolution, shape: dict[str, int]) -> LaunchConfig:
    # neighbouring threads have neighbouring taps: with this pitch those of a kernel lie in one row of banks
    pitch = _congruent(_seen(layer.out_width, shape), layer.kernel, 32)
    taps, cells = layer.inputs * layer.kernel**2, layer.out_height * layer.out_width
    parts = max(1, min(taps, 512 // layer.outputs))
    copies = max(1, min(cells, 512 // (layer.outputs * parts)))
    if layer.outputs * parts > 1024 or -(-taps // parts) > 64:  # noqa: PLR2004
        raise NotFusable("a convolution has too many channels for a block")
    sums = copies * layer.outputs * (taps + 1) if copies > 1 else 0

    def images(band: int) -> int:
        seen, deltas = layer.inputs * _seen(band, shape) * pitch, layer.outputs * band * layer.out_width
        return min(4, (_SHARED - 4 * sums) // (4 * seen + 8 * deltas))

    band = _band(layer, lambda band: images(band) >= 1)
    defines = {
        **shape, "PITCH": pitch, "PARTS": parts, "COPIES": copies, "CHUNK": CHUNK, "TOGETHER": images(band),
        "BAND": band, "THREADS": layer.outputs * parts * copies,
    }  # fmt: skip
    return LaunchConfig("kernels.cu", "conv_weight", defines, defines["THREADS"], CHUNK)


def _direct_weight(layer: Convolution, shape: dict[str, int]) -> LaunchConfig | None:
    """The way of a convolution of maps that is not pooled; strided ones are faster in the general way."""
    taps, wide = layer.inputs * layer.kernel**2, -(-layer.outputs // 4) * 4
    if not _overlapping(layer) or wide > _SUMS:
        return None
    # the fewest places for taps that stay unused; then the most taps a thread, so that deltas are read seldom
    own = min(range(1, _SUMS // wide + 1), key=lambda own: (_lanes(taps, own) * own, -own))
    lanes = _lanes(taps, own)
    if lanes > _THREADS:
        return None
    pitch = _congruent(_seen(layer.out_width, shape), layer.kernel, _WARP)
    sums = layer.outputs * (taps + 1)

    def images(band: int) -> int:
        seen, deltas = layer.inputs * _seen(band, shape) * pitch, wide * band * layer.out_width
        return min(4, (_SHARED // 4 - sums) // (seen + deltas))

    try:
        band = _band(layer, lambda band: images(band) >= 1)
    except NotFusable:
        return None
    copies = _THREADS // lanes
    defines = {
        **shape, "PITCH": pitch, "OWN": own, "LANES": lanes, "COPIES": copies, "CHUNK": CHUNK,
        "TOGETHER": images(band), "BAND": band, "THREADS": lanes * copies,
    }  # fmt: skip
    return LaunchConfig("kernels.cu", "direct_weight", defines, defines["THREADS"], CHUNK)


def _lanes(taps: int, own: int) -> int:
    """Threads that are needed where each has so many taps, rounded up to whole warps.

    >>> _lanes(180, 3), _lanes(180, 4), _lanes(9, 1)
    (64, 64, 32)
    """
    return -(-taps // (own * _WARP)) * _WARP


def _input_tiling(layer: Convolution, shape: dict[str, int]) -> LaunchConfig:
    k, blocks = layer.kernel, -(-layer.height // 2) * -(-layer.width // 2)
    across = -(-layer.width // 2)
    pitch = _congruent(layer.width + k, across + across % 2, 16)
    within, images = _divisor(layer.inputs, 8), max(1, min(4, _THREADS // blocks))
    fitting = (_SHARED // 4) // (images * (layer.height + k) * pitch + within * k * _padded(k))
    if fitting < 1 or blocks > 1024:  # noqa: PLR2004
        raise NotFusable("a convolution's maps are too large for a block")
    planes = _divisor(layer.outputs, min(8, fitting))
    threads = images * blocks
    defines = {**shape, "PITCH": pitch, "IMAGES": images, "WITHIN": within, "PLANES": planes, "THREADS": threads}
    return LaunchConfig("kernels.cu", "conv_input", defines, threads, images, layer.inputs // within)


def _congruent(least: int, residue: int, modulus: int) -> int:
    """The smallest number of at least `least` with this residue.

    >>> _congruent(32, 5, 32)
    37
    """
    return least + (residue - least) % modulus


def _divisor(number: int, most: int) -> int:
    """The largest divisor up to `most`."""
    return max(d for d in range(1, most + 1) if number % d == 0)


def whole_rows(rows: int) -> int:
    """Choose how many rows a stack is given: few sizes, so that a client's leaving compiles nothing anew.

    >>> [whole_rows(rows) for rows in (1, 8, 9, 50, 64, 65, 1000)]
    [8, 8, 16, 56, 64, 80, 1024]

    Args:
        rows: How many are needed.

    Returns:
        At least as many.
    """
    step = 8
    while step * 8 < rows:
        step *= 2
    return -(-rows // step) * step


def prefixes(rows: int) -> Iterator[int]:
    """List the numbers of rows for which a stack keeps a graph: all, and ever fewer as clients finish.

    Args:
        rows: All rows.

    Yields:
        The numbers, falling.
    """
    while rows > 8:  # noqa: PLR2004
        yield rows
        rows = whole_rows(rows * 3 // 4) if whole_rows(rows * 3 // 4) < rows else rows - 8
    yield rows
