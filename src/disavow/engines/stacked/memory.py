"""How many rows fit on the device at once, and what happens when they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_SHARE = 0.6
"""Of what is free, how much is planned with: graphs hold theirs beside what plain launches take."""

_ON_HOST = 64
"""Rows at once on a CPU, where stacking brings no speed and only checks need it."""


class Memory(Protocol):
    """What is known about the device's memory."""

    def free(self) -> int | None:
        """Bytes that can be had; None if nobody knows."""

    def peak(self, work: Callable[[], object]) -> int:
        """Bytes that the work needs at its height."""

    def release(self) -> None:
        """Give cached blocks back, so that they can be had in another size."""


class HostMemory:
    """The memory of the machine itself, which pages and shares it in ways nobody can plan."""

    def free(self) -> int | None:
        """See `Memory`."""
        return None

    def peak(self, work: Callable[[], object]) -> int:
        """See `Memory`."""
        work()
        return 0

    def release(self) -> None:
        """See `Memory`: there is no cache."""


class CudaMemory:
    """The memory of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free(self) -> int | None:
        """See `Memory`. Blocks that torch holds without using them can be had too."""
        unused = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return torch.cuda.mem_get_info(self._device)[0] + unused

    def peak(self, work: Callable[[], object]) -> int:
        """See `Memory`."""
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        work()
        return torch.cuda.max_memory_allocated(self._device) - before

    def release(self) -> None:
        """See `Memory`."""
        torch.cuda.empty_cache()


def memory_of(device: torch.device) -> Memory:
    """The memory of a device."""
    return CudaMemory(device) if device.type == "cuda" else HostMemory()


class RowCost:
    """What one more row costs, measured once and corrected by experience."""

    def __init__(self, size: int, measure: Callable[[int], int]) -> None:
        """`measure(n)` is the peak of a step of n rows of `size` samples, in bytes."""
        self.size = size
        self._measure = measure
        self._bytes: int | None = None

    def at_most(self, free: int | None) -> int:
        """How many rows can be taken at once."""
        if free is None:
            return _ON_HOST
        if self._bytes is None:
            # the difference, because a part of the peak does not grow with the rows
            self._bytes = max(1, (self._measure(4) - self._measure(2)) // 2)
        return max(1, int(free * _SHARE) // self._bytes)

    def was_too_low(self) -> None:
        """A step ran out of memory that should not have."""
        self._bytes = 2 * (self._bytes or 1)


def even_chunks(rows: int, at_most: int) -> int:
    """The size of chunks that cover all rows, none larger than allowed, and none much smaller than the others.

    >>> even_chunks(1000, 600), even_chunks(50, 64)
    (500, 50)
    """
    return -(-rows // -(-rows // at_most)) if rows else at_most


def in_chunks(
    items: Sequence[Item],
    size: int,
    work: Callable[[Sequence[Item]], Result],
    *,
    after_shortage: Callable[[], None],
) -> Iterator[tuple[Sequence[Item], Result]]:
    """Do the work chunk by chunk; where memory runs out, do that chunk again in halves, down to single items.

    The work must be pure: what a chunk had done before it broke off is done again.
    """
    start = 0
    while start < len(items):
        chunk = items[start : start + size]
        done = _tried(work, chunk)
        if done is None:
            # here, not where it was caught: the error held on to the memory that the next try needs
            after_shortage()
            if len(chunk) > 1:
                size = -(-len(chunk) // 2)
                continue
            done = (work(chunk),)
        yield chunk, done[0]
        start += len(chunk)


def _tried(work: Callable[[Sequence[Item]], Result], chunk: Sequence[Item]) -> tuple[Result] | None:
    try:
        return (work(chunk),)
    except torch.OutOfMemoryError:
        return None
