"""What the device is told at the start: every launch's samples, rows and sizes, in one transfer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from disavow.engines.stacked.data import sent
from disavow.engines.stacked.schedule import Launch
from disavow.engines.trainer import Ask

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Row:
    """One client of one ask: the numbers of its samples in the order it takes them, and its batch sizes."""

    ask: int
    place: int
    numbers: Ints
    sizes: Ints


class Form(NamedTuple):
    """So many rows of so many samples: launches of one form run as one program."""

    width: int
    size: int


def row_of(ask: Ask, client: str, *, number: int, place: int, start: int) -> Row:
    """The row of a client; `start` is the number, on the device, of the first sample of its federation."""
    held = ask.workload.parts[client]
    taken = list(ask.workload.batches_of(client, ask.round_number))
    order = np.concatenate(taken) if taken else np.empty(0, dtype=np.int64)
    sizes = np.array([len(batch) for batch in taken], dtype=np.int64)
    return Row(number, place, np.asarray(held)[order] + start, sizes)


class Plan:
    """The launches of a chunk, ready for the device."""

    def __init__(self, launches: Sequence[Launch], rows: Sequence[Row], *, spare: int) -> None:
        """`spare` is the row that pads launches: no client's."""
        self._launches = launches
        numbers = np.concatenate([row.numbers for row in rows]) if rows else np.empty(0, dtype=np.int64)
        # where each batch begins among the numbers, and each row among the batches
        begins = _starts([size for row in rows for size in row.sizes.tolist()])
        first = _starts([len(row.sizes) for row in rows])
        lengths = [launch.width * (launch.size + 2) for launch in launches]
        self._starts = _starts(lengths).tolist()
        self._blocks = np.empty(sum(lengths), dtype=np.int64)
        for launch, start, length in zip(launches, self._starts, lengths, strict=True):
            at = begins[first[launch.rows] + launch.batches]
            _fill(self._blocks[start : start + length], launch, numbers, at, spare)

    def upload(self, device: torch.device) -> Iterator[tuple[Form, Tensor]]:
        """Each launch's form and its block: samples (row by row), rows, sizes. All go over with the first."""
        whole = sent(self._blocks, device)
        for launch, start in zip(self._launches, self._starts, strict=True):
            yield Form(launch.width, launch.size), whole[start : start + launch.width * (launch.size + 2)]


def _starts(lengths: Sequence[int]) -> Ints:
    """Where each begins when they stand one after the other."""
    return np.cumsum([0, *lengths], dtype=np.int64)[:-1]


def _fill(block: Ints, launch: Launch, numbers: Ints, begins: Ints, spare: int) -> None:
    width, size, real = launch.width, launch.size, len(launch.rows)
    samples = block[: width * size].reshape(width, size)
    # a short batch is filled up with its own last sample: one of another client's might not be finite
    samples[:real] = numbers[begins[:, None] + np.minimum(np.arange(size), launch.sizes[:, None] - 1)]
    samples[real:] = samples[0]
    rows, sizes = block[width * size :].reshape(2, width)
    rows[:real], rows[real:] = launch.rows, spare
    sizes[:real], sizes[real:] = launch.sizes, size
