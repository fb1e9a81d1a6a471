"""What erasures will cost, before anything is trained: rollbacks and retrained rounds, by simulation.

After each round, with probability `request_rate`, one of the remaining clients, drawn uniformly, asks to be
forgotten. It is judged over all standing rounds with adaptive Δ, so that widths never
matter: the first round in which its cluster keeps fewer than x survivors breaks, and is retrained with all that
follow. Which clients are alike is taken as random, the same for `fresh` clusters and for `sticky` ones.

Where the unit is a record, the client that asks is withdrawn and judged in the same way, and comes back as a
newcomer of the next round, or of the first round that is retrained: the clients do not become fewer.

With purges, all leavers since the last one are removed once a period: every client is in every round, so all rounds
so far are trained again, with the survivors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from disavow.erasure.simulated import Fresh, FreshRecords, Integers, Positions, Sticky, StickyRecords

Clustering = str
Unit = Literal["client", "record"]
"""What requests are for: all of a client, or some of its records."""

SIMULATED: dict[Unit, dict[Clustering, type[Fresh | Sticky]]] = {
    "client": {each.name: each for each in (Fresh, Sticky)},
    "record": {each.name: each for each in (FreshRecords, StickyRecords)},
}
UNITS: tuple[Unit, ...] = tuple(SIMULATED)
CLUSTERINGS: tuple[Clustering, ...] = tuple(SIMULATED["client"])

_Z = 1.959963984540054
_LIKELY = 0.5
_SELDOM = 0.05
_BATCH_ENTRIES = 2**23
_LARGEST_BATCH = 1000


@dataclass(frozen=True)
class Federation:
    """Who trains, for how many rounds, the chance that somebody asks after each of them, and for what.

    `purge_every`: after so many rounds, and again after as many, leavers are purged; None: never.
    """

    clients: int
    rounds: int
    request_rate: float
    unit: Unit = "client"
    purge_every: int | None = None

    def most_requests(self, k: int) -> int:
        """How many requests a run can have: once fewer than k clients are left it ends, whatever the verdict."""
        return self.rounds if self.unit == "record" else self.clients - k + 1

    def left_after(self, requests: int) -> int:
        """How many clients are in the run after so many requests."""
        return self.clients if self.unit == "record" else self.clients - requests


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
    `requests_within`, the most requests that at least one run in twenty receives. `purges` and the rounds that they
    train again come on top; None without purges.
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
    purges: Estimate | None = None
    purged_rounds: Estimate | None = None


class Outcomes(NamedTuple):
    """One entry a simulated run. `first_rollback` is the number of the request that caused it, 0 if none did.

    `retrained_clients` counts each client once for each round that it trains again. `purges`, the rounds that they
    train again and their clients are counted apart.
    """

    requests: Integers
    rollbacks: Integers
    retrained_rounds: Integers
    first_rollback: Integers
    retrained_clients: Integers
    purges: Integers
    purged_rounds: Integers
    purged_clients: Integers


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
    """Simulate whole runs and sum them up.

    Args:
        federation: Who trains, for how many rounds, and how often somebody asks.
        k: The least size of a cluster; 2 ≤ k ≤ clients.
        x: The survivors needed; 1 ≤ x ≤ k.
        clustering: How clients are clustered.
        simulations: How many runs; at least one.
        rng: The random numbers.
        on_progress: Called with how many runs each batch brought.

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
    """Simulate `runs` runs at once, request by request; arguments as those of `plan`."""
    requests, request_rounds = draw_requests(federation, runs, federation.most_requests(k), rng)
    return live_through(federation, requests, request_rounds, k=k, x=x, clustering=clustering, rng=rng)


