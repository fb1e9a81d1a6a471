"""What workers are taught: workloads, their samples in memory that all processes share.

The memory has no name (`memfd`; elsewhere an unlinked file). Processes get at it by descriptor, and the kernel
frees it with the last of them, however they end.
"""

from __future__ import annotations

import io
import itertools
import math
import mmap
import os
import pickle
import tempfile
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from disavow.config import TrainingSettings
from disavow.engines.workload import Workload

_REMEMBERED = 64
"""Workloads whose samples are kept in shared memory; of more, the one not used for longest is forgotten."""


class Memory:
    """Memory without a name, to be mapped by every process that is sent its descriptor."""

    def __init__(self, size: int) -> None:
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("disavow")
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, max(1, size))


@dataclass(frozen=True)
class Form:
    """How a tensor lies in its memory. The number tells whether a worker has mapped it already."""

    number: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


def mapped(descriptor: int, form: Form, access: int) -> Tensor:
    """The tensor in the memory behind a descriptor, which may be closed afterwards."""
    numbers = math.prod(form.shape)
    if numbers == 0:
        return torch.empty(form.shape, dtype=form.dtype)
    flat = torch.frombuffer(mmap.mmap(descriptor, 0, access=access), dtype=form.dtype, count=numbers)
    return flat.as_strided(form.shape, form.stride)


class SharedTensor:
    """A copy of a tensor that all processes can map, laid out as the tensor is: strides can change the bits."""

    def __init__(self, number: int, source: Tensor) -> None:
        self.source = source
        stride = torch.empty_like(source, device="meta").stride()
        self.form = Form(number, tuple(source.shape), stride, source.dtype)
        self.memory = Memory(source.numel() * source.element_size())
        mapped(self.memory.descriptor, self.form, mmap.ACCESS_WRITE).copy_(source.detach())


@dataclass(frozen=True)
class Lesson:
    """All of a workload but the memory of its tensors, whose descriptors are sent after it."""

    network: bytes
    parts: Mapping[str, npt.NDArray[np.int64]]
    settings: TrainingSettings
    seed: int
    tensors: tuple[Form, ...]

    def learn(self, images: Tensor, labels: Tensor, test_images: Tensor, test_labels: Tensor) -> Workload:
        """The workload again, in another process."""
        return Workload(
            network=_loaded(self.network),
            images=images,
            labels=labels,
            parts=self.parts,
            test_images=test_images,
            test_labels=test_labels,
            settings=self.settings,
            seed=self.seed,
        )


@dataclass(frozen=True, eq=False)
class Entry:
    """A workload as workers know it: its number, and images and labels to train and to test with."""

    number: int
    tensors: tuple[SharedTensor, ...]

    def lesson(self, workload: Workload) -> Lesson:
        """What to send to a worker that does not know the workload yet."""
        forms = tuple(tensor.form for tensor in self.tensors)
        return Lesson(_saved(workload.network), dict(workload.parts), workload.settings, workload.seed, forms)


class Catalogue:
    """The workloads used of late, their samples in shared memory: each tensor once, whoever uses it."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._entries: weakref.WeakKeyDictionary[Workload, Entry] = weakref.WeakKeyDictionary()
        self._tensors: weakref.WeakValueDictionary[tuple[int, int], SharedTensor] = weakref.WeakValueDictionary()
        self._sendable: weakref.WeakKeyDictionary[Workload, bool] = weakref.WeakKeyDictionary()

    def entry(self, workload: Workload) -> Entry:
        """The workload's entry, new where it has none; the one not used for longest makes way."""
        entry = self._entries.pop(workload, None)
        if entry is None:
            sources = workload.images, workload.labels, workload.test_images, workload.test_labels
            entry = Entry(next(self._count), tuple(self._shared(source) for source in sources))
        self._entries[workload] = entry
        while len(self._entries) > _REMEMBERED:
            self._entries.pop(next(iter(self._entries)), None)
        return entry

    def _shared(self, source: Tensor) -> SharedTensor:
        # a tensor changed in place since is another one; while it is shared it lives, and its id is its own
        key = id(source), 0 if source.is_inference() else source._version
        shared = self._tensors.get(key)
        if shared is None:
            shared = self._tensors[key] = SharedTensor(next(self._count), source)
        return shared

    def numbers(self) -> set[int]:
        """The numbers of all workloads that are still in use."""
        return {entry.number for entry in self._entries.values()}

    def sendable(self, workload: Workload) -> bool:
        """Whether the workload's network can go to another process; where not, a warning says why, once."""
        if workload not in self._sendable:
            reason = _why_not(workload.network)
            self._sendable[workload] = reason is None
            if reason is not None:
                name = type(workload.network).__name__
                warnings.warn(
                    f"{name} trains in this process alone, not in worker processes: {reason}", stacklevel=2
                )
        return self._sendable[workload]


# -- networks -----------------------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Refuses what is defined in the script that was started: workers do not run it."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__} is defined in the script itself; in a module of its own it could be sent"
            )
        return NotImplemented


class _Pickling:
    """What torch.save takes for a pickle module."""

    Pickler = _Pickler


def _saved(network: nn.Module) -> bytes:
    """The network as torch saves it, by value: tensors that share memory go on sharing it."""
    file = io.BytesIO()
    torch.save(network, file, pickle_module=_Pickling)
    return file.getvalue()


def _loaded(saved: bytes) -> nn.Module:
    """Read back what `_saved` wrote: code, and so only what came from the parent over its own socket."""
    network: nn.Module = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=False)
    return network


def _why_not(network: nn.Module) -> str | None:
    """Why a network cannot be sent; None where it can."""
    try:
        _saved(network)
    except Exception as error:  # a network's own code decides what it raises
        return str(error) or repr(error)
    return None
