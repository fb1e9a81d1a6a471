"""What a worker process is sent, and what it does with it.

A `Command` names a workload and the work to do. A workload that the worker does not hold yet comes with it, its
samples as descriptors of shared memory. The model to start from and the updates lie in a buffer that both processes
map: the model is row 0, the updates follow. Each command gets one answer.

The work is done by the reference engine, so its results have the same bits.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import tempfile
import traceback
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler, recv_handle
from types import FunctionType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from disavow.config import TrainingSettings
from disavow.domain import Evaluation, Layout
from disavow.engines.sequential import LocalWorkload, SequentialEngine
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model

READY = "ready"
"""The first message of a worker, sent when torch is imported."""

# -- work ---------------------------------------------------------------------------------------------------------


class BareWorkload(Protocol):
    """A workload as it is sent: without its samples, or with no more than the name of what builds it."""

    def filled(self, tensors: Sequence[Tensor]) -> PooledWorkload:
        """Make it whole in the worker, with tensors that both processes map."""


class PooledWorkload(LocalWorkload[Any], Protocol):
    """What workers train: `Workload` for images, `TaskWorkload` for any task that can be imported."""

    @property
    def settings(self) -> TrainingSettings:
        """How clients train."""

    def shared_tensors(self) -> tuple[Tensor, ...]:
        """List the tensors that workers map and are not sent."""

    def bare(self) -> BareWorkload:
        """Give what is sent of it."""

    def engine_for(self, clients: Sequence[str]) -> SequentialEngine[Any]:
        """Build the reference engine for some clients."""


@dataclass(frozen=True)
class Train:
    """Local training of some clients of one federation."""

    clients: tuple[str, ...]
    round_number: int

    def run(self, workload: PooledWorkload, model: Model) -> Tensor:
        """Train the clients; their updates, one row each."""
        return workload.engine_for(self.clients).train(model, self.clients, self.round_number).vectors


@dataclass(frozen=True)
class Evaluate:
    """Evaluation on the test samples from `start` up to `end`."""

    start: int
    end: int
    clients = ()

    def run(self, workload: PooledWorkload, model: Model) -> Evaluation:
        """Evaluate on a copy of these samples, since a network may write into its input."""
        if not isinstance(workload, Workload):
            raise TypeError("a task is evaluated by its own code, in the process that trains it")
        images, labels = workload.test_images[self.start : self.end], workload.test_labels[self.start : self.end]
        held_out = replace(workload, parts={}, test_images=images.clone(), test_labels=labels)
        return SequentialEngine(held_out).evaluate(model)


# -- shared memory ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedLayout:
    """How a tensor lies in shared memory. A worker that has mapped a tensor knows it again by its `number`."""

    number: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def like(cls, tensor: Tensor, number: int) -> SharedLayout:
        """Describe a tensor of the same shape and strides, because strides can change the bits of a result."""
        stride = torch.empty_like(tensor, device="meta").stride()
        return cls(number, tuple(tensor.shape), stride, tensor.dtype)

    def map(self, descriptor: int, access: int) -> Tensor:
        """Map the tensor from the memory behind a descriptor, which may be closed afterwards."""
        numbers = math.prod(self.shape)
        if numbers == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.frombuffer(mmap.mmap(descriptor, 0, access=access), dtype=self.dtype, count=numbers)
        return flat.as_strided(self.shape, self.stride)


class SharedTensor:
    """Memory for one tensor, without a name: processes get at it by descriptor.

    The kernel frees it with the last process that holds it, however they end.
    """

    def __init__(self, layout: SharedLayout, source: Tensor | None = None) -> None:
        """Allocate the memory, and copy the source into it where there is one."""
        self.layout = layout
        self.source = source  # kept alive, since it is known by its id
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("disavow")
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, max(1, math.prod(layout.shape) * layout.dtype.itemsize))
        if source is not None:
            self.map().copy_(source.detach())

    def map(self) -> Tensor:
        """Map the tensor in this process, to be written to."""
        return self.layout.map(self.descriptor, mmap.ACCESS_WRITE)


def rows(buffer: Tensor, layout: Layout, updates: int) -> Tensor:
    """View a buffer as rows of one model's length: the model, then its updates."""
    return buffer[: (1 + updates) * layout.size].view(1 + updates, layout.size)


