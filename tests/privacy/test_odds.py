"""Odds over all rounds against the best attacker: whoever knows all updates and sees all models.

A long vector is many worlds side by side: coordinates are independent, so that one call of the product's own
`aggregate` draws the noise of thousands of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from disavow.domain import Policy
from disavow.privacy import gaussian
from disavow.privacy.odds import least_confidence, ratio_for, sigma_for
from disavow.proof.bounds import Bounds, bounds_of, log10_odds, total_ratio, within_odds
from disavow.proof.noise import logged_tau
from disavow.rounds.aggregate import aggregate
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import Clusters
from disavow.rounds.perturb import Perturbed
from disavow.rounds.randomness import Secrets
from disavow.rounds.vectors import Model
from tests.rounds.builders import MOMENT, POLICY, PROPERTY, layout_of_size

Floats = npt.NDArray[np.float64]

WORLDS = 20_000
FIVE_OF_A_HUNDRED = float(binom.ppf(1 - 1e-6, WORLDS, 0.05)) / WORLDS
"""What a share of 5 % comes to in so many worlds, but for one test in a million."""

SENSITIVITY = replace(POLICY, noise="sensitivity", sigma=3.0, statistics="drawn")

coordinate = st.floats(-2, 2).map(lambda value: round(value, 3))
points = st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=5)


def spread_of(members: Floats) -> float:
    return float(max(np.linalg.norm(one - other) for one in members for other in members))


def seen(clusters: Sequence[Floats], weights: Sequence[float], policy: Policy, *, number: int) -> Floats:
    """The step of the model, two numbers in every world, where the first s members of each cluster were drawn."""
    spreads = tuple(map(spread_of, clusters))
    steps = torch.stack(
        [torch.from_numpy(members[: policy.representatives].mean(axis=0)).repeat(WORLDS) for members in clusters]
    )
    made = Clusters(
        members=tuple((at,) for at in range(len(clusters))),
        weights=tuple(weights),
        spreads=spreads,
        delta=max(spreads),
        capacities=tuple(map(len, clusters)),
    )
    opening = Broadcast(number, 1, Model(layout_of_size(2 * WORLDS), torch.zeros(2 * WORLDS)), "digest", MOMENT)
    after = aggregate(opening, made, Perturbed(steps), policy=policy, secrets=Secrets(11))
    return after.vector.double().numpy().reshape(WORLDS, 2)


def evidence(
    step: Floats, clusters: Sequence[Floats], weights: Sequence[float], tau: float, *, instead: int, drawn: int
) -> Floats:
    """How much better the leaver, the first of the first cluster, explains each step than another would: ln."""
    mean = sum(weight * members[:drawn].mean(axis=0) for weight, members in zip(weights, clusters, strict=True))
    moved = weights[0] * (clusters[0][instead] - clusters[0][0]) / drawn
    with_leaver, without = step - mean, step - mean - moved
    return np.asarray(((without**2).sum(axis=1) - (with_leaver**2).sum(axis=1)) / (2 * tau * tau))


@settings(PROPERTY, max_examples=15)
@given(
    groups=st.lists(points, min_size=1, max_size=4),
    shares=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    drawn=st.integers(1, 2),
    rounds=st.integers(1, 6),
    mode=st.sampled_from(["sensitivity", "paper"]),
)
def test_the_best_attacker_stays_within_the_odds_of_all_rounds(
    groups: list[list[tuple[float, float]]], shares: list[int], drawn: int, rounds: int, mode: str
) -> None:
    clusters = [np.array(each) for each in groups]
    weights = [share / sum(shares[: len(clusters)]) for share in shares[: len(clusters)]]
    measured = [(weight, spread_of(members)) for weight, members in zip(weights, clusters, strict=True)]
    policy = replace(SENSITIVITY, noise=mode, representatives=drawn, sigma=3.0)
    if mode == "paper":  # whose noise is added to each cluster: the aggregate has the same from one Gaussian of τ
        tau = logged_tau(policy, measured)
        policy = replace(policy, noise="calibrated", clip=100.0, tau=tau or None)
    tau = logged_tau(policy, measured)
    if tau <= 0:
        return
    # a member that was drawn beside the leaver cannot stand in for it
    others = range(drawn, len(clusters[0]))
    instead = max(others, key=lambda at: float(np.linalg.norm(clusters[0][at] - clusters[0][0])))
    found = np.zeros(WORLDS)
    for number in range(1, rounds + 1):
        step = seen(clusters, weights, policy, number=number)
        found += evidence(step, clusters, weights, tau, instead=instead, drawn=drawn)
    each = bounds_of(weight=weights[0], spread=measured[0][1], tau=tau, representatives=drawn)
    claimed = log10_odds(total_ratio([each] * rounds))
    assert claimed is not None
    exceeded = np.mean(found > claimed * math.log(10) + 1e-3)  # the model is rounded to float32
    assert exceeded <= FIVE_OF_A_HUNDRED
    if mode == "sensitivity":
        assert each.ratio is not None
        assert each.ratio <= (1 + 1e-9) / 3.0


@pytest.mark.parametrize(("odds", "rounds", "drawn"), [(10.0, 50, 1), (10.0, 10, 5), (2.0, 4, 2)])
def test_odds_are_attained_by_the_client_that_is_worst_off(odds: float, rounds: int, drawn: int) -> None:
    """A leaver at one end of the widest cluster, all others at the other end: neither exceeded nor idle."""
    widest, other = [(1.0, 0.0), *[(-1.0, 0.0)] * (drawn + 1)], [(0.5, 0.5)] * drawn + [(0.4, 0.5)]
    clusters = [np.array(widest), np.array(other)]
    weights = [0.5, 0.5]
    policy = replace(SENSITIVITY, representatives=drawn, sigma=sigma_for(odds, rounds))
    tau = logged_tau(policy, [(0.5, 2.0), (0.5, spread_of(clusters[1]))])
    found = np.zeros(WORLDS)
    for number in range(1, rounds + 1):
        step = seen(clusters, weights, policy, number=number)
        found += evidence(step, clusters, weights, tau, instead=drawn, drawn=drawn)
    exceeded = np.mean(found > math.log(odds))
    assert 0.04 <= exceeded <= FIVE_OF_A_HUNDRED


def test_where_ratios_depend_on_earlier_noise_the_odds_are_a_little_less_sure() -> None:
    """The worst dependence: clients that become alike once the evidence has exceeded the odds."""
    generator, steps = np.random.default_rng(5), 600
    ratio = ratio_for(10.0)
    each = ratio / math.sqrt(steps)
    found, running = np.zeros(WORLDS), np.ones(WORLDS, dtype=bool)
    for _ in range(steps):
        found += running * (each * each / 2 + each * generator.standard_normal(WORLDS))
        running &= found <= math.log(10)
    exceeded = float(np.mean(found > math.log(10)))
    doubtful = 1 - least_confidence(ratio)
    assert exceeded > FIVE_OF_A_HUNDRED
    assert doubtful * 0.85 <= exceeded <= doubtful + 4 * math.sqrt(doubtful / WORLDS)


@pytest.mark.parametrize("ratio", [0.0, 1e-6, 0.5, 1.0, 3.0, 30.0, 1e3])
def test_whatever_ratios_depend_on_nine_of_ten_draws_keep_to_the_odds(ratio: float) -> None:
    assert 0.9 - 1e-4 <= least_confidence(ratio) <= 0.95 + 1e-4


@given(st.floats(1.001, 1e12), st.integers(1, 100_000))
def test_the_noise_for_odds_keeps_to_them_and_hardly_less_does(odds: float, rounds: int) -> None:
    sigma = sigma_for(odds, rounds)
    # as a verifier adds ratios up, round by round, in a short case
    few = min(rounds, 200)
    scaled = total_ratio([Bounds(1.0, math.sqrt(rounds / few) / sigma)] * few)
    assert within_odds(scaled, odds)
    assert not within_odds(math.sqrt(rounds) / (sigma * (1 - 1e-6) - 2.5e-4), odds) or sigma <= 3e-4


@given(
    st.lists(st.tuples(st.floats(1e-3, 1), st.floats(0, 10)), min_size=1, max_size=20),
    st.floats(0.1, 100),
    st.integers(1, 9),
)
def test_no_ratio_is_above_one_over_sigma(clusters: list[tuple[float, float]], sigma: float, drawn: int) -> None:
    tau = logged_tau(replace(SENSITIVITY, sigma=sigma, representatives=drawn), clusters)
    for weight, spread in clusters:
        ratio = bounds_of(weight=weight, spread=spread, tau=tau, representatives=drawn).ratio
        assert ratio is not None
        assert ratio <= (1 + 1e-9) / sigma


# -- draws that are kept, and noise in a subspace: why neither is a setting ------------------------------------


def hockey_stick(blocks: int, length: int, *, rate: float, ratio: float, odds: float) -> float:
    """E of (1 - γ·p₀/p₁)₊ with the client in the draw; who is drawn stays so for `length` rounds."""
    generator = np.random.default_rng(3)
    total = np.zeros(5 * WORLDS)
    for _ in range(blocks):
        drawn = generator.random(total.shape) < rate
        # the sum over the rounds of a block says all there is: a Gaussian of shift √length·ratio
        shift = ratio * math.sqrt(length)
        x = generator.standard_normal(total.shape) + shift * drawn
        total += np.log1p(rate * np.expm1(shift * x - shift * shift / 2))
    return float(np.mean(np.maximum(0.0, 1 - odds * np.exp(-total))))


def test_a_draw_that_is_kept_for_several_rounds_says_more_about_who_was_in_it() -> None:
    """Same rounds, same noise: one draw for all of them is worse than one in each; both are within the odds."""
    rounds, rate, odds = 48, 0.1, 2.0
    ratio = 1.0 / math.sqrt(rounds)
    fresh, kept, for_ever = (
        hockey_stick(rounds // length, length, rate=rate, ratio=ratio, odds=odds) for length in (1, 12, rounds)
    )
    assert fresh < kept < for_ever
    assert for_ever <= gaussian.delta_of(math.log(odds), 1.0)


@pytest.mark.parametrize("dimension", [30, 100, 300])
def test_noise_in_a_random_subspace_hurts_as_much_at_the_same_odds_and_speed(dimension: int) -> None:
    """To second order, noise of covariance S costs tr(H·S)/2: the subspace has shorter noise, and bigger steps."""
    generator, size, rank = np.random.default_rng(7), 600, 40
    curved = generator.standard_normal((size, rank))
    hessian = curved @ curved.T
    difference = generator.standard_normal(size)  # of two updates: what a spread is made of
    tau = np.linalg.norm(difference)
    costs = []
    for _ in range(20):
        basis = np.linalg.qr(generator.standard_normal((size, dimension)))[0]
        projected = np.linalg.norm(basis.T @ difference)  # the spread within the subspace, so the noise there
        speed = size / dimension  # how much longer steps must be: a projected gradient is so much slower
        costs.append((speed * projected) ** 2 * np.trace(basis.T @ hessian @ basis))
    assert np.mean(costs) == pytest.approx(tau**2 * np.trace(hessian), rel=0.1)
