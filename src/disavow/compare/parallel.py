"""Pieces of a comparison, made by several processes at the same time.

    ② references and trainings -> ③ forgetting -> ④ relearning, then all other measures

Every task is a call of the runner whose result is a file (`pieces`): the comparison itself then finds them all.
Where a method or a training failed, it meets that failure itself, and says so.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from disavow.compare.choice import Effort
from disavow.compare.method import Method
from disavow.compare.problem import Problem
from disavow.compare.runner import ComparisonRunner
from disavow.compare.scheme import scheme_of
from disavow.compare.trainer import trainer_of
from disavow.errors import DisavowError, RoundRefused, StorageError, StrategyError, TaskError
from disavow.rounds.threads import share_cores

FAILURES = (StrategyError, TaskError, RoundRefused)
"""What a method or a training may fail with."""

Task = tuple[Any, ...]
"""The name of a method of `ComparisonRunner`, and what it is called with."""


@dataclass(frozen=True)
class Processes:
    """Processes that work on a comparison.

    They import what they need anew: a script that uses them calls `compare` under `if __name__ == "__main__"`, and
    its methods can be imported.

    Attributes:
        number: How many.
        reopen: Prepares the comparison's problem anew, in each of them; can be pickled.

    """

    number: int
    reopen: Callable[[], Problem]


@dataclass(frozen=True)
class _Opening:
    """What a process makes its runner from, with its first task."""

    processes: Processes
    identity: str
    effort: Effort
    work: Path
    storing: frozenset[str]

    def runner(self) -> ComparisonRunner:
        problem = self.processes.reopen()
        if problem.identity != self.identity:
            raise DisavowError("the run has changed since the comparison began; start the same command again")
        made = ComparisonRunner(problem, self.effort, self.work, trainer_of(problem), on_piece=_done.append)
        made.storing = {*self.storing}
        return made


def make_pieces(
    runner: ComparisonRunner, methods: Sequence[Method], processes: Processes, *, work: Path, named: bool
) -> None:
    """Make the pieces of a comparison in several processes.

    Args:
        runner: Of the comparison; hears which pieces are done.
        methods: Which methods.
        processes: How many, and how each prepares.
        work: The folder of pieces, which the caller holds.
        named: Whether somebody asked for these methods: then nothing is made once one of them has failed.

    Raises:
        DisavowError: A process ended, or could not go on.

    """
    problem, effort, variants = runner.problem, runner.effort, runner.variants
    opening = _Opening(processes, problem.identity, effort, work, frozenset(runner.storing))
    context = multiprocessing.get_context("spawn")  # a process that has used a GPU cannot be forked
    pool = ProcessPoolExecutor(processes.number, context, _begin, (opening,))

    def run(tasks: Iterable[Task]) -> list[Task]:
        """Run tasks in any order; those in which a method or a training failed."""
        with _interrupts_blocked():  # processes that start here inherit it: Ctrl-C is for this one alone
            waiting = {pool.submit(_run, task): task for task in tasks}
        failed = []
        for future in as_completed(waiting):
            done, succeeded = future.result()
            for name in done:
                runner.pieces.done(name)
            if not succeeded:
                failed.append(waiting[future])
        return failed

    seeds, numbers = range(effort.seeds), range(effort.references)
    schemes = _schemes_of(methods, problem)
    # references of images train together, in one stack; others one after the other
    some = [list(numbers)] if problem.subject.labelled else [[number] for number in numbers]
    try:
        failed = run(
            [
                *(("references", scheme, each) for scheme in schemes for each in some),
                *(("training", scheme, seed, each) for scheme in schemes for seed in seeds for each in variants),
            ]
        )
        if failed:
            return
        failed = run(
            ("forgotten", method, seed, variant) for seed in seeds for variant in variants for method in methods
        )
        if failed and named:
            return
        unusable = {method.name for _, method, *_ in failed}
        usable = [method for method in methods if method.name not in unusable]
        run(
            [
                *(("report_of", scheme) for scheme in schemes),
                *(("relearned", each, seed, usable) for each in _schemes_of(usable, problem) for seed in seeds),
            ]
        )
        run(("measured", method, seed, usable) for seed in seeds for method in usable)
    except BrokenProcessPool:
        raise DisavowError(
            "a process of the comparison ended (is there enough memory?); the same command goes on with what is "
            "left: try fewer --jobs"
        ) from None
    except BaseException as error:
        for process in list((pool._processes or {}).values()):  # nothing public stops them
            process.terminate()  # pieces are written whole or not at all
        if isinstance(error, DisavowError):
            raise error from None  # the traceback of the other process would be taken for the reason
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _schemes_of(methods: Sequence[Method], problem: Problem) -> list[str]:
    return list(dict.fromkeys(scheme_of(method.scheme, problem) for method in methods))


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in the processes ---------------------------------------------------------------------------------------------

_opening: _Opening
_runner: ComparisonRunner | None = None
_done: list[str] = []
"""The pieces of the task at hand."""


def _begin(opening: _Opening) -> None:
    global _opening  # noqa: PLW0603 - what a process of a pool keeps between tasks
    _opening = opening
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # as the comparison itself has
    share_cores(opening.processes.number)


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for tasks for ever."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _run(task: Task) -> tuple[list[str], bool]:
    """Run a task; the pieces that are there now, and whether it succeeded."""
    global _runner  # noqa: PLW0603
    _done.clear()
    if _runner is None:  # not when the process begins: what fails here is to reach the comparison
        _runner = _opening.runner()
    name, *arguments = task
    try:
        getattr(_runner, name)(*arguments)
    except FAILURES:
        return list(_done), False
    except StorageError as error:
        raise type(error)(str(error.__cause__ or error)) from None
    return list(_done), True
