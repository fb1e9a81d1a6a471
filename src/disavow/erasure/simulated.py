"""The clusters of simulated runs, and what a leaver breaks in them; one run a row, many at once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int32]
Positions = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


class Fresh:
    """A uniformly random partition each round.

    Survivors are exchangeable, so a client's cluster need not be drawn before it leaves: it is one with j survivors
    with probability j·(number of such clusters) / survivors. Only these numbers are kept, no names.
    """

    name: ClassVar[str] = "fresh"

    def __init__(self, clients: int, rounds: int, *, k: int, x: int, runs: int, rng: np.random.Generator) -> None:
        self.clients, self.rounds, self.k, self.x, self.rng = clients, rounds, k, x, rng
        self.holding = np.tile(self._new(self.clients), (runs, self.rounds, 1))

    def _new(self, participants: int) -> Integers:
        """A new partition as numbers of clusters by survivors, with MDAV's sizes."""
        clusters = participants // self.k
        sizes = np.full(clusters, self.k)
        sizes[-1:] += participants - clusters * self.k
        return np.bincount(sizes, minlength=2 * self.k).astype(np.int32)

    def withdraw(self, number: int, which: Positions, now: Integers) -> Integers:
        """Take the `number`-th leaver out of the runs `which`, each after its round `now`, and retrain.

        Return the first round that breaks in each of them, 0 if none does.
        """
        survivors, holding = self.clients - number, self.holding[which]
        reached = np.cumsum(holding * np.arange(2 * self.k, dtype=np.int32), axis=2)
        member = self.rng.integers(survivors + 1, size=holding.shape[:2], dtype=np.int32)
        before = (reached <= member[:, :, None]).sum(axis=2)[:, :, None]
        np.put_along_axis(holding, before, np.take_along_axis(holding, before, axis=2) - 1, axis=2)
        np.put_along_axis(holding, before - 1, np.take_along_axis(holding, before - 1, axis=2) + 1, axis=2)
        rounds = np.arange(1, self.rounds + 1, dtype=np.int32)
        breaks = (before[:, :, 0] <= self.x) & (rounds <= now[:, None])
        broken = np.where(breaks.any(axis=1), breaks.argmax(axis=1) + 1, 0).astype(np.int32)
        # rounds still to come hold a partition already: one of those who will then be left
        redone = rounds >= np.where(broken > 0, broken, now + 1)[:, None]
        holding[redone] = self._new(survivors)
        self.holding[which] = holding
        return broken

    def renew(self, which: Positions, leavers: int) -> None:
        """Train the runs `which` again from their first round on, without all leavers so far."""
        self.holding[which] = self._new(self.clients - leavers)


class Sticky:
    """The clusters of the round before, repaired where leavers left fewer than k.

    They change only after a request, so what is kept is one partition for each stretch of rounds that share it.
    """

    name: ClassVar[str] = "sticky"

    def __init__(self, clients: int, rounds: int, *, k: int, x: int, runs: int, rng: np.random.Generator) -> None:
        self.clients, self.k, self.x, self.rng = clients, k, x, rng
        self.order = rng.permuted(np.tile(np.arange(self.clients), (runs, 1)), axis=1)
        stretches = rounds + 1  # few are ever touched, and untouched zeros take no memory
        self.cluster_of = np.zeros((runs, stretches, self.clients), dtype=np.int32)
        self.survivors = np.zeros((runs, stretches, self._clusters()), dtype=np.int32)
        self.since = np.ones((runs, stretches), dtype=np.int32)
        self.last = np.zeros(runs, dtype=np.intp)
        self._begin_stretch(np.arange(runs), np.full(runs, -1), np.ones(runs, dtype=np.int32), 0)

    def _clusters(self) -> int:
        return self.clients // self.k

    def withdraw(self, number: int, which: Positions, now: Integers) -> Integers:
        """The same, for clusters with names."""
        rows, stretches = which[:, None], np.arange(number)
        cluster = self.cluster_of[rows, stretches, self.order[which, number - 1][:, None]]
        self.survivors[rows, stretches, cluster] -= 1
        left = self.survivors[rows, stretches, cluster]
        breaks = (left < self.x) & (stretches <= self.last[rows])
        rolled_back, earliest = breaks.any(axis=1), breaks.argmax(axis=1)
        broken = np.where(rolled_back, self.since[which, earliest], 0).astype(np.int32)
        if self.clients - number >= self.k:
            repair = rolled_back | (left[np.arange(len(which)), self.last[which]] < self.k)
            base = np.where(rolled_back, earliest - 1, self.last[which])
            since = np.where(rolled_back, broken, now + 1).astype(np.int32)
            self._begin_stretch(which[repair], base[repair], since[repair], number)
        return broken

    def renew(self, which: Positions, leavers: int) -> None:
        """The same: one partition of the survivors for all rounds."""
        first = np.ones(len(which), dtype=np.int32)
        self._begin_stretch(which, np.full(len(which), -1), first, leavers)

    def _begin_stretch(self, which: Positions, base: Positions, since: Integers, leavers: int) -> None:
        """Go on from the clusters of stretch `base` less leavers; from none where it is -1."""
        present = np.ones((len(which), self.clients), dtype=np.bool_)
        np.put_along_axis(present, self.order[which, :leavers], False, axis=1)
        survivors = np.where((base >= 0)[:, None], self.survivors[which, base], 0)
        anew = repaired(self.cluster_of[which, base], survivors, present, self.k, rng=self.rng)
        self.cluster_of[which, base + 1], self.survivors[which, base + 1] = anew
        self.since[which, base + 1], self.last[which] = since, base + 1


