"""The account against the mechanism: what an optimal test achieves on real draws never exceeds it, and comes near.

One-dimensional updates go through the product's own clipping, clustering, choice, noise and aggregation. A round is
run for many draws at once: each draw has clusters of its own and is one coordinate of the aggregate, so that both
its representatives and its noise are independent of every other draw's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.stats import beta

from disavow.domain import Policy
from disavow.privacy.accountants import account
from disavow.privacy.events import Event, event_of
from disavow.rounds.aggregate import aggregate
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import Clusters, cluster
from disavow.rounds.perturb import Perturbed, choose_and_perturb, clip
from disavow.rounds.randomness import Secrets
from disavow.rounds.vectors import Model, Updates
from tests.rounds.builders import MOMENT, POLICY, layout_of_size, updates_of
from tests.selection import some_of

Floats = npt.NDArray[np.float64]

FEW, MANY = (8_000, 0.35), (25_000, 0.5)
"""Draws, and the share of the account that a test comes up to with so many: the intervals of few are wider.

The threshold of a test is chosen on half as many; it is then judged on others.
"""

SOME_OR_MANY = pytest.mark.parametrize(
    ("draws", "share"), [pytest.param(*FEW, id="few"), pytest.param(*MANY, id="many", marks=pytest.mark.torture)]
)

DELTA = 1e-3
CONFIDENCE = 0.999


@dataclass(frozen=True)
class World:
    """One of two neighbouring client sets, with its clusters."""

    updates: Updates
    clusters: Clusters

    def event(self, policy: Policy) -> Event:
        capacities, weights = self.clusters.capacities, self.clusters.weights
        return event_of(policy, number=1, attempt=1, capacities=capacities, weights=weights)


def released(world: World, policy: Policy, *, rounds: int, draws: int, seed: int) -> Floats:
    """What an observer sees: one row a draw, one column a round."""
    layout = layout_of_size(draws)
    columns = []
    for number in range(1, rounds + 1):
        clipped = clip(world.updates, policy)
        # the clusters of all draws, one after the other
        copies = tuple(members for members in world.clusters.members for _ in range(draws))
        capacities = tuple(count for count in world.clusters.capacities for _ in range(draws))
        chosen = choose_and_perturb(
            clipped,
            replace(world.clusters, members=copies, capacities=capacities),
            policy=policy,
            layout=layout,
            secrets=Secrets(seed),
            round_number=number,
            attempt=1,
        )
        opening = Broadcast(number, 1, Model(layout, torch.zeros(draws)), "", MOMENT)
        vectors = chosen.vectors.reshape(len(world.clusters.members), draws)
        after = aggregate(opening, world.clusters, Perturbed(vectors), policy=policy, secrets=Secrets(seed))
        columns.append(after.vector.double().numpy())
    return np.stack(columns, axis=1)


def lower_bound(statistic_in: tuple[Floats, Floats], statistic_out: tuple[Floats, Floats]) -> float:
    """A lower bound on ε at `DELTA`, by the best threshold of a statistic, in either direction.

    Each pair holds rehearsals and draws. Clopper-Pearson, both bounds together at `CONFIDENCE`.
    """
    found = []
    for (rehearsed_in, drawn_in), (rehearsed_out, drawn_out), sign in (
        (statistic_in, statistic_out, 1),
        (statistic_out, statistic_in, -1),
    ):
        threshold = _best(sign * rehearsed_in, sign * rehearsed_out)
        hits, misses = (int((sign * drawn > threshold).sum()) for drawn in (drawn_in, drawn_out))
        found.append(_bound(hits, misses, len(drawn_in)))
    return max(found)


def _best(ours: Floats, theirs: Floats) -> float:
    thresholds = np.quantile(theirs, 1 - np.geomspace(2e-4, 0.9, 200))
    bounds = [_bound(int((ours > t).sum()), int((theirs > t).sum()), len(ours)) for t in thresholds]
    return float(thresholds[int(np.argmax(bounds))])


def _bound(hits: int, misses: int, total: int) -> float:
    tail = (1 - CONFIDENCE) / 2
    low = beta.ppf(tail, hits, total - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, misses + 1, total - misses)
    return math.log((low - DELTA) / high) if low > DELTA else 0.0


def total(rows: Floats) -> Floats:
    """The optimal statistic where both worlds are Gaussian."""
    return np.asarray(rows.sum(axis=1))


def seen(
    world: World, policy: Policy, rounds: int, seed: int, draws: int, statistic: Callable[[Floats], Floats] = total
) -> tuple[Floats, Floats]:
    """A statistic of rehearsals and of draws of one world; no two calls share a draw."""
    return (
        statistic(released(world, policy, rounds=rounds, draws=draws // 2, seed=seed)),
        statistic(released(world, policy, rounds=rounds, draws=draws, seed=seed + 1)),
    )


def epsilon(events: list[Event], name: str) -> float:
    [found] = [claim.epsilon for claim in account(events, DELTA) if claim.name == name]
    assert found is not None
    return found


# -- unconditional: one client rearranges the clusters, and everything moves ---------------------------------------


def tipped(side: float, policy: Policy) -> World:
    """Three clients at +C, three at -C, and one that holds nearly all the data and decides which side counts."""
    points = torch.tensor([[1.0], [1.0], [1.0], [-1.0], [-1.0], [-1.0], [side]]) * 5
    updates = updates_of(points, samples=[1, 1, 1, 1, 1, 1, 10_000_000])
    clipped = clip(updates, policy)
    found = cluster(clipped, policy=policy, layout=layout_of_size(1), previous=(), seed=1, round_number=1)
    return World(updates, found)


@SOME_OR_MANY
@pytest.mark.parametrize(("rounds", "tau"), [(1, 1.5), pytest.param(5, 4.0, marks=pytest.mark.torture)])
def test_the_unconditional_account_is_neither_exceeded_nor_idle(
    rounds: int, tau: float, draws: int, share: float
) -> None:
    policy = replace(POLICY, noise="calibrated", clip=1.0, tau=tau, sticky=False)
    one, two = tipped(1.0, policy), tipped(-1.0, policy)
    events = [one.event(policy)] * rounds
    ours, theirs = seen(one, policy, rounds, 10, draws), seen(two, policy, rounds, 20, draws)
    bound, claimed = lower_bound(ours, theirs), epsilon(events, "unconditional")
    assert share * claimed < bound <= claimed
    # what is hypothetical here is exceeded, which is why it is called so
    assert bound > epsilon(events, "sampled")


# -- sampled: the client is in its anchored cluster, or has left a gap ---------------------------------------------


def with_client(present: bool, *, mates: int, others: int) -> World:
    """A client at +C among mates at -C, beside a cluster of others; without it, its place is a gap."""
    points = [[5.0]] * present + [[-5.0]] * mates + [[0.3]] * others
    members = (tuple(range(mates + present)), tuple(range(mates + present, mates + present + others)))
    weight = (mates + 1) / (mates + 1 + others)
    clusters = Clusters(members, (weight, 1 - weight), (0.0, 0.0), 0.0, (mates + 1, others))
    return World(updates_of(torch.tensor(points)), clusters)


def likelihood_ratio(rows: Floats, *, rate: float, weight: float, base: float, tau: float) -> Floats:
    """The optimal statistic: log-likelihood with the client over that with a gap, summed over rounds."""
    x = rows - base  # what the mates' representative comes to

    def over_mates(shift: float) -> Floats:
        return np.asarray(np.log1p(rate * np.expm1((x * shift - shift * shift / 2) / tau**2)))

    return total(over_mates(2 * weight) - over_mates(weight))


@SOME_OR_MANY
@pytest.mark.parametrize(
    ("mates", "others", "rounds", "tau"),
    some_of([(1, 2, 1, 0.8), (1, 2, 3, 1.0), (4, 5, 5, 0.6)], [(1, 2, 3, 1.0)]),
)
def test_the_sampled_account_is_neither_exceeded_nor_idle(
    mates: int, others: int, rounds: int, tau: float, draws: int, share: float
) -> None:
    policy = replace(POLICY, k=2, noise="calibrated", clip=1.0, tau=tau, clustering="fixed", sticky=False)
    present = with_client(True, mates=mates, others=others)
    absent = with_client(False, mates=mates, others=others)
    weight = present.clusters.weights[0]
    base = -weight + 0.3 * (1 - weight)
    best = partial(likelihood_ratio, rate=1 / (mates + 1), weight=weight, base=base, tau=tau)
    ours, theirs = seen(present, policy, rounds, 30, draws, best), seen(absent, policy, rounds, 40, draws, best)
    claimed = epsilon([present.event(policy)] * rounds, "sampled")
    bound = lower_bound(ours, theirs)
    assert share * claimed < bound <= claimed
    assert bound < epsilon([present.event(policy)] * rounds, "unconditional")


@SOME_OR_MANY
def test_alike_clients_cannot_be_told_apart(draws: int, share: float) -> None:
    """The bound is no artefact of the test: where the client is like its mates, there is nothing to find."""
    policy = replace(POLICY, k=2, noise="calibrated", clip=1.0, tau=0.4, clustering="fixed", sticky=False)
    alike = World(updates_of(torch.full((4, 1), -5.0)), with_client(True, mates=1, others=2).clusters)
    ours, theirs = seen(alike, policy, 1, 50, draws), seen(alike, policy, 1, 60, draws)
    assert lower_bound(ours, theirs) < share / 5
