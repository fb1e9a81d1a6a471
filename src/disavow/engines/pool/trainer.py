"""The parent's side: worker processes, the workloads that they share, and the trainer that schedules the jobs."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from disavow.domain import Evaluation
from disavow.engines.objectives import EVALUATION_BATCH, answers_of
from disavow.engines.pool.worker import (
    READY,
    Command,
    Evaluate,
    PooledWorkload,
    SharedLayout,
    SharedTensor,
    Train,
    rows,
    save_workload,
)
from disavow.engines.state import layout_of
from disavow.engines.workload import Workload
from disavow.errors import ConfigError, DisavowError
from disavow.proof.keys import child_environment
from disavow.rounds.threads import cores
from disavow.rounds.vectors import Model, Updates, require_layout

_PROGRAM = Path(__file__).with_name("__main__.py")

START_SECONDS = 1.0
"""About what starting the workers costs, most of it for importing torch."""

_EXIT_SECONDS = 10.0
"""How long a worker that closed its socket may take to exit before it is killed."""

_SHARED_WORKLOADS = 64
"""Workloads whose samples are kept in shared memory; of more, the least recently used is dropped."""

_BATCHES_PER_WORKER = 4
"""A worker takes a fourth of its fair share of the work that is left: none ends long after the others."""

_BUFFER_NUMBERS = 1 << 22
"""Updates that a worker returns at once hold at most about this many numbers (16 MiB)."""


# -- jobs ---------------------------------------------------------------------------------------------------------


class PooledAsk(Protocol):
    """One federation's local training of one round: `Ask`, of images or of any task."""

    @property
    def workload(self) -> PooledWorkload:
        """What is trained."""

    @property
    def model(self) -> Model:
        """The broadcast model."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Who trains."""

    @property
    def round_number(self) -> int:
        """Which round it is."""


@dataclass(frozen=True, eq=False)
class Job:
    """Work on a workload and a model, its cost in samples, and where its result belongs (`ask`, `rows`)."""

    workload: PooledWorkload
    model: Model
    work: Train | Evaluate
    cost: int
    ask: int
    rows: tuple[int, ...]


_StoreResult = Callable[[Job, Tensor | Evaluation], None]


class JobQueue:
    """The jobs of a call that nobody has begun, the costliest first, so that small ones even out the end."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = deque(sorted(jobs, key=lambda job: -job.cost))
        self._cost = sum(job.cost for job in jobs)
        self.workloads = {job.workload for job in jobs}

    def __len__(self) -> int:
        return len(self._jobs)

    def take_smallest(self) -> Job:
        """Take a job of the least cost, for this process, which has workers to look after."""
        job = self._jobs.pop()
        self._cost -= job.cost
        return job

    def take_batch(self, workers: int) -> Job:
        """Take the costliest job, with as many of the next as make a message worthwhile, for one of the workers."""
        first = self._jobs.popleft()
        taken, cost = [first], first.cost
        share = self._cost // (_BATCHES_PER_WORKER * workers)
        most = _BUFFER_NUMBERS // max(1, first.model.layout.size)
        while self._jobs and len(taken) < most and cost + self._jobs[0].cost <= share:
            if self._jobs[0].ask != first.ask or isinstance(first.work, Evaluate):
                break
            taken.append(self._jobs.popleft())
            cost += taken[-1].cost
        self._cost -= cost
        if isinstance(first.work, Evaluate):
            return first
        work = replace(first.work, clients=tuple(client for job in taken for client in job.work.clients))
        return replace(first, work=work, cost=cost, rows=tuple(row for job in taken for row in job.rows))


def training_jobs(ask: PooledAsk, number: int) -> Iterator[Job]:
    """Make one job per client of an ask, which is the call's `number`th."""
    for row, client in enumerate(ask.clients):
        cost = ask.workload.settings.epochs * len(ask.workload.parts[client])
        yield Job(ask.workload, ask.model, Train((client,), ask.round_number), cost, number, (row,))


# -- workloads ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SharedWorkload:
    """A workload's number, by which workers know it, and its samples."""

    number: int
    tensors: tuple[SharedTensor, ...]