class FreshRecords(Fresh):
    """The same for requests of records: each withdraws one client from the rounds so far, which then comes back.

    Any of the clients asks, also one that has asked before. It is in the rounds since it came back; there it is
    as likely in one place as in any other. Rounds that are redone have everybody in them again.
    """

    def __init__(self, clients: int, rounds: int, *, k: int, x: int, runs: int, rng: np.random.Generator) -> None:
        super().__init__(clients, rounds, k=k, x=x, runs=runs, rng=rng)
        self.since = np.ones((runs, clients), dtype=np.int32)

    def withdraw(self, number: int, which: Positions, now: Integers) -> Integers:  # noqa: ARG002 - nobody gets fewer
        """See `Fresh`: take one client out of the rounds since it came, and let it come back."""
        holding, asking = self.holding[which], self.rng.integers(self.clients, size=len(which))
        since = self.since[which, asking]
        reached = np.cumsum(holding * np.arange(2 * self.k, dtype=np.int32), axis=2)
        member = self.rng.integers(np.maximum(reached[:, :, -1], 1), dtype=np.int32)
        before = (reached <= member[:, :, None]).sum(axis=2)
        rounds = np.arange(1, self.rounds + 1, dtype=np.int32)
        run, held = np.nonzero((rounds >= since[:, None]) & (rounds <= now[:, None]))
        left = before[run, held] - 1
        holding[run, held, left + 1] -= 1
        holding[run, held, left] += 1
        breaks = np.zeros(holding.shape[:2], dtype=np.bool_)
        breaks[run, held] = left < self.x
        broken = np.where(breaks.any(axis=1), breaks.argmax(axis=1) + 1, 0).astype(np.int32)
        begins = np.where(broken > 0, broken, now + 1)
        holding[rounds >= begins[:, None]] = self._new(self.clients)
        self.holding[which] = holding
        self.since[which, asking] = begins
        self.since[which] = np.where(
            broken[:, None] > 0, np.minimum(self.since[which], begins[:, None]), self.since[which]
        )
        return broken

    def renew(self, which: Positions, leavers: int) -> None:
        """See `Fresh`: everybody is in all rounds again."""
        super().renew(which, leavers)
        self.since[which] = 1


class StickyRecords(Sticky):
    """The same for requests of records. Whoever comes back is a newcomer, so every request begins a stretch."""

    def __init__(self, clients: int, rounds: int, *, k: int, x: int, runs: int, rng: np.random.Generator) -> None:
        self.nowhere = clients // k
        """A cluster that is always empty: that of clients in stretches that they are withdrawn from."""
        super().__init__(clients, rounds, k=k, x=x, runs=runs, rng=rng)

    def _clusters(self) -> int:
        return super()._clusters() + 1

    def withdraw(self, number: int, which: Positions, now: Integers) -> Integers:
        """See `Fresh`: take one client out of the rounds since it came, and let it come back."""
        rows, stretches = which[:, None], np.arange(number)
        asking = self.rng.integers(self.clients, size=len(which))[:, None]
        cluster = self.cluster_of[rows, stretches, asking]
        held = (cluster != self.nowhere) & (stretches <= self.last[rows])
        self.survivors[rows, stretches, cluster] -= held
        self.cluster_of[rows, stretches, asking] = self.nowhere
        breaks = held & (self.survivors[rows, stretches, cluster] < self.x)
        rolled_back, earliest = breaks.any(axis=1), breaks.argmax(axis=1)
        broken = np.where(rolled_back, self.since[which, earliest], 0).astype(np.int32)
        base = np.where(rolled_back, earliest - 1, self.last[which])
        self._begin_stretch(which, base, np.where(rolled_back, broken, now + 1).astype(np.int32), 0)
        return broken


