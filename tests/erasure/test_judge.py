"""② The judge: pure, so that it can be held against the definition on any evidence at all."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.domain import ClusterEvidence, RebuiltEvidence, Verdict, VerdictKind
from disavow.domain.strategies import register
from disavow.erasure.judge import CRITERIA, Criterion, judge
from disavow.errors import StrategyError
from tests.refusals import refuses
from tests.rounds.builders import POLICY, PROPERTY

DENIABLE = Verdict(VerdictKind.DENIABLE)
LEAVER = 7


def rollback(number: int) -> Verdict:
    return Verdict(VerdictKind.ROLLBACK, number)


def counted(
    survivors: int,
    *,
    number: int = 1,
    spread: float = 1.0,
    delta: float = 1.0,
    ratio: float | None = 1.0,
    leavers: tuple[int, ...] = (LEAVER,),
) -> ClusterEvidence:
    return ClusterEvidence(number, delta, spread, survivors, ratio, leavers)


def test_nobody_is_deniable_in_a_rebuilt_round() -> None:
    assert judge([counted(9)], POLICY) == DENIABLE
    assert judge([counted(9), RebuiltEvidence(4)], POLICY) == rollback(4)
    assert judge([RebuiltEvidence(4), RebuiltEvidence(2)], POLICY) == rollback(2)


def test_without_evidence_there_is_nothing_to_deny() -> None:
    assert judge([], POLICY) == DENIABLE


@pytest.mark.parametrize(
    ("survivors", "verdict"), [(1, rollback(1)), (2, DENIABLE), (3, DENIABLE), (0, rollback(1))]
)
def test_a_cluster_needs_x_survivors_and_x_are_enough(survivors: int, verdict: Verdict) -> None:
    assert judge([counted(survivors)], POLICY) == verdict


@pytest.mark.parametrize(("survivors", "verdict"), [(3, rollback(1)), (4, DENIABLE)])
def test_with_three_representatives_two_more_are_needed(survivors: int, verdict: Verdict) -> None:
    assert judge([counted(survivors)], replace(POLICY, k=5, representatives=3)) == verdict


@pytest.mark.parametrize(("spread", "verdict"), [(0.0, DENIABLE), (1.0, DENIABLE), (1.0000001, rollback(1))])
def test_a_cluster_may_be_as_wide_as_delta_and_no_wider(spread: float, verdict: Verdict) -> None:
    assert judge([counted(9, spread=spread)], POLICY) == verdict


def test_the_earliest_broken_round_wins_whatever_the_order() -> None:
    holding = {7: False, 2: True, 4: False, 9: False, 1: True}
    found = [counted(5 * holds, number=number) for number, holds in holding.items()]
    for seed in range(10):
        random.Random(seed).shuffle(found)
        assert judge(iter(found), POLICY) == rollback(4)


# -- odds over all rounds ------------------------------------------------------------------------------------------


def test_the_first_round_that_takes_the_odds_beyond_the_limit_is_undone() -> None:
    """γ = exp(S²/2 + 1.645·S) with S² the sum of squared ratios: 8.5 after one round of ratio 1, 27.8 after two."""
    found = [counted(9, number=number) for number in (3, 5, 8)]
    assert judge(found, POLICY) == DENIABLE
    for limit, verdict in ((8.0, rollback(3)), (9.0, rollback(5)), (30.0, rollback(8)), (80.0, DENIABLE)):
        assert judge(reversed(found), replace(POLICY, odds=limit)) == verdict
    assert math.exp(0.5 + 1.645) == pytest.approx(8.5, abs=0.1)


def test_each_leaver_has_odds_of_its_own() -> None:
    apart = [counted(9, number=1, leavers=(1,)), counted(9, number=2, leavers=(2,))]
    together = [counted(9, number=1, leavers=(1, 2)), counted(9, number=2, leavers=(2,))]
    assert judge(apart, replace(POLICY, odds=10.0)) == DENIABLE
    assert judge(together, replace(POLICY, odds=10.0)) == rollback(2)


def test_without_gaussian_noise_no_limit_holds() -> None:
    assert judge([counted(9, ratio=None)], POLICY) == DENIABLE
    assert judge([counted(9, ratio=None)], replace(POLICY, odds=1e30)) == rollback(1)
    assert judge([counted(9, ratio=0.0)], replace(POLICY, odds=1.01)) == DENIABLE


cluster_evidence = st.builds(
    ClusterEvidence,
    round=st.integers(1, 6),
    delta=st.sampled_from([0.5, 1.0, 2.0]),
    spread=st.sampled_from([0.25, 1.0, 3.0]),
    survivors=st.integers(0, 6),
    ratio=st.sampled_from([None, 0.0, 0.5, 2.0]),
    leavers=st.sets(st.integers(1, 3), min_size=1).map(tuple),
)


@PROPERTY
@given(
    st.lists(cluster_evidence, max_size=6, unique_by=lambda each: each.round),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from([None, 2.0, 100.0]),
)
def test_it_is_the_definition_word_for_word(
    found: list[ClusterEvidence], x: int, drawn: int, odds: float | None
) -> None:
    """Round by round from the first, as a person would go through it."""
    expected, squares = DENIABLE, dict.fromkeys((1, 2, 3), 0.0)
    for cluster in sorted(found, key=lambda each: each.round):
        broken = cluster.survivors < x + drawn - 1 or cluster.spread > cluster.delta
        for leaver in cluster.leavers:
            squares[leaver] += math.inf if cluster.ratio is None else cluster.ratio**2
            root = math.sqrt(squares[leaver])
            broken = broken or (odds is not None and root**2 / 2 + 1.645 * root > math.log(odds))
        if broken:
            expected = rollback(cluster.round)
            break
    policy = replace(POLICY, k=9, x=x, representatives=drawn, odds=odds)
    assert judge(found, policy) == expected


@PROPERTY
@given(st.lists(cluster_evidence, min_size=1, max_size=6), st.integers(1, 5))
def test_asking_for_more_survivors_never_makes_anything_deniable(found: list[ClusterEvidence], x: int) -> None:
    lax, strict = (judge(found, replace(POLICY, k=9, x=survivors)).round or 99 for survivors in (x, x + 1))
    assert strict <= lax


@pytest.mark.parametrize("result", [3, None, [2], ["1"], [[1]]], ids=repr)
def test_what_names_no_round_that_was_shown_is_a_mistake_of_the_criterion(
    monkeypatch: pytest.MonkeyPatch, result: Any
) -> None:
    monkeypatch.setattr(CRITERIA, "_loaded", dict(CRITERIA._loaded))

    @register
    class Odd(Criterion):
        name = "odd one"

        def broken(self, clusters: Any, policy: Any) -> Any:
            return result

    with refuses(StrategyError, 'criterion "odd one"', "broken"):
        judge([counted(9)], POLICY)


def test_a_registered_criterion_may_yield_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CRITERIA, "_loaded", dict(CRITERIA._loaded))

    @register
    class Strict(Criterion):
        name = "strict"

        def broken(self, clusters: Any, policy: Any) -> Any:
            yield from (each.round for each in clusters)

    verdict = judge([counted(9, number=4), counted(9, number=3)], POLICY)
    assert verdict == rollback(3)
    assert verdict.criterion == "strict"
