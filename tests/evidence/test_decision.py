"""What the first box says follows from the facts, and never promises more than they do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from disavow.domain import Cost, ErasureRequest, Policy, RequestState, Verdict, VerdictKind
from disavow.evidence.decision import Outcome, decision_of
from disavow.evidence.facts import Facts
from tests.rounds.builders import MOMENT

DENIABLE, NEVER = Verdict(VerdictKind.DENIABLE), Verdict(VerdictKind.NEVER_PRESENT)
FROM_1, FROM_3 = Verdict(VerdictKind.ROLLBACK, round=1), Verdict(VerdictKind.ROLLBACK, round=3)
LATER = MOMENT + timedelta(days=20)

FACTS = Facts(
    run="first",
    run_id="0" * 32,
    made_at=MOMENT + timedelta(days=25),
    made_by="tests",
    request=ErasureRequest(
        1, None, MOMENT, RequestState.ANSWERED, DENIABLE, Cost(), answered_at=MOMENT + timedelta(days=1)
    ),
    named=True,
    policy=Policy(),
    in_model=True,
    trained_out_at=None,
    purge_due=None,
    at_risk=None,
    purge_cost=None,
    forecast=None,
    no_forecast="",
    model="0" * 64,
    released=0,
    superseded=0,
    proof=None,
    interim=None,
    no_proof="it has not been answered",
    key=None,
    keys=None,
    checkpoint=None,
)


def answered(verdict: Verdict, *, rounds: int = 0, approximate: bool = False) -> ErasureRequest:
    return replace(FACTS.request, verdict=verdict, cost=Cost(rounds=rounds), approximate=approximate)


@pytest.mark.parametrize(
    ("facts", "outcome", "end"),
    [
        (
            FACTS,
            Outcome.GRANTED,
            "The model was kept as it is, not trained again.",
        ),
        (
            replace(FACTS, purge_due=LATER),
            Outcome.INTERIM,
            "by 26 May 2024; that has not happened yet.",
        ),
        (
            replace(FACTS, in_model=False, trained_out_at=LATER),
            Outcome.GRANTED,
            "On 26 May 2024 the model was trained again without it.",
        ),
        (
            replace(FACTS, in_model=False, request=answered(FROM_1, rounds=4)),
            Outcome.GRANTED,
            "The model was trained again without it.",
        ),
        (
            replace(FACTS, request=answered(FROM_3, rounds=2)),
            Outcome.GRANTED,
            "without it from round 3 on; what it learned before was kept.",
        ),
        (
            replace(FACTS, in_model=False, request=answered(FROM_1)),
            Outcome.GRANTED,
            "taken back to before round 1, and not trained again.",
        ),
        (
            replace(FACTS, in_model=False, request=answered(FROM_1, rounds=2, approximate=True)),
            Outcome.GRANTED,
            "The model was rebuilt approximately without it.",
        ),
        (
            replace(FACTS, in_model=False, request=answered(NEVER)),
            Outcome.GRANTED,
            "Nothing of it was in the model, which was not changed.",
        ),
    ],
)
def test_each_answer_in_one_sentence(facts: Facts, outcome: Outcome, end: str) -> None:
    found = decision_of(facts)
    assert (found.outcome, found.sentence.endswith(end)) == (outcome, True), found.sentence


def test_no_answer_is_called_complete_that_is_not() -> None:
    for verdict, in_model, approximate, records in product(
        (DENIABLE, FROM_1, FROM_3), (True, False), (True, False), (None, 2)
    ):
        request = replace(answered(verdict, rounds=1, approximate=approximate), records=records)
        found = decision_of(replace(FACTS, request=request, in_model=in_model))
        assert ("complete" in found.sentence) == (not in_model and not approximate)
        assert any("never used" in limit for limit in found.not_promised)
        assert any("operator is honest" in limit for limit in found.not_promised)


@pytest.mark.parametrize("state", [state for state in RequestState if state is not RequestState.ANSWERED])
def test_nothing_that_is_not_answered_is_called_granted(state: RequestState) -> None:
    request = replace(FACTS.request, state=state, answered_at=None)
    found = decision_of(replace(FACTS, request=request, in_model=False))
    assert "ranted" not in found.sentence
    assert found.outcome in (Outcome.OPEN, Outcome.CLOSED)
    assert any("There is no proof" in meaning for meaning in found.meaning)


def test_what_speaks_against_a_promise_is_said() -> None:
    found = decision_of(replace(FACTS, purge_due=LATER, at_risk="fewer than k are left"))
    assert "It is not certain that this is done in time: fewer than k are left." in found.meaning
    remark = replace(FACTS, request=replace(FACTS.request, remark="retrained, not reproducible"))
    assert "Remark in the register: retrained, not reproducible." in decision_of(remark).meaning
