"""② The judge: pure, so that it can be held against the definition on any evidence at all."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.domain import ClusterEvidence, RebuiltEvidence, SlotEvidence, Verdict, VerdictKind
from disavow.erasure.judge import CRITERIA, judge
from tests.federation.builders import PROPERTY

DENIABLE = Verdict(VerdictKind.DENIABLE)


def rollback(number: int) -> Verdict:
    return Verdict(VerdictKind.ROLLBACK, number)


def counted(
    survivors: int, *, lost: int = 1, number: int = 1, spread: float = 1.0, delta: float = 1.0
) -> ClusterEvidence:
    """A cluster as the criterion `cluster` sees it."""
    states = (SlotEvidence(True),) * survivors + (SlotEvidence(False),) * lost
    return ClusterEvidence(number, delta, spread, states)


def near(*slots: tuple[bool, int], number: int = 1, spread: float = 1.0, delta: float = 1.0) -> ClusterEvidence:
    """A cluster as the criterion `neighbourhood` sees it: who survives, and how many neighbours do."""
    return ClusterEvidence(number, delta, spread, tuple(SlotEvidence(*slot) for slot in slots))


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
def test_nobody_is_deniable_in_a_rebuilt_round(criterion: str) -> None:
    holds = near((True, 9), (False, 9), number=1)
    assert judge([holds], x=1, criterion=criterion) == DENIABLE
    assert judge([holds, RebuiltEvidence(4)], x=1, criterion=criterion) == rollback(4)
    assert judge([RebuiltEvidence(4), RebuiltEvidence(2)], x=1, criterion=criterion) == rollback(2)


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
@pytest.mark.parametrize("x", [1, 2, 100])
def test_without_evidence_there_is_nothing_to_deny(criterion: str, x: int) -> None:
    assert judge([], x=x, criterion=criterion) == DENIABLE


@pytest.mark.parametrize(
    ("survivors", "verdict"), [(1, rollback(1)), (2, DENIABLE), (3, DENIABLE), (0, rollback(1))]
)
def test_a_cluster_needs_x_survivors_and_x_are_enough(survivors: int, verdict: Verdict) -> None:
    assert judge([counted(survivors)], x=2) == verdict


@pytest.mark.parametrize(("spread", "verdict"), [(0.0, DENIABLE), (1.0, DENIABLE), (1.0000001, rollback(1))])
def test_a_cluster_may_be_as_wide_as_delta_and_no_wider(spread: float, verdict: Verdict) -> None:
    assert judge([counted(9, spread=spread)], x=2) == verdict


def test_a_cluster_that_lost_nobody_is_judged_like_any_other() -> None:
    """The judge trusts whoever gathered the evidence: what it is shown counts."""
    assert judge([counted(1, lost=0)], x=2) == rollback(1)


@pytest.mark.parametrize(
    ("slot", "verdict"),
    [
        ((True, 1), DENIABLE),  # itself counts while it survives
        ((True, 0), rollback(1)),
        ((False, 2), DENIABLE),
        ((False, 1), rollback(1)),  # the leaver is no generator of its own model any more
    ],
)
def test_a_slot_needs_x_who_survive_itself_included(slot: tuple[bool, int], verdict: Verdict) -> None:
    enough = (True, 5)
    assert judge([near(enough, slot, enough)], x=2, criterion="neighbourhood") == verdict


def test_the_slot_of_a_leaver_must_hold_like_every_other() -> None:
    """Any slot may have been the representative, and the leaver's most of all."""
    assert judge([near((True, 9), (True, 9), (False, 0))], x=1, criterion="neighbourhood") == rollback(1)


def test_neighbourhoods_do_not_ask_how_wide_the_cluster_is() -> None:
    wide = near((True, 5), (False, 5), spread=9.0, delta=1.0)
    assert judge([wide], x=2, criterion="neighbourhood") == DENIABLE
    assert judge([wide], x=1) == rollback(1)


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
def test_the_earliest_broken_round_wins_whatever_the_order(criterion: str) -> None:
    def evidence(number: int, holds: bool) -> ClusterEvidence:
        return near((holds, 5 * holds), (holds, 5 * holds), number=number)

    told = [evidence(7, False), evidence(2, True), evidence(4, False), evidence(9, False), evidence(1, True)]
    for _ in range(10):
        random.Random(_).shuffle(told)
        assert judge(iter(told), x=2, criterion=criterion) == rollback(4)


def test_an_unknown_criterion_is_no_verdict() -> None:
    with pytest.raises(KeyError):
        judge([], x=1, criterion="gut feeling")


slot_evidence = st.builds(SlotEvidence, st.booleans(), st.integers(0, 5))
cluster_evidence = st.builds(
    ClusterEvidence,
    round=st.integers(1, 6),
    delta=st.sampled_from([0.5, 1.0, 2.0]),
    spread=st.sampled_from([0.25, 1.0, 3.0]),
    slots=st.lists(slot_evidence, min_size=1, max_size=6).map(tuple),
)


@PROPERTY
@given(st.lists(cluster_evidence, max_size=6), st.integers(1, 5), st.sampled_from(sorted(CRITERIA)))
def test_it_is_the_definition_word_for_word(told: list[ClusterEvidence], x: int, criterion: str) -> None:
    """Round by round from the first, as a person would go through it."""
    expected = DENIABLE
    for number in (6, 5, 4, 3, 2, 1):
        for cluster in told:
            if cluster.round != number:
                continue
            if criterion == "cluster":
                alive = len([slot for slot in cluster.slots if slot.survives])
                broken = alive < x or cluster.spread > cluster.delta
            else:
                counts = [(slot.surviving_neighbours or 0) + (1 if slot.survives else 0) for slot in cluster.slots]
                broken = min(counts) < x
            if broken:
                expected = rollback(number)
    assert judge(told, x=x, criterion=criterion) == expected


@PROPERTY
@given(st.lists(cluster_evidence, min_size=1, max_size=6), st.integers(1, 5), st.sampled_from(sorted(CRITERIA)))
def test_asking_for_more_survivors_never_makes_anything_deniable(
    told: list[ClusterEvidence], x: int, criterion: str
) -> None:
    lax, strict = (judge(told, x=asked, criterion=criterion).round or 99 for asked in (x, x + 1))
    assert strict <= lax
