"""Which clients take which batch at each launch, and how it is padded: a pure function of the batch sizes.

Clients are independent, so they need not be in step by epoch: a launch takes clients whose next batches have one
size (or are padded to one). No launch is made sooner than needed: a size is *ripe* once every client that still has
a batch of it has come to it, and taking it then can only help. While none is ripe, the client with the longest way
to go leads. Equal clients take one launch for each batch, all of them at once.

A launch is no wider than needed either. If the client with most batches of a size has m of them, m launches are
needed whatever the others do; a width of (all batches of that size) / m, longest way first, fills them evenly,
where taking everyone at once would begin wide and end with one client at a time, each width compiled anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from disavow.engines.stacked.buckets import padded_sizes

Ints = npt.NDArray[np.int64]

PADDING = 0.1
"""Samples that are computed in vain, of samples that are not: never more."""

_END = -1
"""The kind of batch that a client waits for after its last."""


@dataclass(frozen=True, eq=False)
class Launch:
    """One step of some clients: `rows[i]` takes its batch number `batches[i]`, which has `sizes[i]` samples.

    `size` and `width` are samples a client and clients, padding included.
    """

    rows: Ints
    batches: Ints
    sizes: Ints
    size: int
    width: int

    @property
    def added(self) -> int:
        """How many samples are padding."""
        return self.width * self.size - int(self.sizes.sum())


def fixed_width(clients: int) -> int:
    """The next of a few fixed widths, so that a stack that loses a client keeps the shape it was compiled for.

    Round numbers, because people choose them: all up to 20, then by twos up to 50, by fives up to 100, by tens up
    to 200, and so on. The padding is always less than a tenth.

    >>> [fixed_width(clients) for clients in (1, 7, 20, 21, 49, 50, 51, 1000, 1001)]
    [1, 7, 20, 22, 50, 50, 55, 1000, 1100]
    """
    unit = 1
    while clients > 100 * unit:
        unit *= 10
    step = unit if clients <= 20 * unit else 2 * unit if clients <= 50 * unit else 5 * unit
    return -(-clients // step) * step


def schedule(sizes: Sequence[Ints], *, coupled: bool, fixed_widths: bool = False) -> list[Launch]:
    """Launches that take every batch of every client once, and each client's batches in order.

    `sizes[i]` are the batch sizes of client `i`, in order. In a `coupled` network (batch norm) samples of a batch
    see each other, so that none may be added. With `fixed_widths`, launches are widened to `fixed_width` with rows
    that no client owns. What is added, samples and rows together, is at most `PADDING` of all samples.
    """
    queue = _Queue.of(sizes)
    allowance = int(PADDING * int(queue.sizes.sum()))
    # rows are widened with what samples leave over
    queue = queue.padded(0 if coupled else allowance // 2 if fixed_widths else allowance)
    launches = _launches(queue, fixed_widths=fixed_widths)
    if not fixed_widths:
        return launches
    return _widened(launches, allowance - sum(launch.added for launch in launches))


@dataclass(frozen=True, eq=False)
class _Queue:
    """The batches of all clients one after the other, each client's followed by an end.

    `starts[i]` is where those of client `i` begin; `padded_to[kind]` is the size that batches of a kind share.
    """

    starts: Ints
    owners: Ints
    sizes: Ints
    kinds: Ints
    padded_to: Ints

    @classmethod
    def of(cls, sizes: Sequence[Ints]) -> _Queue:
        """Each size is a kind of its own."""
        lengths = np.array([len(each) + 1 for each in sizes], dtype=np.int64)
        ends = np.cumsum(lengths)
        everything = np.zeros(int(lengths.sum()), dtype=np.int64)
        is_batch = np.ones(len(everything), dtype=bool)
        is_batch[ends - 1] = False
        if is_batch.any():
            everything[is_batch] = np.concatenate(sizes)
        distinct, kinds = np.unique(everything, return_inverse=True)
        if len(distinct) and distinct[0] == 0:
            # the ends: nobody has a batch of no samples
            distinct, kinds = distinct[1:], kinds - 1
        return cls(ends - lengths, np.repeat(np.arange(len(sizes)), lengths), everything, kinds, distinct)

    def counts(self) -> Ints:
        """How many batches of each kind (column) each client (row) has."""
        shape = len(self.starts), len(self.padded_to)
        is_batch = self.kinds != _END
        cells = self.owners[is_batch] * shape[1] + self.kinds[is_batch]
        return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)

    def padded(self, allowance: int) -> _Queue:
        """The same with some sizes padded to larger ones, by at most `allowance` samples in all."""
        padded_to, merged = np.unique(padded_sizes(self.counts(), self.padded_to, allowance), return_inverse=True)
        kinds = np.append(merged, _END)[self.kinds]
        return replace(self, kinds=kinds, padded_to=padded_to)


def _launches(queue: _Queue, *, fixed_widths: bool) -> list[Launch]:
    left = queue.counts()
    to_go, position = left.sum(axis=1), queue.starts.copy()
    widest = -(-left.sum(axis=0) // left.max(axis=0, initial=1))
    if fixed_widths:
        widest = np.array([fixed_width(int(width)) for width in widest], dtype=np.int64)
    launches = []
    while to_go.any():
        waiting = queue.kinds[position]
        kind = _next_kind(waiting, left, to_go)
        rows = np.flatnonzero(waiting == kind)
        if len(rows) > widest[kind]:
            longest_first = np.argsort(-to_go[rows], kind="stable")
            rows = np.sort(rows[longest_first[: widest[kind]]])
        at = position[rows]
        launches.append(
            Launch(rows, at - queue.starts[rows], queue.sizes[at], size=int(queue.padded_to[kind]), width=len(rows))
        )
        position[rows] += 1
        to_go[rows] -= 1
        left[rows, kind] -= 1
    return launches


def _next_kind(waiting: Ints, left: Ints, to_go: Ints) -> int:
    """The kind of batch to take now: a ripe one; or else that for which the longest client waits."""
    came = np.bincount(waiting[waiting != _END], minlength=left.shape[1])
    ripe = np.flatnonzero((came == (left > 0).sum(axis=0)) & (came > 0))
    if len(ripe):
        return int(ripe[np.argmax(came[ripe])])
    return int(waiting[np.argmax(to_go)])


def _widened(launches: list[Launch], allowance: int) -> list[Launch]:
    """The launches at fixed widths; one whose padding cannot be afforded any more keeps its own."""
    widened = []
    for launch in launches:
        wider = replace(launch, width=fixed_width(launch.width))
        if wider.added - launch.added <= allowance:
            allowance -= wider.added - launch.added
            widened.append(wider)
        else:
            widened.append(launch)
    return widened