def repaired(
    cluster_of: Integers, survivors: Integers, present: Flags, k: int, *, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Repair clusters as `sticky` does, with random distances; one run a row.

    Args:
        cluster_of: Each client's cluster.
        survivors: How many are left in each cluster.
        present: Which clients are still there.
        k: The least size of a cluster.
        rng: The source of the distances.

    Returns:
        Each client's cluster and each cluster's size.
    """
    cluster_of, sizes = cluster_of.copy(), survivors.copy()
    homeless = present & ~np.take_along_axis(sizes > 0, cluster_of, axis=1)
    _fill_or_dissolve(cluster_of, sizes, homeless, present, k, rng)
    _partition(cluster_of, sizes, homeless, k, rng)
    _join_any(cluster_of, sizes, homeless, k, rng)
    left = homeless.sum(axis=1)
    too_few = np.flatnonzero((left > 0) & (left < k))
    if too_few.size:
        # every cluster is full: open one of them, which with those left is enough for two
        opened = np.where(sizes[too_few] > 0, rng.random((len(too_few), sizes.shape[1])), -1).argmax(axis=1)
        homeless[too_few] |= present[too_few] & (cluster_of[too_few] == opened[:, None])
        sizes[too_few, opened] = 0
    _partition(cluster_of, sizes, homeless, k, rng)
    return cluster_of, sizes


def _fill_or_dissolve(
    cluster_of: Integers, sizes: Integers, homeless: Flags, present: Flags, k: int, rng: np.random.Generator
) -> None:
    """Fill short clusters with any who can be spared, or dissolve them; change the first three arrays in place."""
    while (rows := np.flatnonzero(((sizes > 0) & (sizes < k)).any(axis=1))).size:
        size = sizes[rows]
        short = (size > 0) & (size < k)
        fullest = np.where(short, size, 0).argmax(axis=1)
        has = size[np.arange(len(rows)), fullest]
        to_spare = homeless[rows].sum(axis=1) + np.where(size > k, size - k, 0).sum(axis=1)
        can = k - has <= np.minimum(has, to_spare)
        _move_one(cluster_of, sizes, homeless, present, rows[can], fullest[can], k, rng)
        dissolved = np.where(short[~can], size[~can], k).argmin(axis=1)
        homeless[rows[~can]] |= present[rows[~can]] & (cluster_of[rows[~can]] == dissolved[:, None])
        sizes[rows[~can], dissolved] = 0


def _move_one(
    cluster_of: Integers,
    sizes: Integers,
    homeless: Flags,
    present: Flags,
    rows: Positions,
    into: Positions,
    k: int,
    rng: np.random.Generator,
) -> None:
    """In each of `rows`, move one of the homeless or of a cluster that has more than k `into` a cluster."""
    larger = np.take_along_axis(sizes[rows] > k, cluster_of[rows], axis=1)
    spared = homeless[rows] | (present[rows] & larger)
    client = np.where(spared, rng.random(spared.shape), -1).argmax(axis=1)
    housed = ~homeless[rows, client]
    sizes[rows[housed], cluster_of[rows, client][housed]] -= 1
    sizes[rows, into] += 1
    cluster_of[rows, client], homeless[rows, client] = into, False


def _join_any(cluster_of: Integers, sizes: Integers, homeless: Flags, k: int, rng: np.random.Generator) -> None:
    """In id order, let each of the homeless join any cluster that has room; change all three arrays in place."""
    queue, waiting = np.argsort(~homeless, axis=1, kind="stable"), homeless.sum(axis=1)
    for place in range(int(waiting.max(initial=0))):
        room = (sizes > 0) & (sizes < 2 * k - 1)
        rows = np.flatnonzero((place < waiting) & room.any(axis=1))
        if not rows.size:
            break
        joined = np.where(room[rows], rng.random((len(rows), sizes.shape[1])), -1).argmax(axis=1)
        client = queue[rows, place]
        cluster_of[rows, client] = joined
        sizes[rows, joined] += 1
        homeless[rows, client] = False


def _partition(cluster_of: Integers, sizes: Integers, homeless: Flags, k: int, rng: np.random.Generator) -> None:
    """Partition k or more homeless at random among themselves, with MDAV's sizes, into clusters not in use."""
    rows = np.flatnonzero(homeless.sum(axis=1) >= k)
    count = homeless[rows].sum(axis=1)
    order = np.where(homeless[rows], rng.random(homeless[rows].shape), 2).argsort(axis=1)
    unused = np.argsort(sizes[rows] > 0, axis=1, kind="stable")
    place = np.arange(int(count.max(initial=0)))
    group = np.minimum(place // k, (count // k - 1)[:, None])
    row, column = np.nonzero(place < count[:, None])
    chosen = unused[row, group[row, column]]
    cluster_of[rows[row], order[row, column]] = chosen
    np.add.at(sizes, (rows[row], chosen), 1)
    homeless[rows] = False
