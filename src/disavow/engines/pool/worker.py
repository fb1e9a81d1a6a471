"""A worker of the pool: a process with one thread, which trains or evaluates what it is told to, and nothing else.

Its parent starts it as a program of its own and talks to it over a socket (`pool` says why). An `Order` names a
workload and a task; a workload that the worker has not met yet comes with the order, its samples as descriptors
of shared memory. The model to start from, and the updates, lie in a block of memory that both processes see: the
*mailbox*, the model in its first row. One order, one answer.

The work itself is the reference engine's, so its results have the same bits.
"""

from __future__ import annotations

import mmap
import os
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler, recv_handle
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from disavow.domain import Evaluation, Layout
from disavow.engines.pool.lessons import Form, Lesson, mapped
from disavow.engines.sequential import SequentialEngine
from disavow.engines.workload import Workload
from disavow.rounds.vectors import Model

READY = "ready"
"""The first thing a worker says, once all that takes seconds to import is imported."""

# -- what there is to do ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Train:
    """Local training of some clients of one federation."""

    clients: tuple[str, ...]
    round_number: int

    @property
    def updates(self) -> int:
        """How many rows of the mailbox the result takes."""
        return len(self.clients)

    def perform(self, workload: Workload, model: Model) -> Tensor:
        """The clients' updates, a row each. Only these clients' samples are copied."""
        parts = {client: workload.parts[client] for client in self.clients}
        engine = SequentialEngine(replace(workload, parts=parts))
        return engine.train(model, self.clients, self.round_number).vectors


@dataclass(frozen=True)
class Evaluate:
    """Evaluation on the test samples from `start` up to `end`."""

    start: int
    end: int
    updates = 0

    def perform(self, workload: Workload, model: Model) -> Evaluation:
        """Accuracy and mean loss on these samples, copied: a network may write into its input."""
        images, labels = workload.test_images[self.start : self.end], workload.test_labels[self.start : self.end]
        held_out = replace(workload, parts={}, test_images=images.clone(), test_labels=labels)
        return SequentialEngine(held_out).evaluate(model)


# -- how it is said -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Switches:
    """What a program sets once for all of torch and what changes the bits: a worker must have it too."""

    dtype: torch.dtype
    precision: str

    @classmethod
    def now(cls) -> Switches:
        """As they are set in this process."""
        return cls(torch.get_default_dtype(), torch.get_float32_matmul_precision())

    def set(self) -> None:
        """Set them in this process."""
        torch.set_default_dtype(self.dtype)
        torch.set_float32_matmul_precision(self.precision)


@dataclass(frozen=True)
class Order:
    """What the parent sends: the task, and before it whatever the worker lacks to do it.

    `workload` is a number under which the worker remembers it, `forget` are those not used of late, `mailbox`
    the size of a new mailbox in numbers. The descriptors of a lesson's tensors follow, then that of the mailbox.
    """

    task: Train | Evaluate
    workload: int
    layout: Layout
    switches: Switches
    forget: tuple[int, ...]
    lesson: Lesson | None
    mailbox: int | None


def mailbox_form(numbers: int) -> Form:
    """A mailbox is float32 from end to end."""
    return Form(number=-1, shape=(numbers,), stride=(1,), dtype=torch.float32)


def rows_of(mailbox: Tensor, layout: Layout, rows: int) -> Tensor:
    """The mailbox as rows of one model's length: the model, then `rows` updates."""
    return mailbox[: (1 + rows) * layout.size].view(1 + rows, layout.size)


# -- the process --------------------------------------------------------------------------------------------------


class Worker:
    """What one worker knows: workloads, the tensors that they share, its mailbox."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._workloads: dict[int, Workload] = {}
        self._tensors: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self._mailbox = torch.empty(0)

    def serve(self) -> None:
        """Answer orders until the parent hangs up."""
        with suppress(EOFError, OSError):
            self._connection.send(READY)
            while True:
                self._connection.send(self._answer(self._connection.recv()))

    def _answer(self, order: Order) -> Evaluation | Exception | None:
        try:
            self._prepare(order)
            return self._perform(order)
        except Exception as error:  # whatever it is, it belongs to the caller in the other process
            return _as_sent(error)

    def _prepare(self, order: Order) -> None:
        for number in order.forget:
            self._workloads.pop(number, None)
        if order.lesson is not None:
            # all descriptors are taken off the line before anything can fail
            descriptors = [recv_handle(self._connection) for _ in order.lesson.tensors]
        if order.mailbox is not None:
            descriptor = recv_handle(self._connection)
            self._mailbox = mapped(descriptor, mailbox_form(order.mailbox), mmap.ACCESS_WRITE)
            os.close(descriptor)
        if order.lesson is not None:
            self._workloads[order.workload] = self._learn(order.lesson, descriptors)

    def _learn(self, lesson: Lesson, descriptors: list[int]) -> Workload:
        tensors = []
        for form, descriptor in zip(lesson.tensors, descriptors, strict=True):
            tensor = self._tensors.get(form.number)
            if tensor is None:
                # copy on write: none can spoil for others what all read
                tensor = self._tensors[form.number] = mapped(descriptor, form, mmap.ACCESS_COPY)
            tensors.append(tensor)
            os.close(descriptor)
        return lesson.learn(*tensors)

    def _perform(self, order: Order) -> Evaluation | None:
        order.switches.set()
        workload = self._workloads[order.workload]
        mailbox = rows_of(self._mailbox, order.layout, order.task.updates)
        result = order.task.perform(workload, Model(order.layout, mailbox[0]))
        if isinstance(result, Evaluation):
            return result
        mailbox[1:] = result
        return None


def _as_sent(error: Exception) -> Exception:
    """The error as it can cross to the parent: itself, with the traceback that would be lost on the way."""
    error.add_note(f"in a worker process:\n{''.join(traceback.format_exception(error))}")
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # an exception class may do anything when it is copied
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def serve(descriptor: int) -> None:
    """Be a worker, over the socket of this descriptor, until the parent hangs up."""
    torch.set_num_threads(1)
    Worker(Connection(descriptor)).serve()