# -- messages -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """What the parent sends: the work, and whatever the worker lacks to do it.

    `workload` is the number under which the worker keeps the workload, and `forget` are numbers no longer in use.
    `new_workload` is a workload as `save_workload` writes it, `tensors` how its samples lie in memory, `new_buffer`
    the layout of a larger buffer. The descriptors of the tensors follow, then that of the buffer.

    `dtype` and `precision` are what a program sets once for all of torch and what changes the bits.
    """

    work: Train | Evaluate
    workload: int
    layout: Layout
    dtype: torch.dtype
    precision: str
    forget: tuple[int, ...]
    new_workload: bytes | None
    tensors: tuple[SharedLayout, ...]
    new_buffer: SharedLayout | None


class _Pickler(pickle.Pickler):
    """Refuses what is defined in the script that was started, because workers do not run it."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__} is defined in the script itself; in a module of its own it could be sent"
            )
        return NotImplemented


class _Pickling:
    """What torch.save takes for a pickle module."""

    Pickler = _Pickler


class _DryPickler(_Pickler):
    """Goes through a value without the numbers in it, to learn whether it could be sent."""

    def persistent_id(self, value: object) -> str | None:
        return "numbers" if isinstance(value, Tensor | np.ndarray) else None


def why_unsendable(workload: PooledWorkload) -> str | None:
    """Say why a workload cannot go to a worker process; None where it can.

    Args:
        workload: The workload. Its samples are not looked at, however large they are.

    """
    try:
        _DryPickler(io.BytesIO()).dump(workload.bare())
    except Exception as error:  # a user's own code decides what it raises
        lines = str(error).strip().splitlines()
        return lines[0] if lines else type(error).__name__
    return None


def save_workload(workload: PooledWorkload) -> bytes:
    """Serialize a workload without its samples; tensors of its network that share memory go on sharing it.

    Raises:
        Exception: Where the network cannot be sent. Its own code decides which.

    """
    file = io.BytesIO()
    torch.save(workload.bare(), file, pickle_module=_Pickling)
    return file.getvalue()


def _load_workload(saved: bytes, tensors: list[Tensor]) -> PooledWorkload:
    """Read back what `save_workload` wrote, which may run code: it came from the parent over its own socket."""
    bare: BareWorkload = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=False)
    return bare.filled(tensors)


# -- the process --------------------------------------------------------------------------------------------------


class Worker:
    """The state of one worker process: workloads, the tensors that they share, its buffer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._workloads: dict[int, PooledWorkload] = {}
        self._tensors: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
        self._buffer = torch.empty(0)

    def serve(self) -> None:
        """Answer commands until the parent closes the socket."""
        with suppress(EOFError, OSError):
            self._connection.send(READY)
            while True:
                self._connection.send(self._answer(self._connection.recv()))

    def _answer(self, command: Command) -> Evaluation | Exception | None:
        try:
            self._receive(command)
            return self._run(command)
        except Exception as error:  # whatever it is, it belongs to the caller in the other process
            return _sendable_error(error)

    def _receive(self, command: Command) -> None:
        """Take over what came with the command."""
        for number in command.forget:
            self._workloads.pop(number, None)
        # all descriptors are received before anything can fail
        descriptors = [recv_handle(self._connection) for _ in command.tensors]
        if command.new_buffer is not None:
            descriptor = recv_handle(self._connection)
            self._buffer = command.new_buffer.map(descriptor, mmap.ACCESS_WRITE)
            os.close(descriptor)
        if command.new_workload is not None:
            tensors = [self._map(*each) for each in zip(command.tensors, descriptors, strict=True)]
            self._workloads[command.workload] = _load_workload(command.new_workload, tensors)

    def _map(self, layout: SharedLayout, descriptor: int) -> Tensor:
        tensor = self._tensors.get(layout.number)
        if tensor is None:
            # copy on write: no worker can change the samples of the others
            tensor = self._tensors[layout.number] = layout.map(descriptor, mmap.ACCESS_COPY)
        os.close(descriptor)
        return tensor

    def _run(self, command: Command) -> Evaluation | None:
        torch.set_default_dtype(command.dtype)
        torch.set_float32_matmul_precision(command.precision)
        workload = self._workloads[command.workload]
        buffer = rows(self._buffer, command.layout, len(command.work.clients))
        result = command.work.run(workload, Model(command.layout, buffer[0]))
        if isinstance(result, Evaluation):
            return result
        buffer[1:] = result
        return None


def _sendable_error(error: Exception) -> Exception:
    """Prepare an error for the parent: itself, with the traceback that would be lost on the way."""
    error.add_note(f"in a worker process:\n{''.join(traceback.format_exception(error))}")
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # an exception class may do anything when it is copied
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def serve(descriptor: int) -> None:
    """Run a worker until the parent closes the socket.

    Args:
        descriptor: The socket to the parent.

    """
    torch.set_num_threads(1)
    Worker(Connection(descriptor)).serve()
