"""What erasures will cost, before anything is trained: rollbacks and retrained rounds, by simulation.

After each round, with probability `request_rate`, one of the remaining clients, drawn uniformly, asks to be
forgotten. It is judged over all standing rounds by the criterion `cluster` with adaptive Δ, so that widths never
matter: the first round in which its cluster keeps fewer than x survivors breaks, and is retrained with all that
follow. Which clients are alike is taken as random, the same for `fresh` clusters and for `sticky` ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Clustering = Literal["fresh", "sticky"]
CLUSTERINGS: tuple[Clustering, ...] = ("fresh", "sticky")
Integers = npt.NDArray[np.int32]
Positions = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

_Z = 1.959963984540054
_LIKELY = 0.5
_SELDOM = 0.05
_BATCH_ENTRIES = 2**23
_LARGEST_BATCH = 1000


@dataclass(frozen=True)
class Federation:
    """Who trains, for how many rounds, and the chance that somebody asks to be forgotten after each of them."""

    clients: int
    rounds: int
    request_rate: float


@dataclass(frozen=True)
class Estimate:
    """A simulated mean or proportion with its 95 % confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """What to expect of one choice of k and x.

    `retrained_rounds` come on top of the rounds of training; `chance_of_none` is that of a run without any
    rollback; `ended_early` that of a run left with fewer than k clients. `likely_at` is the smallest n such that at
    least half of the runs that receive n requests have rolled back by the n-th; None if there is none within
    `requests_within`, the most requests that at least one run in twenty receives.
    """

    k: int
    x: int
    clustering: Clustering
    simulations: int
    rollbacks: Estimate
    retrained_rounds: Estimate
    chance_of_none: Estimate
    ended_early: Estimate
    likely_at: int | None
    requests_within: int


class Outcomes(NamedTuple):
    """One entry a simulated run. `first_rollback` is the number of the request that caused it, 0 if none did.

    `retrained_clients` counts each client once for each round that it trains again.
    """

    requests: Integers
    rollbacks: Integers
    retrained_rounds: Integers
    first_rollback: Integers
    retrained_clients: Integers


