"""Between Flower's ArrayRecord and our flat vector.

Floating arrays are the model. Others (counters such as `num_batches_tracked`) are not in the vector: they go out as
they came in with the initial arrays, and what clients return for them is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord

from disavow.domain import Layout, TensorSpec
from disavow.errors import ConfigError
from disavow.rounds.vectors import Model, require_layout

Vector = npt.NDArray[np.float32]


class Malformed(Exception):
    """A reply that cannot enter a round; the message says why."""


@dataclass(frozen=True, eq=False)
class Frame:
    """What every ArrayRecord of a run looks like: names in order, the layout of the floating ones, the others."""

    layout: Layout
    names: tuple[str, ...]
    types: Mapping[str, np.dtype[np.generic]]
    others: Mapping[str, Array]

    def record(self, model: Model) -> ArrayRecord:
        """The model as Flower sends it, in the types and the order of the initial arrays."""
        require_layout([model], self.layout)
        tensors = model.tensors()
        arrays = {
            name: self.others[name]
            if name in self.others
            else Array(tensors[name].numpy().astype(self.types[name], copy=False))
            for name in self.names
        }
        return ArrayRecord(arrays)

    def vector(self, record: ArrayRecord) -> Vector:
        """The floating arrays as one vector; `Malformed` where names or shapes are not those of the model."""
        missing = [spec.name for spec in self.layout.tensors if spec.name not in record]
        if missing:
            raise Malformed(f"the array {missing[0]!r} is missing")
        parts = []
        for spec in self.layout.tensors:
            array = _numbers(record, spec.name)
            if array.shape != spec.shape:
                raise Malformed(f"the array {spec.name!r} has shape {array.shape}, not {spec.shape}")
            parts.append(array.astype(np.float32, copy=False).reshape(-1))
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def frame_of(initial: ArrayRecord) -> Frame:
    """The frame that the initial arrays of a run give."""
    arrays = {name: array.numpy() for name, array in initial.items()}
    floating = {name: array for name, array in arrays.items() if np.issubdtype(array.dtype, np.floating)}
    if not floating:
        raise ConfigError("the initial arrays hold no floating numbers, so there is nothing to train")
    return Frame(
        layout=Layout(tuple(TensorSpec(name, array.shape) for name, array in floating.items())),
        names=tuple(arrays),
        types={name: array.dtype for name, array in floating.items()},
        others={name: array for name, array in initial.items() if name not in floating},
    )


def model_from(frame: Frame, initial: ArrayRecord) -> Model:
    """The initial arrays as a model."""
    return Model(frame.layout, torch.from_numpy(frame.vector(initial)))


def _numbers(record: ArrayRecord, name: str) -> npt.NDArray[np.floating]:
    try:
        array = record[name].numpy()
    except Exception as error:  # whatever a stranger's bytes do to a parser
        raise Malformed(f"the array {name!r} cannot be read ({type(error).__name__})") from None
    if not np.issubdtype(array.dtype, np.floating):
        raise Malformed(f"the array {name!r} holds {array.dtype}, not floating numbers")
    numbers: npt.NDArray[np.floating] = array
    return numbers
