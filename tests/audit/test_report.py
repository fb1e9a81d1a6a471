"""What an audit says in words, from the numbers it found."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from disavow.audit.difference import Difference
from disavow.audit.forging import Histories
from disavow.audit.game import Scores, Stage
from disavow.audit.intervals import Interval
from disavow.audit.power import smallest_seen
from disavow.audit.report import Attacked, Audit, Found, GivenAway, median, simultaneous
from disavow.audit.roc import Measure
from disavow.cli.audit import lines
from disavow.domain import ErasureRequest, RequestState, Verdict, VerdictKind

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
DENIABLE = Verdict(VerdictKind.DENIABLE)
ROLLBACK = Verdict(VerdictKind.ROLLBACK, 1)
NOTHING = Measure.missing("it is a test")


def scores(present: float, absent: float) -> Scores:
    return Scores(np.array([present]), np.array([absent]))


ATTACKED = Attacked(scores(1.0, 0.0), NOTHING, (NOTHING, NOTHING), NOTHING)


def found(name: str, low: float, high: float) -> Found:
    return Found(
        attacker=name,
        unit="record",
        stages=dict.fromkeys(Stage, ATTACKED),
        retrainings=8,
        difference=Difference((low + high) / 2, Interval(low, high)),
    )


SAME = found("same", -0.1, 0.2)
MORE = found("more", 0.05, 0.25)
LESS = found("less", -0.4, -0.2)


def audit(
    *attackers: Found, verdict: Verdict | None = ROLLBACK, detect: float | None = None, needed: int | None = None
) -> Audit:
    return Audit(
        client="ada",
        rounds=3,
        answer=ErasureRequest(1, None, MOMENT, RequestState.ANSWERED, verdict),
        moved=0.5,
        verdicts={str(verdict): 8},
        own=60,
        held_out=60,
        worlds=64,
        shadows=4,
        found=attackers,
        forged=(),
        left_out=0,
        thinned=0,
        histories=Histories(8, 1.0, 1.0, ()),
        given_away=GivenAway(
            "both", dict.fromkeys(Stage, ATTACKED), 6, 8, dict.fromkeys((Stage.SERVED, Stage.RETRAINED), 2), 1
        ),
        detect=detect,
        needed=needed,
        departed=0,
        bound=None,
        seconds=1.0,
    )


@pytest.mark.parametrize("verdict", [ROLLBACK, DENIABLE])
def test_a_clean_audit_says_so_and_what_it_might_have_missed(verdict: Verdict) -> None:
    report = audit(SAME, SAME, verdict=verdict)
    assert report.clean
    assert report.remembering == report.unlike == ()
    sentence, sight, control = report.conclusion()
    assert f"advantage of {smallest_seen(64, report.level):.2f} or more in 80% of audits" in sight
    assert "Batch-norm statistics" in sight
    assert "before the erasure, either" in control  # one unit on either side recognises nobody
    assert sentence == (
        "Served minus retrained, in AUC, contains 0 for all 2 attackers (same [-0.100, +0.200], same [-0.100, "
        "+0.200]): none of them tells the model served after ada is erased from models retrained without it."
    )


def recognising(name: str) -> Found:
    """An attacker who knows the client before its erasure, and not after."""
    sure = Attacked(Scores(np.arange(10.0, 20.0), np.arange(10.0)), NOTHING, (NOTHING, NOTHING), NOTHING)
    return replace(found(name, -0.1, 0.2), stages=dict.fromkeys(Stage, sure))


def test_where_the_client_was_recognised_before_the_clean_result_is_not_played_down() -> None:
    assert audit(SAME, recognising("knows")).recognised
    assert not audit(SAME, SAME).recognised
    assert len(audit(SAME, recognising("knows")).conclusion()) == 2


@pytest.mark.parametrize(
    ("attackers", "needed", "blind"),
    [
        ([SAME], 208, True),
        ([SAME], 66, True),
        ([SAME], 64, False),
        ([SAME], None, False),
        ([SAME, MORE], 208, False),  # something was found: it could be seen
        ([SAME, LESS], 208, False),
    ],
)
def test_an_audit_is_blind_where_it_found_nothing_with_fewer_worlds_than_it_takes(
    attackers: list[Found], needed: int | None, blind: bool
) -> None:
    report = audit(*attackers, detect=None if needed is None else 0.2, needed=needed)
    assert report.blind == blind
    assert ("could not have seen it" in " ".join(report.conclusion())) == blind
    assert (report.power is None) == (needed is None)


def test_a_served_model_that_remembers_is_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    report = audit(MORE, SAME)
    assert not report.clean
    assert (report.remembering, report.unlike) == ((MORE,), ())
    assert report.conclusion() == (
        "more: served minus retrained is +0.150 in AUC [+0.050, +0.250], which does not contain 0: the served "
        "model still remembers ada.",
        "1 of 2 attackers see no difference: 0 is in same [-0.100, +0.200].",
    )
    assert capsys.readouterr() == ("", "")


def test_a_served_model_on_which_attackers_do_worse_is_unlike_and_remembers_nothing() -> None:
    report = audit(LESS)
    assert not report.clean
    assert (report.remembering, report.unlike) == ((), (LESS,))
    assert report.conclusion() == (
        "less: served minus retrained is -0.300 in AUC [-0.400, -0.200], which does not contain 0: the served "
        "model is told from retrained ones.",
    )


def test_a_mixed_audit_tells_what_each_saw() -> None:
    report = audit(SAME, LESS, MORE, SAME)
    conclusion = report.conclusion()
    assert [line.partition(":")[0] for line in conclusion[:2]] == ["more", "less"]
    assert conclusion[2:] == (
        "2 of 4 attackers see no difference: 0 is in same [-0.100, +0.200], same [-0.100, +0.200].",
    )
    assert not report.clean


def test_where_the_verdict_is_deniable_it_says_what_that_means() -> None:
    conclusion = audit(MORE, SAME, verdict=DENIABLE).conclusion()
    assert conclusion[:2] == audit(MORE, SAME).conclusion()
    assert conclusion[2].startswith("The verdict is deniable: the model was kept")
    assert "Deniability is not deletion" in conclusion[2]
    assert all("deniable" not in line for line in audit(MORE, SAME, verdict=None).conclusion())


def test_an_interval_that_ends_at_nought_contains_it() -> None:
    report = audit(found("from", 0.0, 0.1), found("to", -0.1, 0.0))
    assert report.clean
    assert all(each.difference.contains_zero for each in report.found)


def test_the_median_is_one_that_was_scored() -> None:
    scored = [(0.9, scores(1, 1)), (0.1, scores(2, 2)), (0.5, scores(3, 3))]
    assert median(scored) is scored[2][1]
    assert median(scored[:1]) is scored[0][1]
    assert median(scored[:2]) is scored[1][1]  # of two, the lower
    assert median([*scored, (0.6, scores(4, 4))]) is scored[2][1]
    tied = [(0.5, scores(1, 1)), (0.5, scores(2, 2)), (0.5, scores(3, 3))]
    assert median(tied) is tied[1][1]


@pytest.mark.parametrize("count", [1, 2, 5, 100])
def test_intervals_that_hold_together_share_the_error(count: int) -> None:
    each = simultaneous(0.95, count)
    assert count * (1 - each) == pytest.approx(0.05)
    assert simultaneous(0.95, 1) == pytest.approx(0.95)


def test_a_rollback_to_a_later_round_says_what_stands() -> None:
    conclusion = audit(MORE, verdict=Verdict(VerdictKind.ROLLBACK, 2)).conclusion()
    assert conclusion[-1].startswith("The model went back to round 2: the rounds before it stand")
    assert "before it stand" not in " ".join(audit(MORE, verdict=ROLLBACK).conclusion())


def test_a_report_of_records_names_them_and_not_the_client() -> None:
    one, two = (replace(audit(MORE, SAME), erased=erased) for erased in (("p1",), ("p1", "p2")))
    assert any(line.endswith("remembers 1 record of ada.") for line in one.conclusion())
    shown = list(lines(two, Path("run")))
    assert shown[0].startswith("Audit of 2 records of ada in run")
    assert any(line.split()[:2] == ["unit", "record:"] for line in shown)
    assert "2 records of ada are erased" in replace(audit(SAME), erased=("p1", "p2")).conclusion()[0]
    assert (one.unit, audit(SAME).unit) == ("record", "client")
