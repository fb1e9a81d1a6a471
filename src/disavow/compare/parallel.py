"""Pieces of a comparison, made by several processes at the same time.

    ② references and trainings -> ③ forgetting -> ④ relearning, then all other measures

Every task is a call of the runner whose result is a file (`pieces`): the comparison itself then finds them all, and
makes what a process left undone because a method failed.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from disavow.compare.choice import Effort
from disavow.compare.method import Method
from disavow.compare.problem import Problem
from disavow.compare.runner import CLEAN, ComparisonRunner
from disavow.compare.scheme import scheme_of
from disavow.compare.trainer import trainer_of
from disavow.errors import DisavowError, RoundRefused, StrategyError, TaskError

FAILURES = (StrategyError, TaskError, RoundRefused)
"""What a method may fail with."""

Task = tuple[Any, ...]
"""The name of a method of `ComparisonRunner`, and what it is called with."""


@dataclass(frozen=True)
class Processes:
    """Processes that work on a comparison.

    Attributes:
        number: How many.
        reopen: Prepares the comparison's problem anew, in each of them; can be pickled.

    """

    number: int
    reopen: Callable[[], Problem]


def make_pieces(
    runner: ComparisonRunner, methods: Sequence[Method], effort: Effort, work: Path, processes: Processes
) -> None:
    """Make the pieces of a comparison in several processes.

    Args:
        runner: Hears which pieces are done.
        methods: Which methods.
        effort: How much is tried.
        work: The folder of pieces, which the caller holds.
        processes: How many, and how each prepares.

    Raises:
        DisavowError: A process ended, or could not go on.

    """
    seeds, variants = range(effort.seeds), runner.variants
    schemes = list(dict.fromkeys(scheme_of(method.scheme, runner.problem) for method in methods))
    context = multiprocessing.get_context("spawn")  # a process that has used a GPU cannot be forked
    begin = (processes.reopen, effort, work, runner.storing)
    with ProcessPoolExecutor(processes.number, context, _begin, begin) as pool:

        def run(tasks: Iterable[Task]) -> list[Task]:
            """Run tasks in any order; those in which a method failed."""
            waiting = {pool.submit(_run, task): task for task in tasks}
            failed = []
            try:
                for future in as_completed(waiting):
                    done, succeeded = future.result()
                    for name in done:
                        runner.pieces.done(name)
                    if not succeeded:
                        failed.append(waiting[future])
            except BrokenProcessPool:
                raise DisavowError(
                    "a process of the comparison ended (is there enough memory?); the same command goes on with "
                    "what is left: try fewer --jobs"
                ) from None
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return failed

        numbers = range(effort.references)
        # those of images train together, in one stack; others one after the other
        some = [list(numbers)] if runner.problem.subject.labelled else [[number] for number in numbers]
        run(
            [
                *(("references", scheme, each) for scheme in schemes for each in some),
                *(("training", scheme, seed, each) for scheme in schemes for seed in seeds for each in variants),
            ]
        )
        failed = run(
            ("forgotten", method, seed, variant) for seed in seeds for variant in variants for method in methods
        )
        unusable = {method.name for _, method, seed, variant in failed if (seed, variant) == (0, CLEAN)}
        usable = [method for method in methods if method.name not in unusable]
        run(
            [
                *(("report_of", scheme) for scheme in schemes),
                *(("relearned", scheme, seed, usable) for scheme in schemes for seed in seeds),
            ]
        )
        run(("measured", method, seed, usable) for seed in seeds for method in usable)


_runner: ComparisonRunner
"""Of this process."""

_done: list[str] = []


def _begin(reopen: Callable[[], Problem], effort: Effort, work: Path, storing: set[str]) -> None:
    global _runner  # noqa: PLW0603 - what a process of a pool keeps between tasks
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # as the comparison itself has
    problem = reopen()
    _runner = ComparisonRunner(problem, effort, work, trainer_of(problem), on_piece=_done.append)
    _runner.storing = storing


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for tasks for ever."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _run(task: Task) -> tuple[list[str], bool]:
    """Run a task; the pieces that are there now, and whether it succeeded."""
    _done.clear()
    name, *arguments = task
    try:
        getattr(_runner, name)(*arguments)
    except FAILURES:
        return list(_done), False
    return list(_done), True