class WorkloadCache:
    """The workloads used of late, their samples in shared memory: each tensor once, however many use it."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._shared: weakref.WeakKeyDictionary[PooledWorkload, SharedWorkload] = weakref.WeakKeyDictionary()
        self._tensors: weakref.WeakValueDictionary[tuple[int, int], SharedTensor] = weakref.WeakValueDictionary()
        self._sendable: weakref.WeakKeyDictionary[PooledWorkload, bool] = weakref.WeakKeyDictionary()

    def share(self, workload: PooledWorkload) -> SharedWorkload:
        """Put a workload into shared memory, unless it is there; the least recently used one makes way."""
        shared = self._shared.pop(workload, None)
        if shared is None:
            tensors = tuple(self._share_tensor(source) for source in workload.shared_tensors())
            shared = SharedWorkload(next(self._count), tensors)
        self._shared[workload] = shared
        while len(self._shared) > _SHARED_WORKLOADS:
            self._shared.pop(next(iter(self._shared)), None)
        return shared

    def _share_tensor(self, source: Tensor) -> SharedTensor:
        # a tensor changed in place since is another one; while it is shared it lives, and its id is its own
        key = id(source), 0 if source.is_inference() else source._version
        shared = self._tensors.get(key)
        if shared is None:
            layout = SharedLayout.like(source, next(self._count))
            shared = self._tensors[key] = SharedTensor(layout, source)
        return shared

    def numbers(self) -> set[int]:
        """List the numbers of all workloads that are still shared."""
        return {shared.number for shared in self._shared.values()}

    def sendable(self, workload: PooledWorkload) -> bool:
        """Tell whether the workload's network can go to another process; where not, a warning says why, once."""
        if workload not in self._sendable:
            self._sendable[workload] = True
            try:
                save_workload(workload)
            except Exception as error:  # a network's own code decides what it raises
                self._sendable[workload] = False
                warnings.warn(
                    f"{type(workload.network).__name__} trains in this process alone, not in worker processes: "
                    f"{str(error) or repr(error)}",
                    stacklevel=2,
                )
        return self._sendable[workload]


# -- worker processes ---------------------------------------------------------------------------------------------


