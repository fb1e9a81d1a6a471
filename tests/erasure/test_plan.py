"""The planner against exact enumeration and against common sense."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.erasure.plan import (
    CLUSTERINGS,
    Clustering,
    Estimate,
    Federation,
    Outcomes,
    Plan,
    Unit,
    live_through,
    mean_of,
    plan,
    proportion_of,
    simulate,
)
from tests.rounds.builders import FEW
from tests.selection import some_of

# ---- exact enumeration: every partition, every request, with its probability ----------------------------------

Partition = frozenset[frozenset[int]]
Standing = tuple[Partition, ...]
State = tuple[Standing, frozenset[int], int, int]
"""Standing rounds, remaining clients, requests so far, the one that brought the first rollback."""


@cache
def fresh_partitions(people: frozenset[int], k: int) -> dict[Partition, Fraction]:
    """Cut every order of the people into clusters of k, the rest going to the last one."""
    last = (len(people) // k - 1) * k
    found = Counter(
        frozenset([*(frozenset(order[i : i + k]) for i in range(0, last, k)), frozenset(order[last:])])
        for order in permutations(people)
    )
    return {partition: Fraction(count, found.total()) for partition, count in found.items()}


def sticky_partitions(previous: Partition, newcomers: frozenset[int], k: int) -> dict[Partition, Fraction]:
    found: dict[Partition, Fraction] = defaultdict(Fraction)
    for kept, homeless, filled in mended(previous, newcomers, k):
        if len(homeless) >= k:
            for anew, share in fresh_partitions(homeless, k).items():
                found[kept | anew] += filled * share
            continue
        for groups, left, chance in placed(tuple(kept), tuple(sorted(homeless)), k):
            for partition, share in completed(groups, left, k):
                found[partition] += filled * chance * share
    return found


def mended(
    groups: Partition, homeless: frozenset[int], k: int
) -> Iterator[tuple[Partition, frozenset[int], Fraction]]:
    """Fill the fullest short cluster if that can be done, or dissolve the smallest, until none is short."""
    short = sorted((group for group in groups if len(group) < k), key=lambda group: (len(group), sorted(group)))
    if not short:
        yield groups, homeless, Fraction(1)
        return
    fullest = short[-1]
    larger = [group for group in groups if len(group) > k]
    lacking, to_spare = k - len(fullest), len(homeless) + sum(len(group) - k for group in larger)
    if lacking > min(len(fullest), to_spare):
        yield from mended(groups - {short[0]}, homeless | short[0], k)
        return
    spared = homeless.union(*larger)
    for mover in spared:
        without = frozenset(group - {mover} for group in groups - {fullest}) | {fullest | {mover}}
        for partition, left, chance in mended(without, homeless - {mover}, k):
            yield partition, left, chance / len(spared)


def placed(
    kept: tuple[frozenset[int], ...], homeless: tuple[int, ...], k: int
) -> Iterator[tuple[tuple[frozenset[int], ...], tuple[int, ...], Fraction]]:
    room = [i for i, group in enumerate(kept) if len(group) < 2 * k - 1]
    if not homeless or not room:
        yield kept, homeless, Fraction(1)
        return
    for i in room:
        joined = (*kept[:i], kept[i] | {homeless[0]}, *kept[i + 1 :])
        for groups, left, chance in placed(joined, homeless[1:], k):
            yield groups, left, chance / len(room)


def completed(
    groups: tuple[frozenset[int], ...], left: tuple[int, ...], k: int
) -> Iterator[tuple[Partition, Fraction]]:
    if not left:
        yield frozenset(groups), Fraction(1)
    elif len(left) < k:
        for i, opened in enumerate(groups):
            for partition, share in completed((*groups[:i], *groups[i + 1 :]), (*left, *opened), k):
                yield partition, share / len(groups)
    else:
        for partition, share in fresh_partitions(frozenset(left), k).items():
            yield frozenset(groups) | partition, share


@dataclass
class Exact:
    rollbacks: Fraction = Fraction(0)
    retrained_rounds: Fraction = Fraction(0)
    ends: dict[tuple[int, int], Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    """By requests received and the number of the one that brought the first rollback (0: none)."""

    @property
    def chance_of_none(self) -> Fraction:
        return sum((chance for (_, first), chance in self.ends.items() if first == 0), Fraction(0))

    def by(self, number: int) -> Fraction:
        """The chance of a rollback by the `number`-th request, if there is one."""
        received = {key: chance for key, chance in self.ends.items() if key[0] >= number}
        return sum((c for (_, first), c in received.items() if 0 < first <= number), Fraction(0)) / sum(
            received.values()
        )


@cache
def enumerated(
    clients: int, rounds: int, rate: Fraction, k: int, x: int, clustering: Clustering, unit: Unit = "client"
) -> Exact:
    def following(standing: Standing, people: frozenset[int]) -> dict[Partition, Fraction]:
        if clustering == "fresh" or not standing:
            return fresh_partitions(people, k)
        return sticky_partitions(standing[-1], people.difference(*standing[-1]), k)

    def extended(standing: Standing, people: frozenset[int], until: int) -> Iterator[tuple[Standing, Fraction]]:
        if len(standing) == until:
            yield standing, Fraction(1)
            return
        for partition, chance in following(standing, people).items():
            for longer, more in extended((*standing, partition), people, until):
                yield longer, chance * more

    exact = Exact()
    states: dict[State, Fraction] = {((), frozenset(range(clients)), 0, 0): Fraction(1)}
    for now in range(1, rounds + 1):
        after: dict[State, Fraction] = defaultdict(Fraction)
        for (standing, people, requests, first), chance in states.items():
            for longer, more in extended(standing, people, now):
                after[longer, people, requests, first] += chance * more * (1 - rate)
                for leaver in people:
                    probability = chance * more * rate / len(people)
                    survivors = people - {leaver} if unit == "client" else people
                    left = tuple(frozenset(group - {leaver} for group in partition) for partition in longer)
                    short = [i for i, partition in enumerate(left) if any(len(group) < x for group in partition)]
                    cause = first or (requests + 1 if short else 0)
                    exact.rollbacks += probability * bool(short)
                    if len(survivors) < k:
                        exact.ends[requests + 1, cause] += probability
                    elif short:
                        exact.retrained_rounds += probability * (now - short[0])
                        for rebuilt, part in extended(left[: short[0]], survivors, now):
                            after[rebuilt, survivors, requests + 1, cause] += probability * part
                    else:
                        after[left, survivors, requests + 1, cause] += probability
        states = after
    for (_, _, requests, first), chance in states.items():
        exact.ends[requests, first] += chance
    assert sum(exact.ends.values()) == 1
    return exact


CASES = [
    (4, 4, Fraction(1, 2), 2, 1),
    (4, 4, Fraction(1, 2), 2, 2),
    (5, 3, Fraction(1, 2), 2, 1),
    (5, 3, Fraction(2, 5), 2, 2),
    (5, 3, Fraction(1), 2, 1),
    (6, 2, Fraction(3, 4), 2, 1),
    (6, 3, Fraction(1, 2), 3, 2),
    (6, 3, Fraction(1), 3, 1),
    (6, 3, Fraction(4, 5), 3, 3),
]
RUNS = 20_000
SIGMAS = 5


RECORD_CASES = [
    (4, 3, Fraction(1, 2), 2, 1),
    (4, 3, Fraction(1, 2), 2, 2),
    (4, 3, Fraction(1), 2, 1),
    (5, 4, Fraction(2, 5), 3, 2),
    (5, 2, Fraction(3, 4), 2, 2),
    (6, 2, Fraction(1), 3, 2),
]
"""Smaller ones: who comes back is in what follows, and there are more futures."""


def within(estimate: Estimate, exact: Fraction) -> bool:
    """Five standard errors: one false alarm in 1.7 million. Rounding alone where nothing varies."""
    return abs(estimate.mean - float(exact)) <= SIGMAS * (estimate.high - estimate.mean) / 1.96 + 1e-12


@pytest.mark.parametrize("clustering", CLUSTERINGS)
@pytest.mark.parametrize(
    ("clients", "rounds", "rate", "k", "x", "unit"),
    [
        *some_of([(*case, "client") for case in CASES], [(*case, "client") for case in CASES[::2]]),
        *some_of([(*case, "record") for case in RECORD_CASES], [(*case, "record") for case in RECORD_CASES[::2]]),
    ],
)
def test_the_simulation_agrees_with_exact_enumeration(
    clients: int, rounds: int, rate: Fraction, k: int, x: int, unit: Unit, clustering: Clustering
) -> None:
    exact = enumerated(clients, rounds, rate, k, x, clustering, unit)
    found = made(Federation(clients, rounds, float(rate), unit), k, x, clustering, simulations=RUNS)
    assert within(found.rollbacks, exact.rollbacks)
    assert within(found.retrained_rounds, exact.retrained_rounds)
    none = float(exact.chance_of_none)
    assert abs(found.chance_of_none.mean - none) <= SIGMAS * math.sqrt(none * (1 - none) / RUNS) + 1e-12
    expected = next((n for n in range(1, found.requests_within + 1) if exact.by(n) >= Fraction(1, 2)), None)
    certain = all(abs(exact.by(n) - Fraction(1, 2)) > Fraction(1, 20) for n in range(1, found.requests_within + 1))
    assert not certain or found.likely_at == expected


def test_the_enumerator_agrees_with_records_worked_by_hand() -> None:
    # 4 clients, 2 rounds of two pairs, x = 2: whoever asks breaks every round in which it is. After round 1: rate
    # 1/2, 1 retrained. After round 2 everybody is in both rounds again, and whoever asks breaks round 1.
    for clustering in CLUSTERINGS:
        exact = enumerated(4, 2, Fraction(1, 2), 2, 2, clustering, "record")
        assert exact.rollbacks == Fraction(1, 2) * 2
        assert exact.retrained_rounds == Fraction(1, 2) * 1 + Fraction(1, 2) * 2
        assert exact.chance_of_none == Fraction(1, 4)


def test_the_enumerator_agrees_with_a_case_worked_by_hand() -> None:
    # 4 clients, 2 rounds of two pairs, x = 2: whoever leaves breaks round 1. After round 1 three are left, one
    # cluster that a second leaver leaves with two: deniable. Round 1: rate 1/2, 1 retrained. Round 2, if nobody has
    # asked yet: rate 1/2, 2 retrained.
    for clustering in CLUSTERINGS:
        exact = enumerated(4, 2, Fraction(1, 2), 2, 2, clustering)
        assert exact.rollbacks == Fraction(1, 2) + Fraction(1, 4)
        assert exact.retrained_rounds == Fraction(1, 2) * 1 + Fraction(1, 4) * 2
        assert exact.chance_of_none == Fraction(1, 4)


# ---- common sense ------------------------------------------------------------------------------------------------


def made(
    federation: Federation, k: int, x: int, clustering: Clustering, *, simulations: int = 500, seed: int = 1
) -> Plan:
    return plan(
        federation, k=k, x=x, clustering=clustering, simulations=simulations, rng=np.random.default_rng(seed)
    )


PAPER = Federation(clients=50, rounds=50, request_rate=0.2)


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_nobody_asks_nothing_happens(clustering: Clustering) -> None:
    found = made(Federation(50, 50, 0.0), 4, 4, clustering)
    zero = Estimate(0.0, 0.0, 0.0)
    assert (found.rollbacks, found.retrained_rounds, found.likely_at, found.requests_within) == (
        zero,
        zero,
        None,
        0,
    )
    assert found.chance_of_none.mean == found.chance_of_none.high == 1


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_equal_seeds_give_equal_plans_and_others_do_not(clustering: Clustering) -> None:
    assert made(PAPER, 4, 3, clustering) == made(PAPER, 4, 3, clustering)
    assert made(PAPER, 4, 3, clustering) != made(PAPER, 4, 3, clustering, seed=2)


@pytest.mark.parametrize("clustering", CLUSTERINGS)
@pytest.mark.parametrize("k", [4, 6])
def test_a_higher_x_costs_more(k: int, clustering: Clustering) -> None:
    plans = [made(PAPER, k, x, clustering) for x in range(1, k + 1)]
    for fewer, more in pairwise(plans):
        assert fewer.rollbacks.mean <= more.rollbacks.mean
        assert fewer.retrained_rounds.mean <= more.retrained_rounds.mean
        assert fewer.chance_of_none.mean >= more.chance_of_none.mean
    assert plans[-1].likely_at == 1


@pytest.mark.parametrize(("k", "x"), [(4, 2), (4, 3), (6, 3), (8, 4)])
def test_sticky_clusters_need_far_less_retraining_at_the_papers_size(k: int, x: int) -> None:
    fresh, kept = (made(PAPER, k, x, clustering, simulations=1000) for clustering in CLUSTERINGS)
    assert kept.retrained_rounds.high < 0.5 * fresh.retrained_rounds.low


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_every_leaver_breaks_every_round_where_clusters_have_no_spare_member(clustering: Clustering) -> None:
    # k = x and all clusters of exactly k: the first request after round r always retrains r rounds
    outcomes = run(Federation(12, 9, 0.3), 3, 3, clustering)
    requested = outcomes.requests > 0
    assert (outcomes.first_rollback[requested] == 1).all()
    assert (outcomes.rollbacks[requested] >= 1).all()
    assert (outcomes.retrained_rounds[outcomes.requests == 1] <= 9).all()
    assert (outcomes.retrained_rounds[outcomes.requests == 1] >= 1).all()


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_a_run_ends_when_fewer_than_k_are_left(clustering: Clustering) -> None:
    # one cluster of 5, k = x = 4, a request each round: the 1st is deniable, the 2nd breaks round 1, and nobody
    # is left to retrain it
    found = made(Federation(5, 10, 1.0), 4, 4, clustering)
    assert found.rollbacks.mean == 1
    assert found.retrained_rounds.mean == 0
    assert found.ended_early.mean == 1
    assert (found.likely_at, found.requests_within) == (2, 2)


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_no_run_ends_early_where_clients_come_back(clustering: Clustering) -> None:
    found = made(Federation(5, 10, 1.0, "record"), 4, 4, clustering)
    assert found.ended_early.mean == 0
    assert found.requests_within == 10
    assert found.rollbacks.mean > 1


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_the_first_request_costs_the_same_whatever_it_is_for(clustering: Clustering) -> None:
    whole, record = (run(Federation(12, 6, 0.2, unit), 3, 3, clustering, seed=4) for unit in ("client", "record"))
    once = whole.requests == 1
    assert (whole.requests == record.requests)[once].all()
    assert whole.retrained_rounds[once].mean() == pytest.approx(record.retrained_rounds[once].mean())


@FEW
@given(
    st.integers(2, 30), st.integers(1, 12), st.floats(0, 1), st.integers(2, 6), st.integers(1, 6), st.integers(0, 9)
)
def test_what_always_holds(clients: int, rounds: int, rate: float, k: int, x: int, seed: int) -> None:
    k = min(k, clients)
    x = min(x, k)
    records = Federation(clients, rounds, rate, "record")
    for found in [run(records, k, x, clustering, seed=seed) for clustering in CLUSTERINGS]:
        assert (found.rollbacks <= found.requests).all()
        assert (found.requests <= rounds).all()
        assert (found.retrained_rounds >= found.rollbacks).all()
        assert (found.retrained_rounds <= rounds * found.rollbacks).all()
    federation = Federation(clients, rounds, rate)
    both = [run(federation, k, x, clustering, seed=seed) for clustering in CLUSTERINGS]
    assert (both[0].requests == both[1].requests).all(), "both kinds are judged on the same requests"
    for found in both:
        assert (found.requests <= min(rounds, clients - k + 1)).all()
        assert (found.rollbacks <= found.requests).all()
        assert ((found.first_rollback > 0) == (found.rollbacks > 0)).all()
        assert (found.first_rollback <= found.requests).all()
        assert (found.retrained_rounds <= rounds * found.rollbacks).all()
        lasted = found.requests <= clients - k
        assert (found.retrained_rounds[lasted] >= found.rollbacks[lasted]).all()


def run(federation: Federation, k: int, x: int, clustering: Clustering, *, seed: int = 3) -> Outcomes:
    return simulate(federation, k=k, x=x, clustering=clustering, runs=300, rng=np.random.default_rng(seed))


def test_simulations_come_in_batches_that_add_up() -> None:
    progress: list[int] = []
    federation = Federation(clients=1000, rounds=200, request_rate=0.05)
    found = plan(
        federation,
        k=10,
        x=8,
        clustering="sticky",
        simulations=100,
        rng=np.random.default_rng(1),
        on_progress=progress.append,
    )
    assert sum(progress) == found.simulations == 100
    assert len(progress) > 1


def test_intervals_are_the_textbook_ones() -> None:
    mean = mean_of(np.array([1, 2, 3], dtype=np.int32))
    assert (mean.mean, mean.low, mean.high) == pytest.approx((2, 2 - 1.96 / 3**0.5, 2 + 1.96 / 3**0.5), abs=1e-4)
    # Wilson, 10 of 100: Newcombe (1998), Statistics in Medicine 17
    share = proportion_of(10, 100)
    assert (share.mean, share.low, share.high) == pytest.approx((0.1, 0.0552, 0.1744), abs=1e-4)
    none, all_of_them = proportion_of(0, 100), proportion_of(100, 100)
    assert (none.mean, none.low, none.high) == pytest.approx((0, 0, 0.0370), abs=1e-4)
    assert (all_of_them.mean, all_of_them.low, all_of_them.high) == pytest.approx((1, 0.9630, 1), abs=1e-4)


# -- purges ------------------------------------------------------------------------------------------------------


def purged(clustering: Clustering, every: int | None, *, rate: float = 0.3) -> Outcomes:
    federation = Federation(clients=30, rounds=20, request_rate=rate, purge_every=every)
    return simulate(federation, k=5, x=2, clustering=clustering, runs=400, rng=np.random.default_rng(4))


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_without_a_period_nobody_is_purged(clustering: Clustering) -> None:
    assert not purged(clustering, None).purges.any()
    assert not purged(clustering, None).purged_clients.any()


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_one_purge_at_the_end_trains_all_rounds_again_with_the_survivors(clustering: Clustering) -> None:
    """Nothing before it depends on it: the same requests and rollbacks as without."""
    never, once = purged(clustering, None), purged(clustering, 20)
    assert np.array_equal(never.rollbacks, once.rollbacks)
    assert np.array_equal(never.retrained_clients, once.retrained_clients)
    assert set(once.purges) <= {0, 1}
    assert np.array_equal(once.purged_rounds, 20 * once.purges)
    assert np.array_equal(once.purged_clients, once.purged_rounds * (30 - once.requests))
    # whoever asks is purged, unless the last rollback went to round 1
    assert once.purges[(once.requests > 0) & (once.rollbacks == 0)].all()
    assert not once.purges[once.requests == 0].any()


@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_purges_leave_fewer_rollbacks(clustering: Clustering) -> None:
    """Clusters are made anew without the leavers."""
    assert purged(clustering, 5).rollbacks.sum() < purged(clustering, None).rollbacks.sum()
    assert purged(clustering, 5).purges.max() <= 4


def test_a_period_trains_the_rounds_up_to_its_end() -> None:
    """One request after round 3 and one after round 12, purged every 5 rounds: 5 rounds, and 15."""
    federation = Federation(clients=30, rounds=20, request_rate=0.0, purge_every=5)
    found = live_through(
        federation,
        np.array([2], dtype=np.int32),
        np.array([[3, 12]], dtype=np.int32),
        k=5,
        x=2,
        clustering="sticky",
        rng=np.random.default_rng(1),
    )
    assert found.purges.tolist() == [2]
    assert found.purged_rounds.tolist() == [5 + 15]
    assert found.purged_clients.tolist() == [5 * 29 + 15 * 28]
