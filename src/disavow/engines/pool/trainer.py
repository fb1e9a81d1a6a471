"""The trainer: deals the clients of a call out to the workers, and trains them itself while there are none."""

from __future__ import annotations

import os
import socket
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import connection

import torch
from torch import Tensor

from disavow.domain import Evaluation
from disavow.engines.pool.lessons import Catalogue
from disavow.engines.pool.seat import Job, Seat
from disavow.engines.pool.worker import Evaluate, Train
from disavow.engines.scores import EVALUATION_BATCH, answers_of
from disavow.engines.state import layout_of
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.errors import ConfigError
from disavow.rounds.threads import cores
from disavow.rounds.vectors import Model, Updates, require_layout

_Keep = Callable[[Job, Tensor | Evaluation], None]

_SECONDS_OF_A_START = 1.0
"""About what starting the workers costs, most of it for importing torch."""

_PORTIONS = 4
"""A worker takes a fourth of its fair share of the work that is left: none ends long after the others."""

_MAILBOX_NUMBERS = 1 << 22
"""Updates that a worker returns at once hold at most about this many numbers (16 MiB)."""


class PoolTrainer:
    """Trains clients in worker processes, bit for bit as `SequentialEngine` does. One call at a time.

    `workers` defaults to the cores that this process may use. They are started after `patience` seconds of
    training in this process, and kept until `close`.
    """

    def __init__(self, workers: int | None = None, *, patience: float = _SECONDS_OF_A_START) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"workers must be at least 1, not {workers}")
        self._workers = (workers or cores()) if _possible() else 1
        self._patience = patience
        self._seconds_here = 0.0
        self._catalogue = Catalogue()
        self._seats: list[Seat] = []
        self._process = os.getpid()
        # also at the end of the program, for those who do not close
        weakref.finalize(self, _end, self._seats)

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """See `Trainer`."""
        for ask in asks:
            require_layout([ask.model], layout_of(ask.workload.network))
        answers = [_unanswered(ask) for ask in asks]

        def keep(job: Job, result: Tensor | Evaluation) -> None:
            if isinstance(result, Tensor):
                answers[job.ask].vectors[list(job.rows)] = result

        self._perform([job for number, ask in enumerate(asks) for job in _training(ask, number)], keep)
        return answers

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """See `Trainer`. The blocks are those of the reference, whoever evaluates them."""
        require_layout(models, layout_of(workload.network))
        blocks = _blocks(len(workload.test_labels))
        parts: list[dict[int, Evaluation]] = [{} for _ in models]

        def keep(job: Job, result: Tensor | Evaluation) -> None:
            if isinstance(result, Evaluation):
                parts[job.ask][job.rows[0]] = result

        self._perform(
            [
                Job(workload, model, block, block.end - block.start, number, (i,))
                for number, model in enumerate(models)
                for i, block in enumerate(blocks)
            ],
            keep,
        )
        answers = answers_of(workload.test_labels)
        return [_overall([done[i] for i in range(len(blocks))], blocks, answers) for done in parts]

    def close(self) -> None:
        """See `Trainer`."""
        _end(self._seats)

    def _perform(self, jobs: list[Job], keep: _Keep) -> None:
        """Do all jobs, the costly ones first, and keep each result as it comes."""
        pile = _Pile(jobs)
        seats: list[Seat] = []
        try:
            while pile or any(seat.job for seat in seats):
                if not seats and self._pays(pile):
                    seats = self._staffed(len(pile))
                for seat in seats:
                    if pile and seat.ready and seat.job is None:
                        seat.give(pile.portion(len(seats)))
                # while workers start, and where there are none, this process works too
                here = bool(pile) and not (seats and all(seat.ready for seat in seats))
                if here:
                    self._perform_here(pile.smallest(), keep)
                for seat in _heard(seats, 0 if here else None):
                    done = seat.hear()
                    if done is not None:
                        keep(*done)
        except BaseException:
            # workers in the middle of a job would answer the next call with it
            _end(self._seats)
            raise

    def _perform_here(self, job: Job, keep: _Keep) -> None:
        started = time.monotonic()
        keep(job, job.task.perform(job.workload, job.model))
        self._seconds_here += time.monotonic() - started

    def _pays(self, pile: _Pile) -> bool:
        """Whether workers should do what is left of a call.

        Once as much time went into training here as a start costs, the start never costs more than was lost.
        """
        return (
            self._workers > 1
            and len(pile) > 1
            and self._seconds_here >= self._patience
            and all(self._catalogue.sendable(workload) for workload in pile.workloads)
        )

    def _staffed(self, jobs: int) -> list[Seat]:
        """The seats for so many jobs, each with a worker, be it one that has just been started."""
        if self._process != os.getpid():  # a fork of the process that the workers answer to
            self._seats.clear()
            self._process = os.getpid()
        while len(self._seats) < min(self._workers, jobs):
            self._seats.append(Seat(self._catalogue))
        return list(self._seats)


