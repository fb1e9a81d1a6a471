"""LiRA: as good as can be where the best possible attack is known, finite always, refused with too few shadows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from disavow.audit.attackers import LossThreshold, OfflineLira, OnlineLira
from disavow.audit.difference import difference
from disavow.audit.game import Attacker, Handed, Scores, Shadows
from disavow.audit.roc import auc, tpr_at
from disavow.errors import ConfigError
from tests.audit.attackers.builders import game, halves, handed
from tests.refusals import refuses

BOTH: list[Attacker] = [OnlineLira(), OfflineLira()]


@pytest.mark.parametrize("attacker", BOTH)
@pytest.mark.parametrize("shadows", [32, 64, 128])
def test_it_is_as_good_as_the_best_attack_and_better_than_a_threshold(attacker: Attacker, shadows: int) -> None:
    seen = game(1.5, own=300, held_out=700, shadows=shadows, seed=2)
    scores, blunt = attacker.scores(seen), LossThreshold().scores(seen)
    interval, blunt_interval = auc(scores).interval, auc(blunt).interval
    assert interval is not None
    assert blunt_interval is not None
    assert float(special.ndtr(1.5 / math.sqrt(2))) in interval
    assert float(special.ndtr(1.5 / math.sqrt(2 * (1 + 3**2)))) in blunt_interval
    assert difference(scores, [blunt]).interval.low > 0.1


@pytest.mark.parametrize("attacker", BOTH)
def test_few_shadows_still_help(attacker: Attacker) -> None:
    seen = game(2.0, own=300, held_out=700, shadows=8, seed=3)
    assert difference(attacker.scores(seen), [LossThreshold().scores(seen)]).interval.low > 0.1


def test_the_tpr_at_few_false_positives_is_that_of_the_best_attack() -> None:
    found = tpr_at(OnlineLira().scores(game(3.0, own=1000, held_out=2000, shadows=128, seed=4)), 0.01)
    assert found.interval is not None
    assert float(special.ndtr(3 - special.ndtri(0.99))) in found.interval


@pytest.mark.parametrize("attacker", BOTH)
def test_records_that_nobody_held_look_like_the_others(attacker: Attacker) -> None:
    found = auc(attacker.scores(game(0.0, own=300, held_out=700, shadows=32, seed=5)))
    assert found.interval is not None
    assert 0.5 in found.interval


def test_online_notices_that_holding_a_record_lowers_its_confidence() -> None:
    """Offline looks on one side only, and is wrong about everyone."""
    seen = game(-2.0, own=300, held_out=700, shadows=64, seed=6)
    online, offline = (auc(attacker.scores(seen)).estimate for attacker in BOTH)
    assert online is not None
    assert offline is not None
    assert online > 0.9
    assert offline < 0.1


def small(shadows: int, seed: int = 7) -> Handed:
    """Five records, whose deviations differ."""
    rng = np.random.default_rng(seed)
    confidence = rng.normal(size=(shadows, 5)) * np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    return handed(np.array([1.0, 2.0]), np.array([-1.0, 0.0, 3.0]), Shadows(confidence, halves(shadows, 5)))


def all_of(scores: Scores) -> list[float]:
    return [*scores.present.tolist(), *scores.absent.tolist()]


@pytest.mark.parametrize(("shadows", "pooled"), [(4, True), (62, True), (64, False), (100, False)])
def test_gaussians_by_hand(shadows: int, pooled: bool) -> None:
    seen = small(shadows)
    phi = np.concatenate([seen.records.own, seen.records.held_out])
    fits = {}
    for side in (True, False):
        chosen = [seen.shadows.confidence[seen.shadows.held[:, i] == side, i] for i in range(5)]
        deviations = [values.std(ddof=1) for values in chosen]
        if pooled:
            deviations = [math.sqrt(np.mean(np.square(deviations)))] * 5  # every record has as many shadows
        fits[side] = [stats.norm(values.mean(), spread) for values, spread in zip(chosen, deviations, strict=True)]
    ratios = [fits[True][i].logpdf(phi[i]) - fits[False][i].logpdf(phi[i]) for i in range(5)]
    assert all_of(OnlineLira().scores(seen)) == pytest.approx(ratios)
    below = [fits[False][i].cdf(phi[i]) for i in range(5)]
    assert special.ndtr(all_of(OfflineLira().scores(seen))).tolist() == pytest.approx(below)


def test_sides_of_different_size_are_pooled_by_their_degrees_of_freedom() -> None:
    confidence = np.array([[0.0, 0.0], [2.0, 6.0], [7.0, 3.0], [9.0, 5.0], [11.0, 7.0]])
    held = np.array([[False, False], [False, False], [True, False], [True, True], [True, True]])
    scores = OfflineLira().scores(handed(np.array([1.0]), np.array([3.0]), Shadows(confidence, held)))
    variance = (2.0 + 18.0) / (1 + 2)
    assert all_of(scores) == pytest.approx([0.0, 0.0])
    scores = OfflineLira().scores(handed(np.array([2.0]), np.array([5.0]), Shadows(confidence, held)))
    assert all_of(scores) == pytest.approx([1 / math.sqrt(variance), 2 / math.sqrt(variance)])


@pytest.mark.parametrize("attacker", BOTH)
@pytest.mark.parametrize("shadows", [4, 64])
def test_scores_are_finite_however_sure_the_models_are(attacker: Attacker, shadows: int) -> None:
    held = halves(shadows, 6)
    alike = np.where(held, 80.0, -80.0)  # no variance at all
    phi = np.array([80.0, 0.0, -80.0])
    scores = attacker.scores(handed(phi, phi, Shadows(alike, held)))
    assert np.isfinite(all_of(scores)).all()
    assert scores.present[0] > scores.present[1] > scores.present[2]


@pytest.mark.parametrize("attacker", BOTH)
def test_offline_and_online_do_not_look_at_who_took_part(attacker: Attacker) -> None:
    seen = game(1.0, own=20, held_out=30, shadows=16, seed=8)
    every = np.concatenate([seen.records.own, seen.records.held_out])
    assert all_of(attacker.scores(seen)) == all_of(attacker.scores(handed(every[:7], every[7:], seen.shadows)))


# ---- refusals -------------------------------------------------------------------------------------------------


def flags(*columns: str) -> Shadows:
    held = np.array([[flag == "x" for flag in column] for column in columns]).T
    return Shadows(np.arange(held.size, dtype=np.float64).reshape(held.shape), held)


def test_online_needs_two_shadows_with_and_without_each_record() -> None:
    records = handed(np.zeros(1), np.zeros(2), flags("xx..", "x...", "...."))
    with refuses(ConfigError, "2 of 3", "least: 0"):
        OnlineLira().scores(records)
    assert np.isfinite(all_of(OfflineLira().scores(records))).all()


@pytest.mark.parametrize("attacker", BOTH)
def test_both_need_two_shadows_without_each_record(attacker: Attacker) -> None:
    with refuses(ConfigError, "without", "1 of 3", "least: 1"):
        attacker.scores(handed(np.zeros(1), np.zeros(2), flags("xx..", "x.x.", "xxx.")))


@pytest.mark.parametrize("attacker", BOTH)
def test_shadows_of_other_records_are_refused(attacker: Attacker) -> None:
    with refuses(ConfigError, "4 records", "(4, 3)"):
        attacker.scores(handed(np.zeros(2), np.zeros(2), flags("xx..", "x.x.", "x..x")))


@pytest.mark.parametrize("attacker", BOTH)
def test_no_shadows_at_all_are_refused(attacker: Attacker) -> None:
    with refuses(ConfigError, "3 of 3", "least: 0"):
        attacker.scores(handed(np.zeros(1), np.zeros(2)))


@pytest.mark.parametrize("attacker", BOTH)
def test_shadows_that_diverged_are_refused(attacker: Attacker) -> None:
    shadows = flags("xx..", "x.x.", "x..x")
    shadows.confidence[2, 1] = np.nan
    with refuses(ConfigError, "1 of 4"):
        attacker.scores(handed(np.zeros(1), np.zeros(2), shadows))
