"""How a model lies in one flat vector."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

VARIANCE_SUFFIX = "running_var"
"""Tensors of this name are variances: noise must not push them below zero."""

STATISTICS = ("running_mean", VARIANCE_SUFFIX)
"""Names of the running statistics of batch norm. Training never reads them, only evaluation does."""

VARIANCE_FLOOR = 1e-5
"""Running variances stay at or above this, or batch norm would take the root of a negative."""


@dataclass(frozen=True)
class TensorSpec:
    """One named tensor of a model.

    Attributes:
        name: As in the model's state.
        shape: Its sizes.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers the tensor holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ConstantTensor:
    """A tensor of whole numbers that no training changes, such as a counter or a table of positions.

    Args:
        name: Its name.
        dtype: Its type, as NumPy names it.
        shape: Its shape.
        data: Its numbers as bytes in hexadecimal, the lowest byte of each first.

    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: str


@dataclass(frozen=True)
class Layout:
    """How a model's tensors lie in one flat float32 vector, in this order.

    Attributes:
        tensors: What is in the vector.

    >>> layout = Layout((TensorSpec("weight", (2, 3)), TensorSpec("bias", (2,))))
    >>> layout.size, [(s.name, a, b) for s, a, b in layout.spans()]
    (8, [('weight', 0, 6), ('bias', 6, 8)])
    """

    tensors: tuple[TensorSpec, ...]
    # not compared: counters of a network that has trained are other numbers, and never leave it
    constants: tuple[ConstantTensor, ...] = field(default=(), compare=False)
    """Tensors that are in every file of the model, and not in its vector."""

    @cached_property
    def size(self) -> int:
        """The length of the vector."""
        return sum(spec.size for spec in self.tensors)

    def spans(self) -> Iterator[tuple[TensorSpec, int, int]]:
        """Each tensor with the start and the end of its stretch of the vector.

        Yields:
            The tensor, where its stretch begins, and where it ends.
        """
        start = 0
        for spec in self.tensors:
            yield spec, start, start + spec.size
            start += spec.size

    def running_statistics(self) -> Iterator[tuple[int, int]]:
        """The stretches that hold batch-norm running statistics: means and variances.

        Yields:
            Where a stretch begins, and where it ends.
        """
        for spec, start, end in self.spans():
            if spec.name.rpartition(".")[2] in STATISTICS:
                yield start, end

    def variances(self) -> Iterator[tuple[int, int]]:
        """The stretches that hold batch-norm running variances.

        Yields:
            Where a stretch begins, and where it ends.
        """
        for spec, start, end in self.spans():
            if spec.name.rpartition(".")[2] == VARIANCE_SUFFIX:
                yield start, end

    def difference(self, other: Layout) -> str:
        """Name the first tensor that another layout has not, or has otherwise.

        Args:
            other: A layout that is not equal to this one.

        Returns:
            What differs, in words.

        >>> Layout((TensorSpec("weight", (2, 3)),)).difference(Layout((TensorSpec("weight", (2, 4)),)))
        'weight is (2, 3), not (2, 4)'
        """
        here, there = ({spec.name: spec.shape for spec in each.tensors} for each in (self, other))
        for name in here | there:
            if here.get(name) != there.get(name):
                return f"{name} is {here.get(name, 'not there')}, not {there.get(name, 'left out')}"
        return "their tensors are in another order"

    def to_json(self) -> str:
        """The layout as JSON, as the ledger stores it.

        Returns:
            A list of names and shapes; with constants, an object of both.
        """
        tensors = [[spec.name, list(spec.shape)] for spec in self.tensors]
        if not self.constants:
            return json.dumps(tensors)
        constants = [[each.name, each.dtype, list(each.shape), each.data] for each in self.constants]
        return json.dumps({"tensors": tensors, "constants": constants})

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Read back what `to_json` wrote.

        Args:
            text: That JSON.

        Returns:
            The layout.

        Raises:
            ValueError: It is no layout.
        """
        found = json.loads(text)
        if isinstance(found, dict) and found.keys() != {"tensors", "constants"}:
            raise ValueError("a layout has tensors and constants, and nothing else")
        tensors, constants = (found["tensors"], found["constants"]) if isinstance(found, dict) else (found, ())
        return cls(
            tuple(TensorSpec(name, tuple(shape)) for name, shape in tensors),
            tuple(ConstantTensor(name, dtype, tuple(shape), data) for name, dtype, shape, data in constants),
        )
