"""Models and updates as flat float32 vectors, on whatever device the engine works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import torch
from torch import Tensor

from disavow.domain import VARIANCE_FLOOR, Layout, TensorSpec
from disavow.errors import ModelMismatch

_BLOCK_NUMBERS = 1 << 24
"""Large updates are walked through in blocks of rows of about this many numbers (64 MiB of float32)."""


@dataclass(frozen=True, eq=False)
class Model:
    """Parameters and floating buffers of a network, in the order of its layout."""

    layout: Layout
    vector: Tensor

    def __post_init__(self) -> None:
        if self.vector.shape != (self.layout.size,) or self.vector.dtype != torch.float32:
            raise ValueError(f"a model is a float32 vector of {self.layout.size} numbers")

    def tensors(self) -> dict[str, Tensor]:
        """The named tensors, as views of the vector."""
        return {s.name: self.vector[start:end].view(s.shape) for s, start, end in self.layout.spans()}


def require_layout(models: Iterable[Model], layout: Layout) -> None:
    """Refuse models that have other tensors, by name, shape and order, in one float32 vector.

    Every engine asks before it trains or evaluates: kernels read memory by the layout of their own network.

    Args:
        models: The models.
        layout: What they must have.

    Raises:
        ModelMismatch: One has others.

    """
    for model in models:
        if model.layout != layout:
            raise ModelMismatch(f"the model is not one of this network: {_difference(model.layout, layout)}")
        vector = model.vector
        if tuple(vector.shape) != (layout.size,) or vector.dtype != torch.float32:
            raise ModelMismatch(
                f"the model is not one of this network: its vector is {tuple(vector.shape)} of {vector.dtype}, "
                f"not ({layout.size},) of torch.float32"
            )


def _difference(found: Layout, wanted: Layout) -> str:
    """The first tensor in which two layouts differ, in words."""
    pairs = zip_longest(found.tensors, wanted.tensors)
    number, (theirs, ours) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return f"its tensor {number} is {_named(theirs)}, the network's is {_named(ours)}"


def _named(spec: TensorSpec | None) -> str:
    return "missing" if spec is None else f"{spec.name} {spec.shape}"


@dataclass(frozen=True, eq=False)
class Updates:
    """What the clients of a round returned: one row each, their model minus the broadcast model.

    `trainer` names what trained them, such as compiled or pool: the same clients trained by another have other last
    bits. None where nobody says.
    """

    clients: tuple[str, ...]
    samples: tuple[int, ...]
    vectors: Tensor
    trainer: str | None = None

    def __len__(self) -> int:
        return len(self.clients)

    def in_id_order(self) -> Updates:
        """The same updates sorted by client id, so that the order of arrival cannot matter."""
        order = sorted(range(len(self)), key=self.clients.__getitem__)
        if order == list(range(len(self))):
            return self
        return replace(
            self,
            clients=tuple(self.clients[i] for i in order),
            samples=tuple(self.samples[i] for i in order),
            vectors=self.vectors[torch.tensor(order, device=self.vectors.device)],
        )


def on_cpu(vectors: Tensor) -> Tensor:
    """Copy numbers to the CPU's memory; from a GPU through memory that it can write to by itself."""
    if vectors.device.type != "cuda":
        return vectors.cpu()
    pinned = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
    pinned.copy_(vectors, non_blocking=True)
    torch.cuda.current_stream(vectors.device).synchronize()
    return pinned


def row_blocks(vectors: Tensor) -> Iterator[slice]:
    """Divide rows into slices, each small enough to work on a copy of it."""
    rows = max(1, _BLOCK_NUMBERS // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), rows):
        yield slice(start, min(start + rows, len(vectors)))


def floor_variances(model: Model, noise: float) -> Model:
    """Raise every running variance to `VARIANCE_FLOOR`, and to the noise on it.

    What is left of a small variance after noise says little about it; taken at its word it blows a channel up.

    Args:
        model: The model.
        noise: The standard deviation of that noise.

    """
    spans = list(model.layout.variances())
    if not spans:
        return model
    vector = model.vector.clone()
    for start, end in spans:
        vector[start:end].clamp_(min=max(VARIANCE_FLOOR, noise))
    return Model(model.layout, vector)
