"""The lower bound on ε that attackers show."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from disavow import config
from disavow.audit.epsilon import EpsilonBound, epsilon_bound, lower_bound
from disavow.audit.game import Scores
from disavow.domain import Policy
from disavow.privacy.gaussian import epsilon_of

POLICY = config.from_values({"noise": {"mode": "calibrated", "clip": 0.5, "tau": 1.0}}, source="tests").policy


def gaussians(shift: float, count: int, seed: int) -> Scores:
    """What an optimal attacker sees of a Gaussian mechanism of that shift."""
    rng = np.random.default_rng(seed)
    return Scores(rng.normal(shift, 1, count), rng.normal(0, 1, count))


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0, 3.0])
def test_it_never_exceeds_what_the_mechanism_costs(shift: float) -> None:
    true = epsilon_of(1e-5, shift)
    assert all(lower_bound(gaussians(shift, 2_000, seed), 1e-5, 0.999) <= true for seed in range(20))


def test_it_is_not_idle() -> None:
    assert lower_bound(gaussians(3.0, 100_000, 1), 1e-5, 0.999) > epsilon_of(1e-5, 3.0) / 3


def test_always_right_is_bounded_by_how_many_were_asked() -> None:
    few, many = (Scores(np.ones(count), np.zeros(count)) for count in (32, 3_200))
    assert 0.3 < lower_bound(few, 1e-5, 0.999) < lower_bound(many, 1e-5, 0.999) < math.log(1_600)


def test_an_attacker_who_is_sure_of_the_absent_counts_too() -> None:
    """Few present worlds look like absent ones, but no absent one like a present: the question from below."""
    present = np.concatenate([np.full(1_000, 1.0), np.full(1_000, 0.0)])
    assert lower_bound(Scores(present, np.zeros(2_000)), 1e-5, 0.999) > 3.5
    assert lower_bound(Scores(np.ones(2_000), 1 - present), 1e-5, 0.999) > 3.5


def test_nothing_is_shown_by_one_unit() -> None:
    assert lower_bound(Scores(np.ones(1), np.zeros(1)), 1e-5, 0.999) == 0


def test_it_stands_beside_the_account_of_the_same_rounds() -> None:
    scores = {"weak": gaussians(0.0, 100, 1), "strong": Scores(np.ones(100), np.zeros(100))}
    bound = epsilon_bound(scores, POLICY, rounds=4, delta=1e-5)
    assert bound is not None
    assert bound.attacker == "strong"
    assert bound.account == pytest.approx(epsilon_of(1e-5, 2.0))
    assert bound.consistent
    assert not EpsilonBound("x", 2.0, 1.0, 1e-5).consistent


@pytest.mark.parametrize("mode", ["paper", "none"])
def test_noise_without_an_account_has_none(mode: str) -> None:
    policy: Policy = replace(POLICY, noise=mode)
    assert epsilon_bound({"any": gaussians(1.0, 10, 1)}, policy, rounds=1, delta=1e-5) is None