def live_through(
    federation: Federation,
    requests: Integers,
    request_rounds: Integers,
    *,
    k: int,
    x: int,
    clustering: Clustering,
    rng: np.random.Generator,
) -> Outcomes:
    """Answer given requests, run by run at once, request by request, with a purge once a period.

    Args:
        federation: Who trains, for how many rounds, and when they are purged.
        requests: How many requests each run receives.
        request_rounds: After which round each of them comes, one run a row, in order.
        k: The least size of a cluster.
        x: The survivors needed.
        clustering: How clients are clustered.
        rng: The random numbers.

    """
    runs, period = len(requests), federation.purge_every
    simulated = SIMULATED[federation.unit][clustering]
    standing = simulated(federation.clients, federation.rounds, k=k, x=x, runs=runs, rng=rng)
    rollbacks, retrained, first, clients = (np.zeros(runs, dtype=np.int32) for _ in range(4))
    purges, purged_rounds, purged_clients = (np.zeros(runs, dtype=np.int32) for _ in range(3))
    since = np.zeros(runs, dtype=np.int32)  # the round of the last request of whom nothing is purged; 0: none

    def purge(which: Positions, answered: int, now: Integers) -> None:
        """Purge what is due before the round `now` of these runs, in all of which so many have asked."""
        left = federation.left_after(answered)
        if period is None or left < k:
            return
        ends = np.minimum(-(-since[which] // period) * period, federation.rounds)
        due = (since[which] > 0) & (ends < now)
        chosen, rounds = which[due], ends[due]
        if not chosen.size:
            return
        standing.renew(chosen, federation.clients - left)
        purges[chosen] += 1
        purged_rounds[chosen] += rounds
        purged_clients[chosen] += rounds * left
        since[chosen] = 0

    for number in range(1, request_rounds.shape[1] + 1):
        which = np.flatnonzero(requests >= number)
        now = request_rounds[which, number - 1]
        purge(which, number - 1, now)
        broken = standing.withdraw(number, which, now)
        since[which] = np.where(broken == 1, 0, now)  # a rollback to round 1 leaves nothing to purge
        rolled_back = broken > 0
        rollbacks[which] += rolled_back
        first[which] = np.where(rolled_back & (first[which] == 0), number, first[which])
        if federation.left_after(number) >= k:
            again = np.where(rolled_back, now - broken + 1, 0)
            retrained[which] += again
            clients[which] += again * federation.left_after(number)
    for count in np.unique(requests[requests > 0]):  # those of whom nobody asks any more, until the end
        last = np.flatnonzero(requests == count)
        purge(last, int(count), np.full(len(last), federation.rounds + 1, dtype=np.int32))
    return Outcomes(requests, rollbacks, retrained, first, clients, purges, purged_rounds, purged_clients)


def draw_requests(
    federation: Federation, runs: int, most: int, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Draw how many requests each run receives, and after which round each of them comes.

    Args:
        federation: How many rounds there are, and how often somebody asks.
        runs: How many runs.
        most: The most requests that a run can have.
        rng: The random numbers.

    """
    arrives = rng.random((runs, federation.rounds)) < federation.request_rate
    counts = np.minimum(arrives.sum(axis=1), most).astype(np.int32)
    rounds = np.argsort(~arrives, axis=1, kind="stable")[:, : counts.max()] + 1
    return counts, rounds.astype(np.int32)


def _sum_up(outcomes: Outcomes, federation: Federation, k: int, x: int, clustering: Clustering) -> Plan:
    runs = len(outcomes.requests)
    ended = federation.unit == "client" and outcomes.requests > federation.clients - k
    within = max(n for n in range(federation.rounds + 1) if (outcomes.requests >= n).mean() >= _SELDOM)
    return Plan(
        k=k,
        x=x,
        clustering=clustering,
        simulations=runs,
        rollbacks=mean_of(outcomes.rollbacks),
        retrained_rounds=mean_of(outcomes.retrained_rounds),
        chance_of_none=proportion_of(int((outcomes.rollbacks == 0).sum()), runs),
        ended_early=proportion_of(int(np.sum(ended)), runs),
        likely_at=next((n for n in range(1, within + 1) if _by(outcomes, n) >= _LIKELY), None),
        requests_within=within,
        purges=None if federation.purge_every is None else mean_of(outcomes.purges),
        purged_rounds=None if federation.purge_every is None else mean_of(outcomes.purged_rounds),
    )


def _by(outcomes: Outcomes, number: int) -> float:
    """The share that has rolled back by the `number`-th request, of the runs that receive so many."""
    first = outcomes.first_rollback[outcomes.requests >= number]
    return float(((first > 0) & (first <= number)).mean())


def mean_of(values: Integers) -> Estimate:
    """Estimate a mean with its normal interval.

    Args:
        values: Counts, none of them negative.

    """
    mean = float(values.mean())
    half = _Z * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Estimate(mean, max(0.0, mean - half), mean + half)


def proportion_of(count: int, total: int) -> Estimate:
    """Estimate a proportion with its Wilson interval, which stays honest at 0 and at 1.

    Args:
        count: How often it was so.
        total: Out of how many.

    """
    share, scale = count / total, 1 + _Z**2 / total
    centre = (share + _Z**2 / (2 * total)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    # at 0 and 1 the formula meets them only up to rounding, hence the share itself as a bound
    return Estimate(share, min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)))
