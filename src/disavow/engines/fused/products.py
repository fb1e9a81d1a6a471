"""How convolutions are divided that are computed as products of matrices on tensor cores (products.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch

from disavow.engines.fused.launches import CHUNK, SHARED, LaunchConfig, divisors, shape_of
from disavow.engines.fused.nodes import Convolution

_TILE = 16
"""Rows of a tile: positions, or taps."""

_EIGHT = 8
"""Columns of a tile, and products that are summed up at once."""

_WARPS = 8
"""In a block, at most."""

_MOST_COLUMNS = 32
"""Maps, whose sums a thread keeps in registers."""

_FEW_COLUMNS = 16

_BANKS = 32


def forward(layer: Convolution) -> LaunchConfig | None:
    """Divide the convolution itself.

    Args:
        layer: Its shape.

    Returns:
        A kernel; None where other kernels do better, or the shape does not fit.
    """
    if not _worth_it(layer, layer.outputs):
        return None
    side = 2 if layer.pooled else 1
    tiles = 4 if layer.outputs <= _FEW_COLUMNS else 2
    cells = tiles * _TILE // side**2  # of a warp
    for bands in range(1, layer.out_height + 1):
        band = -(-layer.out_height // bands)
        tall = (band * side - 1) * layer.stride + layer.kernel
        wide = (layer.out_width * side - 1) * layer.stride + layer.kernel
        images = _WARPS * cells // (band * layer.out_width)
        if images < 1 or band * (bands - 1) >= layer.out_height:
            continue
        images = images if bands == 1 else 1
        step = side * layer.stride
        positions = [(y * step, x * step) for y in range(band) for x in range(layer.out_width)]
        found = _convolution(
            layer,
            layer.inputs,
            layer.outputs,
            tiles,
            images,
            band * layer.out_width,
            cells,
            (tall, wide),
            positions,
        )
        if found:
            defines, threads = found
            defines |= {"BAND": band, "BANDS": bands}
            return LaunchConfig("products.cu", "product_forward", defines, threads, images, bands)
    return None


def gradient_of_input(layer: Convolution) -> LaunchConfig | None:
    """Divide the gradient of the input.

    Args:
        layer: Its shape.

    Returns:
        A kernel; None where other kernels do better, or the shape does not fit.
    """
    if not _worth_it(layer, layer.inputs) or layer.padding >= layer.kernel:
        return None
    tiles = 4 if layer.inputs <= _FEW_COLUMNS else 2
    pixels = tiles * _TILE  # of a warp
    for bands in range(1, layer.height + 1):
        band = -(-layer.height // bands)
        images = _WARPS * pixels // (band * layer.width)
        if images < 1 or band * (bands - 1) >= layer.height:
            continue
        images = images if bands == 1 else 1
        size = band + layer.kernel - 1, layer.width + layer.kernel - 1
        positions = [(y, x) for y in range(band) for x in range(layer.width)]
        found = _convolution(
            layer, layer.outputs, layer.inputs, tiles, images, band * layer.width, pixels, size, positions
        )
        if found:
            defines, threads = found
            defines |= {"BAND": band, "BANDS": bands}
            return LaunchConfig("products.cu", "product_input", defines, threads, images, bands)
    return None


def gradient_of_weights(layer: Convolution) -> LaunchConfig | None:
    """Divide the gradient of the weights.

    Args:
        layer: Its shape.

    Returns:
        A kernel; None where the shape does not fit.
    """
    if layer.outputs > _MOST_COLUMNS or not _tensor_cores():
        return None
    side, bias = 2 if layer.pooled else 1, int(layer.bias is not None)
    taps = layer.inputs * layer.kernel**2
    rows = -(-(taps + bias) // _TILE)
    tiles = min(rows, 3 if layer.outputs <= _FEW_COLUMNS else 2)
    groups = -(-rows // tiles)
    if groups > _WARPS:
        return None
    split = max(1, min(_WARPS // groups, SHARED // 4 // (layer.outputs * (taps + bias))))
    wide = (layer.out_width * side - 1) * layer.stride + layer.kernel
    for bands in range(1, layer.out_height + 1):
        band = -(-layer.out_height // bands)
        tall = (band * side - 1) * layer.stride + layer.kernel
        places = [
            (y * layer.stride, x * layer.stride) for y in range(band * side) for x in range(layer.out_width * side)
        ]
        pitch = _pitch(wide, _taps(layer, layer.inputs, tall), places)
        for together in (CHUNK, CHUNK // 2, CHUNK // 4, 1):
            steps = -(-together * len(places) // _EIGHT)
            held = together * (layer.inputs + bias) * tall * pitch + layer.outputs * (steps * _EIGHT + 4)
            numbers = max(held, split * layer.outputs * (taps + bias)) + steps * _EIGHT
            if 4 * numbers > SHARED or (together > 1 and bands > 1):
                continue
            defines = {
                **shape_of(layer), "BAND": band, "BANDS": bands, "TALL": tall, "WIDE": wide, "PITCH": pitch,
                "TILES": tiles, "TOGETHER": together, "SPLIT": split, "CHUNK": CHUNK,
                "THREADS": 32 * groups * split,
            }  # fmt: skip
            return LaunchConfig("products.cu", "product_weight", defines, defines["THREADS"], CHUNK)
    return None


def _tensor_cores() -> bool:
    """Whether the GPU has those that multiply TF32."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (8, 0)