class _Pile:
    """The jobs of a call that nobody has begun, the costliest first, so that small ones even out the end."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = deque(sorted(jobs, key=lambda job: -job.cost))
        self._cost = sum(job.cost for job in jobs)
        self.workloads = {job.workload for job in jobs}

    def __len__(self) -> int:
        return len(self._jobs)

    def smallest(self) -> Job:
        """One job, of those that take least: whoever does it can soon look up again."""
        job = self._jobs.pop()
        self._cost -= job.cost
        return job

    def portion(self, workers: int) -> Job:
        """The costliest job, with as many of the next as make a message worth its while."""
        share = self._cost // (_PORTIONS * workers)
        taken = [self._jobs.popleft()]
        cost = taken[0].cost
        most = _MAILBOX_NUMBERS // max(1, taken[0].model.layout.size)
        while self._jobs and len(taken) < most and cost + self._jobs[0].cost <= share:
            if not _joinable(taken[0], self._jobs[0]):
                break
            taken.append(self._jobs.popleft())
            cost += taken[-1].cost
        self._cost -= cost
        return _joined(taken)


def _joinable(one: Job, other: Job) -> bool:
    return one.ask == other.ask and isinstance(one.task, Train) and isinstance(other.task, Train)


def _joined(jobs: list[Job]) -> Job:
    """Several trainings of one ask as one job."""
    first = jobs[0]
    if len(jobs) == 1 or not isinstance(first.task, Train):
        return first
    clients = tuple(client for job in jobs if isinstance(job.task, Train) for client in job.task.clients)
    rows = tuple(row for job in jobs for row in job.rows)
    return replace(first, task=replace(first.task, clients=clients), rows=rows, cost=sum(job.cost for job in jobs))


def _unanswered(ask: Ask) -> Updates:
    """The ask's updates, their numbers still to be filled in."""
    samples = tuple(len(ask.workload.parts[client]) for client in ask.clients)
    vectors = torch.empty(len(samples), ask.model.layout.size, dtype=torch.float32)
    return Updates(tuple(ask.clients), samples, vectors, "pool")


def _training(ask: Ask, number: int) -> Iterator[Job]:
    """One job a client."""
    for row, client in enumerate(ask.clients):
        cost = ask.workload.settings.epochs * len(ask.workload.parts[client])
        yield Job(ask.workload, ask.model, Train((client,), ask.round_number), cost, number, (row,))


def _blocks(samples: int) -> list[Evaluate]:
    """The stretches of the test samples that the reference engine evaluates at once; never none."""
    starts = range(0, max(1, samples), EVALUATION_BATCH)
    return [Evaluate(start, min(start + EVALUATION_BATCH, samples)) for start in starts]


def _overall(parts: list[Evaluation], blocks: list[Evaluate], answers: int) -> Evaluation:
    """The evaluation on all samples, of so many answers each, from those on blocks of them."""
    if len(parts) == 1:
        return parts[0]
    sizes = [block.end - block.start for block in blocks]
    right = sum(round(part.accuracy * size * answers) for part, size in zip(parts, sizes, strict=True))
    loss = sum(part.loss * size for part, size in zip(parts, sizes, strict=True))
    return Evaluation(accuracy=right / (sum(sizes) * answers), loss=loss / sum(sizes))


def _possible() -> bool:
    """Whether worker processes can be had at all."""
    return hasattr(socket, "send_fds") and bool(sys.executable)


def _heard(seats: list[Seat], seconds: float | None) -> list[Seat]:
    """Those whose worker has something to say, waited for no longer than that. Who idles has nothing to say."""
    talking = [seat for seat in seats if seat.job or not seat.ready]
    spoke = connection.wait([seat.connection for seat in talking], seconds)
    return [seat for seat in talking if seat.connection in spoke]


def _end(seats: list[Seat]) -> None:
    while seats:
        seats.pop().end()
