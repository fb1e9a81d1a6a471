"""How a chain's layers lie in a client's row, and how the work of a convolution is divided over threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disavow.domain import Layout
from disavow.engines.compiled.chain import Chain, Layer, NotAChain

_ALIGNED = 32
"""Tensors begin at multiples of this many numbers: the matrix products load several at once."""

_SHARED = 44 * 1024
"""Bytes of shared memory that a block may use; every GPU has 48 KiB without being asked."""

_THREADS = 256

CHUNK = 8
"""Images whose gradients of the weights one block adds up."""


@dataclass(frozen=True)
class Placed:
    """A layer, and where its weights and biases begin in a client's row."""

    layer: Layer
    weight: int
    bias: int

    @property
    def weights(self) -> int:
        """How many weights it has."""
        return self.layer.outputs * self.layer.inputs * self.layer.kernel_height * self.layer.kernel_width

    @property
    def cells(self) -> int:
        """Numbers that go out for an image."""
        return self.layer.outputs * self.layer.out_height * self.layer.out_width


@dataclass(frozen=True)
class Row:
    """A client's row: its layers, its length, and which part of it each tensor of the model is."""

    layers: tuple[Placed, ...]
    size: int
    spans: tuple[tuple[int, int, int], ...]
    """For each tensor of the model: where it begins in the vector, where in the row, and how long it is."""


def row_of(chain: Chain, layout: Layout) -> Row:
    """Lay out the model's tensors, which come layer by layer, weight before bias."""
    starts, end = [], 0
    spans = []
    for _, first, last in layout.spans():
        starts.append(end)
        spans.append((first, end, last - first))
        end += -(-(last - first) // _ALIGNED) * _ALIGNED
    names = [spec.name for spec in layout.tensors]
    pairs = list(zip(names[::2], names[1::2], strict=False))
    in_pairs = all(one.endswith("weight") and two.endswith("bias") for one, two in pairs)
    if len(names) != 2 * len(chain.layers) or not in_pairs:
        raise NotAChain("its tensors do not come layer by layer")
    placed = tuple(Placed(layer, starts[2 * i], starts[2 * i + 1]) for i, layer in enumerate(chain.layers))
    return Row(placed, end, tuple(spans))


@dataclass(frozen=True)
class Division:
    """How the three kernels of a convolution are compiled and launched."""

    forward: dict[str, int]
    weight: dict[str, int]
    input: dict[str, int]

    @property
    def weight_threads(self) -> int:
        """Threads in a block of the gradient of the weights."""
        return self.weight["OC"] * self.weight["PARTS"] * self.weight["COPIES"]

    @property
    def input_threads(self) -> int:
        """Threads in a block of the gradient of the input."""
        return self.input["IMAGES"] * -(-self.input["IH"] // 2) * -(-self.input["IW"] // 2)

    @property
    def input_groups(self) -> int:
        """Blocks that share an image in the gradient of the input."""
        return self.input["IC"] // self.input["WITHIN"]


def division_of(layer: Layer, *, first: bool) -> Division:
    """Divide a convolution's work. `NotAChain` for shapes that do not fit into a block."""
    if not first and layer.stride != 1:
        raise NotAChain("a convolution after the first has a stride")
    shape = {
        "IC": layer.inputs, "IH": layer.height, "IW": layer.width, "OC": layer.outputs, "K": layer.kernel_height,
        "STRIDE": layer.stride, "PAD": layer.padding, "OH": layer.map_height, "OW": layer.map_width,
        "CH": layer.out_height, "CW": layer.out_width, "SIDE": 2 if layer.pooled else 1, "RELU": layer.relu,
        "GATHER": int(first),
    }  # fmt: skip
    backward = shape if first else _input_division(layer, shape)
    return Division(_forward_division(layer, shape), _weight_division(layer, shape), backward)


def _seen(shape: dict[str, int]) -> tuple[int, int]:
    """Rows and columns that the windows of a convolution can see."""
    side, stride, k = shape["SIDE"], shape["STRIDE"], shape["K"]
    return (shape["CH"] * side - 1) * stride + k, (shape["CW"] * side - 1) * stride + k


def _padded(k: int) -> int:
    """Numbers in a row of a kernel in shared memory."""
    return -(-k // 4) * 4


def _forward_division(layer: Layer, shape: dict[str, int]) -> dict[str, int]:
    rows, columns = _seen(shape)
    # neighbouring threads read two by two; the next row of cells goes on where the last one ended
    pitch = _congruent(columns, layer.out_width + layer.out_width % 2, 16)
    weights = layer.outputs * (layer.inputs * layer.kernel_height * _padded(layer.kernel_height) + 1)
    images = min(4, (_SHARED // 4 - weights) // (layer.inputs * rows * pitch))
    if images < 1:
        raise NotAChain("a convolution's images or kernels are too large for a block")
    return {**shape, "PITCH": pitch, "IMAGES": images, "GROUP": _divisor(layer.outputs, 8)}


def _weight_division(layer: Layer, shape: dict[str, int]) -> dict[str, int]:
    rows, columns = _seen(shape)
    # neighbouring threads have neighbouring taps: with this pitch those of a kernel lie in one row of banks
    pitch = _congruent(columns, layer.kernel_height, 32)
    taps = layer.inputs * layer.kernel_height**2
    parts = max(1, min(taps, 512 // layer.outputs))
    copies = max(1, min(4, 512 // (layer.outputs * parts)))
    cells = layer.outputs * layer.out_height * layer.out_width
    if 4 * layer.inputs * rows * pitch + 8 * cells > _SHARED:
        raise NotAChain("a convolution's images are too large for a block")
    if layer.outputs * parts > 1024 or -(-taps // parts) > 64:  # noqa: PLR2004
        raise NotAChain("a convolution has too many channels for a block")
    return {**shape, "PITCH": pitch, "PARTS": parts, "COPIES": copies, "CHUNK": CHUNK}


def _input_division(layer: Layer, shape: dict[str, int]) -> dict[str, int]:
    k, blocks = layer.kernel_height, -(-layer.height // 2) * -(-layer.width // 2)
    across = -(-layer.width // 2)
    pitch = _congruent(layer.width + k, across + across % 2, 16)
    within, images = _divisor(layer.inputs, 8), max(1, min(4, _THREADS // blocks))
    fitting = (_SHARED // 4) // (images * (layer.height + k) * pitch + within * k * _padded(k))
    if fitting < 1 or blocks > 1024:  # noqa: PLR2004
        raise NotAChain("a convolution's maps are too large for a block")
    planes = _divisor(layer.outputs, min(8, fitting))
    return {**shape, "PITCH": pitch, "IMAGES": images, "WITHIN": within, "PLANES": planes}


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
    """How many rows a stack for this many is given: few sizes, so that a client's leaving compiles nothing anew.

    >>> [whole_rows(rows) for rows in (1, 8, 9, 50, 64, 65, 1000)]
    [8, 8, 16, 56, 64, 80, 1024]
    """
    step = 8
    while step * 8 < rows:
        step *= 2
    return -(-rows // step) * step


def prefixes(rows: int) -> Iterator[int]:
    """The numbers of rows for which a stack keeps a graph: all, and ever fewer as clients finish."""
    while rows > 8:  # noqa: PLR2004
        yield rows
        rows = whole_rows(rows * 3 // 4) if whole_rows(rows * 3 // 4) < rows else rows - 8
    yield rows
