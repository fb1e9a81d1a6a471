"""The parent's side of a worker: a seat in the pool, filled by one worker process after another."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path

import torch
from torch import Tensor

from disavow.domain import Evaluation
from disavow.engines.pool.lessons import Catalogue, Memory, mapped
from disavow.engines.pool.worker import READY, Evaluate, Order, Switches, Train, mailbox_form, rows_of
from disavow.engines.workload import Workload
from disavow.errors import DisavowError
from disavow.proof.keys import child_environment
from disavow.rounds.vectors import Model

_PROGRAM = Path(__file__).with_name("leash.py")
_SECONDS_TO_END = 10.0


@dataclass(frozen=True, eq=False)
class Job:
    """A task on a workload and a model, what it costs, and where its result belongs (`ask`, `rows`)."""

    workload: Workload
    model: Model
    task: Train | Evaluate
    cost: int
    ask: int
    rows: tuple[int, ...]


class Seat:
    """A place for one worker, which does one job at a time. A worker that dies is replaced, its job done again."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.job: Job | None = None
        self._catalogue = catalogue
        self._deaths = 0
        self._start()

    def _start(self) -> None:
        self.ready = False
        self._known: set[int] = set()
        self._mailbox = torch.empty(0, dtype=torch.float32)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process = _launch(theirs.fileno())
            self.connection = Connection(ours.detach())

    def give(self, job: Job) -> None:
        """Hand the worker a job; what comes of it is heard later, even that the worker is dead."""
        self.job = job
        self._send(job)

    def hear(self) -> tuple[Job, Tensor | Evaluation] | None:
        """The worker's next word: a job with its result, or None where it was another one.

        The result is read before the next job is given. An error in the worker is raised here.
        """
        try:
            word: str | Evaluation | Exception | None = self.connection.recv()
        except (EOFError, OSError):
            self._replace()
            return None
        if isinstance(word, Exception):
            raise word
        if word == READY:
            self.ready = True
            if self.job is not None:
                self._send(self.job)
            return None
        return self._done(word)

    def _done(self, word: str | Evaluation | None) -> tuple[Job, Tensor | Evaluation] | None:
        job, self.job, self._deaths = self.job, None, 0
        if job is None:
            return None
        if isinstance(word, Evaluation):
            return job, word
        return job, rows_of(self._mailbox, job.model.layout, job.task.updates)[1:]

    def _replace(self) -> None:
        """Fill the seat again after a death; a second one at the same job is the end."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_SECONDS_TO_END)
        self._process.kill()
        status = self._process.wait()
        if self._deaths:
            when = "at the same work" if self.ready else "while they started"
            raise DisavowError(f"two worker processes in a row died {when}; the last one {_cause(status)}")
        self._deaths += 1
        self._start()

    def end(self) -> None:
        """End the worker, whatever it does: it holds nothing that needs an orderly end."""
        self.connection.close()
        self._process.kill()
        self._process.wait()

    def _send(self, job: Job) -> None:
        order, memory = self._order(job)
        # where the worker is dead, the other end is closed, and that is what will be heard next
        with suppress(ConnectionError):
            self.connection.send(order)
            for each in memory:
                send_handle(self.connection, each.descriptor, self._process.pid)

    def _order(self, job: Job) -> tuple[Order, list[Memory]]:
        """What to say, and the memory whose descriptors go with it."""
        layout, entry, memory = job.model.layout, self._catalogue.entry(job.workload), []
        lesson = None if entry.number in self._known else entry.lesson(job.workload)
        if lesson is not None:
            memory += [tensor.memory for tensor in entry.tensors]
        numbers = (1 + job.task.updates) * layout.size
        grown = numbers > self._mailbox.numel()
        if grown:
            room = Memory(numbers * self._mailbox.element_size())
            self._mailbox = mapped(room.descriptor, mailbox_form(numbers), mmap.ACCESS_WRITE)
            memory.append(room)
        rows_of(self._mailbox, layout, 0)[0] = job.model.vector
        forget = self._known - self._catalogue.numbers()
        self._known = (self._known - forget) | {entry.number}
        mailbox = numbers if grown else None
        return Order(job.task, entry.number, layout, Switches.now(), tuple(forget), lesson, mailbox), memory


def _launch(descriptor: int) -> subprocess.Popen[bytes]:
    """A worker process that talks over the socket of this descriptor."""
    found = [str(path) or os.getcwd() for path in sys.path]  # noqa: PTH109 - where "" looks, as a string
    environment = child_environment(
        {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(found)}
    )
    try:
        return subprocess.Popen(  # noqa: S603 - this interpreter, with our own words
            [sys.executable, "-P", str(_PROGRAM), str(descriptor)],
            env=environment,
            pass_fds=[descriptor],
            process_group=0,
            stdin=subprocess.DEVNULL,
            # what a network prints while it trains must not get between the lines of the command
            stdout=sys.__stderr__,
        )
    except OSError as error:
        raise DisavowError(f"a worker process could not be started: {error}") from error


def _cause(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (is there enough memory?)" if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