def plan(
    federation: Federation,
    *,
    k: int,
    x: int,
    clustering: Clustering,
    simulations: int,
    rng: np.random.Generator,
    on_progress: Callable[[int], None] = lambda runs: None,
) -> Plan:
    """Simulate whole runs and sum them up; `on_progress` is told how many runs each batch brought.

    Required: 1 ≤ x ≤ k ≤ clients, k ≥ 2, at least one round and one simulation.
    """
    # batches and their streams are the same for every choice: equal seeds bring equal requests, and compare better
    size = min(_LARGEST_BATCH, max(1, _BATCH_ENTRIES // (federation.clients * federation.rounds)))
    sizes = [min(size, simulations - start) for start in range(0, simulations, size)]
    batches = []
    for runs, stream in zip(sizes, rng.spawn(len(sizes)), strict=True):
        batches.append(simulate(federation, k=k, x=x, clustering=clustering, runs=runs, rng=stream))
        on_progress(runs)
    return _sum_up(Outcomes(*map(np.concatenate, zip(*batches, strict=True))), federation, k, x, clustering)


def simulate(
    federation: Federation, *, k: int, x: int, clustering: Clustering, runs: int, rng: np.random.Generator
) -> Outcomes:
    """Live through `runs` runs at once, request by request."""
    most = federation.clients - k + 1  # nobody can form a cluster after so many: the run ends, whatever the verdict
    requests, asked_after = _requests(federation, runs, most, rng)
    kinds: dict[Clustering, type[_Fresh | _Sticky]] = {"fresh": _Fresh, "sticky": _Sticky}
    standing = kinds[clustering](federation, k, x, runs, rng)
    rollbacks, retrained, first, clients = (np.zeros(runs, dtype=np.int32) for _ in range(4))
    for number in range(1, asked_after.shape[1] + 1):
        which = np.flatnonzero(requests >= number)
        now = asked_after[which, number - 1]
        broken = standing.withdraw(number, which, now)
        rolled_back = broken > 0
        rollbacks[which] += rolled_back
        first[which] = np.where(rolled_back & (first[which] == 0), number, first[which])
        if number < most:
            again = np.where(rolled_back, now - broken + 1, 0)
            retrained[which] += again
            clients[which] += again * (federation.clients - number)
    return Outcomes(requests, rollbacks, retrained, first, clients)


def _requests(federation: Federation, runs: int, most: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """How many requests each run receives, at most `most`, and after which round each of them comes."""
    asked = rng.random((runs, federation.rounds)) < federation.request_rate
    counts = np.minimum(asked.sum(axis=1), most).astype(np.int32)
    rounds = np.argsort(~asked, axis=1, kind="stable")[:, : counts.max()] + 1
    return counts, rounds.astype(np.int32)


class _Fresh:
    """A uniformly random partition each round.

    Survivors are exchangeable, so a client's cluster need not be drawn before it leaves: it is one with j survivors
    with probability j·(number of such clusters) / survivors. Only these numbers are kept, no names.
    """

    def __init__(self, federation: Federation, k: int, x: int, runs: int, rng: np.random.Generator) -> None:
        self.clients, self.rounds, self.k, self.x, self.rng = federation.clients, federation.rounds, k, x, rng
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
        seat = self.rng.integers(survivors + 1, size=holding.shape[:2], dtype=np.int32)
        before = (reached <= seat[:, :, None]).sum(axis=2)[:, :, None]
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


class _Sticky:
    """The clusters of the round before, repaired where leavers left fewer than k.

    They change only after a request, so what is kept is one partition for each stretch of rounds that share it.
    """

    def __init__(self, federation: Federation, k: int, x: int, runs: int, rng: np.random.Generator) -> None:
        self.clients, self.k, self.x, self.rng = federation.clients, k, x, rng
        self.order = rng.permuted(np.tile(np.arange(self.clients), (runs, 1)), axis=1)
        stretches = federation.rounds + 1  # few are ever touched, and untouched zeros take no memory
        self.cluster_of = np.zeros((runs, stretches, self.clients), dtype=np.int32)
        self.survivors = np.zeros((runs, stretches, self.clients // k), dtype=np.int32)
        self.since = np.ones((runs, stretches), dtype=np.int32)
        self.last = np.zeros(runs, dtype=np.intp)
        self._begin_stretch(np.arange(runs), np.full(runs, -1), np.ones(runs, dtype=np.int32), 0)

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

    def _begin_stretch(self, which: Positions, base: Positions, since: Integers, leavers: int) -> None:
        """Go on from the clusters of stretch `base` less leavers; from none where it is -1."""
        present = np.ones((len(which), self.clients), dtype=np.bool_)
        np.put_along_axis(present, self.order[which, :leavers], False, axis=1)
        survivors = np.where((base >= 0)[:, None], self.survivors[which, base], 0)
        anew = repaired(self.cluster_of[which, base], survivors, present, self.k, rng=self.rng)
        self.cluster_of[which, base + 1], self.survivors[which, base + 1] = anew
        self.since[which, base + 1], self.last[which] = since, base + 1


def repaired(
    cluster_of: Integers, survivors: Integers, present: Flags, k: int, *, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Each client's cluster and each cluster's size after `sticky` with random distances; one run a row."""
    cluster_of, sizes = cluster_of.copy(), np.where(survivors >= k, survivors, 0)
    homeless = present & ~np.take_along_axis(sizes > 0, cluster_of, axis=1)
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
    """Partition the homeless at random among themselves, with MDAV's sizes, into clusters that are not in use."""
    rows = np.flatnonzero(homeless.any(axis=1))
    count = homeless[rows].sum(axis=1)
    order = np.where(homeless[rows], rng.random(homeless[rows].shape), 2).argsort(axis=1)
    unused = np.argsort(sizes[rows] > 0, axis=1, kind="stable")
    place = np.arange(int(count.max(initial=0)))
    group = np.minimum(place // k, (count // k - 1)[:, None])
    row, column = np.nonzero(place < count[:, None])
    chosen = unused[row, group[row, column]]
    cluster_of[rows[row], order[row, column]] = chosen
    np.add.at(sizes, (rows[row], chosen), 1)


def _sum_up(outcomes: Outcomes, federation: Federation, k: int, x: int, clustering: Clustering) -> Plan:
    runs = len(outcomes.requests)
    within = max(n for n in range(federation.rounds + 1) if (outcomes.requests >= n).mean() >= _SELDOM)
    return Plan(
        k=k,
        x=x,
        clustering=clustering,
        simulations=runs,
        rollbacks=mean_of(outcomes.rollbacks),
        retrained_rounds=mean_of(outcomes.retrained_rounds),
        chance_of_none=proportion_of(int((outcomes.rollbacks == 0).sum()), runs),
        ended_early=proportion_of(int((outcomes.requests > federation.clients - k).sum()), runs),
        likely_at=next((n for n in range(1, within + 1) if _by(outcomes, n) >= _LIKELY), None),
        requests_within=within,
    )


def _by(outcomes: Outcomes, number: int) -> float:
    """The share that has rolled back by the `number`-th request, of the runs that receive so many."""
    first = outcomes.first_rollback[outcomes.requests >= number]
    return float(((first > 0) & (first <= number)).mean())


def mean_of(values: Integers) -> Estimate:
    """The mean of counts, none of them negative, with its normal interval."""
    mean = float(values.mean())
    half = _Z * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Estimate(mean, max(0.0, mean - half), mean + half)


def proportion_of(count: int, total: int) -> Estimate:
    """A proportion with its Wilson interval, which stays honest at 0 and at 1."""
    share, scale = count / total, 1 + _Z**2 / total
    centre = (share + _Z**2 / (2 * total)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    # at 0 and 1 the formula meets them only up to rounding, hence the share itself as a bound
    return Estimate(share, min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)))
