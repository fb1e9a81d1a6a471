"""Threads that do not change a bit.

How many threads share a sum or a product of matrices decides in which order numbers are added, and so the last bits
of the result. What is recorded must not depend on that: it is computed with one thread (`one_thread`), and where
that would take long, in pieces of fixed size on threads of our own (`in_threads`), put together in order.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_here = threading.local()

_MOST = 8
"""Threads at once: each holds a piece of the updates in float64."""


_sharing = 1
"""How many processes of disavow share the cores."""


def cores() -> int:
    """How many cores this process may use."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, found // _sharing)


def share_cores(processes: int) -> None:
    """Say that so many processes work at the same time, this one among them: each takes its part of the cores."""
    global _sharing  # noqa: PLW0603 - of the process
    _sharing = processes


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread in here: with one, the number of cores does not matter."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results of `work` on each item, in their order; a few are worked on at a time, each by one thread."""
    if getattr(_here, "is_ours", False):  # who is called by one of these threads must not wait for another
        yield from map(work, items)
        return
    pool, running = _pool(os.getpid()), deque[Future[Result]]()
    try:
        for item in items:
            running.append(pool.submit(work, item))
            if len(running) > min(cores(), _MOST):
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads that are kept from round to round; a forked process has none of its parent's."""
    return ThreadPoolExecutor(min(cores(), _MOST), f"disavow-{process}", initializer=_begin)


def _begin() -> None:
    _here.is_ours = True
    torch.set_num_threads(1)