class WorkerProcess:
    """One worker, which does one job at a time. When its process dies, another takes over the job, once."""

    def __init__(self, cache: WorkloadCache) -> None:
        self.job: Job | None = None
        self._cache = cache
        self._deaths = 0
        self._start()

    def _start(self) -> None:
        self.ready = False
        self._known: set[int] = set()
        self._buffer = torch.empty(0, dtype=torch.float32)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process = _launch(theirs.fileno())
            self.connection = Connection(ours.detach())

    def submit(self, job: Job) -> None:
        """Send the worker a job. If it is dead, `receive` finds that out."""
        self.job = job
        self._send(job)

    def receive(self) -> tuple[Job, Tensor | Evaluation] | None:
        """Read the worker's next message, or replace the worker if it has died.

        Returns:
            A finished job with its result, to be read before the next is submitted; None for other news.

        Raises:
            Exception: What the job raised in the worker.
            DisavowError: Two processes in a row died.

        """
        try:
            message: str | Evaluation | Exception | None = self.connection.recv()
        except (EOFError, OSError):
            self._replace()
            return None
        if isinstance(message, Exception):
            raise message
        if message == READY:
            self.ready = True
            if self.job is not None:
                self._send(self.job)
            return None
        job, self.job, self._deaths = self.job, None, 0
        if job is None:
            return None
        if isinstance(message, Evaluation):
            return job, message
        return job, rows(self._buffer, job.model.layout, len(job.work.clients))[1:]

    def kill(self) -> None:
        """End the process, whatever it does: it holds nothing that needs an orderly end."""
        self.connection.close()
        self._process.kill()
        self._process.wait()

    def _replace(self) -> None:
        """Start another process after a death; a second death at the same job is an error."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        self._process.kill()
        status = self._process.wait()
        if self._deaths:
            when = "at the same work" if self.ready else "while they started"
            raise DisavowError(f"two worker processes in a row died {when}; the last one {_exit_cause(status)}")
        self._deaths += 1
        self._start()

    def _send(self, job: Job) -> None:
        command, memory = self._command(job)
        # where the worker is dead, the other end is closed, and that is what `receive` reads next
        with suppress(ConnectionError):
            self.connection.send(command)
            for each in memory:
                send_handle(self.connection, each.descriptor, self._process.pid)

    def _command(self, job: Job) -> tuple[Command, list[SharedTensor]]:
        """Put the model into the buffer; the command, and the memory whose descriptors go with it."""
        layout, shared = job.model.layout, self._cache.share(job.workload)
        is_new = shared.number not in self._known
        memory = list(shared.tensors) if is_new else []
        layouts, new_buffer = tuple(tensor.layout for tensor in memory), None
        numbers = (1 + len(job.work.clients)) * layout.size
        if numbers > self._buffer.numel():
            new_buffer = SharedLayout(-1, (numbers,), (1,), torch.float32)
            memory.append(SharedTensor(new_buffer))
            self._buffer = memory[-1].map()
        rows(self._buffer, layout, 0)[0] = job.model.vector
        forget = self._known - self._cache.numbers()
        self._known = (self._known - forget) | {shared.number}
        command = Command(
            work=job.work,
            workload=shared.number,
            layout=layout,
            dtype=torch.get_default_dtype(),
            precision=torch.get_float32_matmul_precision(),
            forget=tuple(forget),
            new_workload=save_workload(job.workload) if is_new else None,
            tensors=layouts,
            new_buffer=new_buffer,
        )
        return command, memory


def _launch(descriptor: int) -> subprocess.Popen[bytes]:
    """Start a worker process that talks over the socket of this descriptor."""
    found = [str(path) or os.getcwd() for path in sys.path]  # noqa: PTH109 - where "" looks, as a string
    environment = child_environment(
        {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(found)}
    )
    try:
        return subprocess.Popen(  # noqa: S603 - this interpreter, with our own arguments
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


def _exit_cause(status: int) -> str:
    """Say how a process ended."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (is there enough memory?)" if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


# -- the trainer --------------------------------------------------------------------------------------------------