def _worth_it(layer: Convolution, columns: int) -> bool:
    """Whether enough of the tiles is used: kernels of one tap, and few maps, are better read where they are."""
    return _tensor_cores() and layer.kernel > 1 and _EIGHT // 2 < columns <= _MOST_COLUMNS


def _convolution(
    layer: Convolution,
    sources: int,
    columns: int,
    tiles: int,
    images: int,
    each: int,
    of_warp: int,
    size: tuple[int, int],
    positions: Sequence[tuple[int, int]],
) -> tuple[dict[str, int], int] | None:
    """What the kernels of a convolution of `sources` maps of this size share, and their threads."""
    tall, wide = size
    pitch = _pitch(wide, positions, _taps(layer, sources, tall))
    row = _EIGHT * (-(-columns // _EIGHT) | 1)
    for planes in reversed(divisors(sources)):
        steps = -(-planes * layer.kernel**2 // _EIGHT)
        numbers = images * planes * tall * pitch + steps * _EIGHT * (row + 1) + columns
        if 4 * numbers <= SHARED:
            threads = 32 * -(-images * each // of_warp)
            defines = {
                **shape_of(layer), "TALL": tall, "WIDE": wide, "PITCH": pitch, "PLANES": planes, "COLUMNS": columns,
                "IMAGES": images, "TILES": tiles, "THREADS": threads,
            }  # fmt: skip
            return defines, threads
    return None


def _taps(layer: Convolution, sources: int, tall: int) -> list[tuple[int, int]]:
    """Where each tap lies in the maps that are read: its line, and its column."""
    kernel = range(layer.kernel)
    return [(source * tall + y, x) for source in range(sources) for y in kernel for x in kernel]


def _pitch(wide: int, rows: Sequence[tuple[int, int]], steps: Sequence[tuple[int, int]]) -> int:
    """Choose how far rows of maps lie apart in shared memory, so that a warp reads from few places of one bank.

    A warp reads eight rows of a matrix at four steps, each at the sum of two places.

    Args:
        wide: The least.
        rows: Places of rows: a line of maps, and a column.
        steps: The same of products.

    Returns:
        The best of a few.
    """
    some = [rows[first : first + 8] for first in islice(range(0, len(rows), 8), 6)]
    others = [steps[first : first + 4] for first in islice(range(0, len(steps), 4), 8)]

    def waits(pitch: int) -> int:
        total = 0
        for eight in some:
            for four in others:
                read = {y * pitch + x + v * pitch + u for y, x in eight for v, u in four}
                banks = [place % _BANKS for place in read]
                total += max(map(banks.count, set(banks)))
        return total

    return min(range(wide, wide + 9), key=waits)