class PoolTrainer:
    """Trains clients in worker processes, bit for bit as `SequentialEngine` does. One call at a time."""

    def __init__(self, workers: int | None = None, *, start_after: float = START_SECONDS) -> None:
        """Prepare a pool; no process is started yet.

        Args:
            workers: How many worker processes at most; by default the cores that this process may use.
            start_after: Seconds of training in this process after which workers are started. They are kept until
                `close`.

        Raises:
            ConfigError: `workers` is less than 1.

        """
        if workers is not None and workers < 1:
            raise ConfigError(f"workers must be at least 1, not {workers}")
        possible = hasattr(socket, "send_fds") and bool(sys.executable)
        self._max_workers = (workers or cores()) if possible else 1
        self._start_after = start_after
        self._seconds_here = 0.0
        self._cache = WorkloadCache()
        self._workers: list[WorkerProcess] = []
        self._process = os.getpid()
        # also at the end of the program, for those who do not close
        weakref.finalize(self, _kill, self._workers)

    def train(self, asks: Sequence[PooledAsk]) -> list[Updates]:
        """See `Trainer`."""
        for ask in asks:
            require_layout([ask.model], layout_of(ask.workload.network))
        answers = [_empty_updates(ask) for ask in asks]

        def store(job: Job, result: Tensor | Evaluation) -> None:
            if isinstance(result, Tensor):
                answers[job.ask].vectors[list(job.rows)] = result

        self._run([job for number, ask in enumerate(asks) for job in training_jobs(ask, number)], store)
        return answers

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """See `Trainer`. The blocks are those of the reference, whichever process evaluates them."""
        require_layout(models, layout_of(workload.network))
        blocks = _blocks(len(workload.test_labels))
        parts: list[dict[int, Evaluation]] = [{} for _ in models]

        def store(job: Job, result: Tensor | Evaluation) -> None:
            if isinstance(result, Evaluation):
                parts[job.ask][job.rows[0]] = result

        self._run(
            [
                Job(workload, model, block, block.end - block.start, number, (i,))
                for number, model in enumerate(models)
                for i, block in enumerate(blocks)
            ],
            store,
        )
        answers = answers_of(workload.test_labels)
        return [_combine([done[i] for i in range(len(blocks))], blocks, answers) for done in parts]

    def close(self) -> None:
        """See `Trainer`."""
        _kill(self._workers)

    def _run(self, jobs: list[Job], store: _StoreResult) -> None:
        """Run all jobs, the costly ones first, and store each result as it comes."""
        queue = JobQueue(jobs)
        workers: list[WorkerProcess] = []
        try:
            while queue or any(worker.job for worker in workers):
                if not workers and self._workers_pay(queue):
                    workers = self._started(len(queue))
                for worker in workers:
                    if queue and worker.ready and worker.job is None:
                        worker.submit(queue.take_batch(len(workers)))
                # while workers start, and where there are none, this process works too
                here = bool(queue) and not (workers and all(worker.ready for worker in workers))
                if here:
                    self._run_here(queue.take_smallest(), store)
                for worker in _with_messages(workers, 0 if here else None):
                    done = worker.receive()
                    if done is not None:
                        store(*done)
        except BaseException:
            # workers in the middle of a job would answer the next call with it
            _kill(self._workers)
            raise

    def _run_here(self, job: Job, store: _StoreResult) -> None:
        started = time.monotonic()
        store(job, job.work.run(job.workload, job.model))
        self._seconds_here += time.monotonic() - started

    def _workers_pay(self, queue: JobQueue) -> bool:
        """Tell whether workers should do what is left of a call.

        They are started after as much training here as a start costs, so a start never costs more than was lost.
        """
        return (
            self._max_workers > 1
            and len(queue) > 1
            and self._seconds_here >= self._start_after
            and all(self._cache.sendable(workload) for workload in queue.workloads)
        )

    def _started(self, jobs: int) -> list[WorkerProcess]:
        """Start the workers that are missing for so many jobs; all workers."""
        if self._process != os.getpid():  # a fork of the process that the workers answer to
            self._workers.clear()
            self._process = os.getpid()
        while len(self._workers) < min(self._max_workers, jobs):
            self._workers.append(WorkerProcess(self._cache))
        return list(self._workers)


def _empty_updates(ask: PooledAsk) -> Updates:
    """Allocate the updates of an ask, to be filled in."""
    samples = tuple(len(ask.workload.parts[client]) for client in ask.clients)
    vectors = torch.empty(len(samples), ask.model.layout.size, dtype=torch.float32)
    return Updates(tuple(ask.clients), samples, vectors, "pool")


def _blocks(samples: int) -> list[Evaluate]:
    """Cut the test samples into the blocks that the reference engine evaluates at once; at least one."""
    starts = range(0, max(1, samples), EVALUATION_BATCH)
    return [Evaluate(start, min(start + EVALUATION_BATCH, samples)) for start in starts]


def _combine(parts: list[Evaluation], blocks: list[Evaluate], answers: int) -> Evaluation:
    """Combine evaluations on blocks of the samples, of so many answers each, into that on all samples."""
    if len(parts) == 1:
        return parts[0]
    sizes = [block.end - block.start for block in blocks]
    right = sum(round(part.accuracy * size * answers) for part, size in zip(parts, sizes, strict=True))
    loss = sum(part.loss * size for part, size in zip(parts, sizes, strict=True))
    return Evaluation(accuracy=right / (sum(sizes) * answers), loss=loss / sum(sizes))


def _with_messages(workers: list[WorkerProcess], seconds: float | None) -> list[WorkerProcess]:
    """Wait until some worker has sent something, no longer than that; those workers. Idle ones send nothing."""
    active = [worker for worker in workers if worker.job or not worker.ready]
    readable = connection.wait([worker.connection for worker in active], seconds)
    return [worker for worker in active if worker.connection in readable]


def _kill(workers: list[WorkerProcess]) -> None:
    while workers:
        workers.pop().kill()
