"""The dry run: what it says is what then happens, and saying it changes nothing."""

from __future__ import annotations

import random
import shutil
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from disavow import runs
from disavow.cli.status import status
from disavow.domain import Cost, Verdict, VerdictKind
from disavow.erasure.dry_run import Forecast, foresee
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.errors import AlreadyForgotten, BudgetSpent, RoundRefused, UnknownClient
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.privacy.budget import Budget
from disavow.rounds.options import room_for
from tests.erasure.mechanisms.contract import (
    ask,
    digests,
    faults,
    leave,
    reopen_toy,
    rolled_back,
    standing,
    start_toy,
    toy_settings,
    trained_toy,
)
from tests.ledger.making import files_of
from tests.refusals import refuses

VARIETY: list[dict[str, Any]] = [
    {},
    {"clustering": {"sticky": False}},
    {"clustering": {"sticky": False, "representatives": 2}},
    {"deniability": {"delta": 0.3}},
    {"training": {"fraction": 0.6, "epochs": 5}},
    {"clients": 5, "deniability": {"x": 3}},
]


def forecast(run: Federation, *clients: str) -> Forecast:
    return foresee(run.ledger, clients, run.options, run.mechanism)


def check_against_what_happens(run: Federation, leavers: list[str]) -> Forecast:
    foreseen = forecast(run, *leavers)
    before = digests(run.ledger)
    answered = leave(run, *leavers)
    verdicts = {request.verdict for request in answered} - {Verdict(VerdictKind.NEVER_PRESENT)}
    assert (verdicts or {Verdict(VerdictKind.NEVER_PRESENT)}) == {foreseen.verdict}
    cost = answered[0].cost
    assert cost is not None
    assert (cost.rounds, cost.client_epochs, cost.exchanged_bytes) == (
        foreseen.cost.rounds,
        foreseen.cost.client_epochs,
        foreseen.cost.exchanged_bytes,
    )
    for client, request in zip(leavers, answered, strict=True):
        summary = run.summary_of(request.number)
        assert summary is not None
        assert summary.composed == (pytest.approx(foreseen.odds[client]) if summary.rounds else None)
    assert run.ledger.last_round == foreseen.served
    assert bool(answered[0].remark) == (foreseen.obstacle is not None)
    if foreseen.obstacle is not None:
        assert foreseen.obstacle in answered[0].remark
    if foreseen.verdict.round is None:
        assert digests(run.ledger) == before
    return foreseen


@pytest.mark.parametrize("variety", range(len(VARIETY)))
def test_it_is_what_then_really_happens(tmp_path: Path, variety: int) -> None:
    history = random.Random(variety)
    seen: set[str] = set()
    with trained_toy(tmp_path / "run", toy_settings(**VARIETY[variety])) as run:
        while len(run.ledger.clients()) > 1:
            some = history.sample(run.ledger.clients(), min(len(run.ledger.clients()), history.choice([1, 2])))
            foreseen = check_against_what_happens(run, some)
            seen.add(f"{foreseen.verdict.kind.value} {foreseen.obstacle is not None}")
    # histories in which everything comes out alike would show little
    assert len(seen) >= 2, seen


@pytest.mark.parametrize("clients", [["client-01"], ["client-01", "client-02", "client-03", "client-04"]])
def test_saying_it_changes_no_byte_and_needs_no_right_to_write(tmp_path: Path, clients: list[str]) -> None:
    trained_toy(tmp_path / "run", toy_settings()).close()
    before = files_of(tmp_path)
    with Ledger.open(tmp_path / "run") as ledger:  # nothing can be written through it
        options = runs.round_options(runs.settings_of(tmp_path / "run"))
        first = foresee(ledger, clients, options, Retrain())
        assert foresee(ledger, clients, options, Retrain()) == first
        assert ledger.requests() == ()
    assert files_of(tmp_path) == before


def test_it_can_be_told_while_another_process_holds_the_run(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings()) as run:
        due = forecast(run, "client-01")
        with Ledger.open(tmp_path / "run") as ledger:
            assert foresee(ledger, ["client-01"], run.options, run.mechanism) == due


def test_a_deniable_request_costs_nothing(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings()) as run:
        foreseen = forecast(run, "client-01")
        assert foreseen.odds.keys() == {"client-01"}
        assert replace(foreseen, odds={}) == Forecast(Verdict(VerdictKind.DENIABLE), Cost(), served=4)


def test_it_counts_rounds_epochs_and_bytes(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings()) as run:
        pair = sorted(run.ledger.membership(1)[0])[:2]
        foreseen = forecast(run, *pair)
        assert foreseen.verdict == Verdict(VerdictKind.ROLLBACK, 1)
        assert (foreseen.served, foreseen.obstacle) == (4, None)
        assert {**asdict(foreseen.cost), "seconds": 0} == {
            "rounds": 4,
            "client_epochs": 4 * 7 * 2,  # seven survivors, two local epochs
            "exchanged_bytes": 2 * 4 * 7 * 4 * run.ledger.layout.size,  # there and back, float32
            "seconds": 0,
        }
        assert foreseen.cost.seconds > 0
        # naming somebody twice is naming them once
        assert forecast(run, *pair, *pair) == foreseen


def test_it_says_first_that_nothing_can_be_retrained(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings(clients=4)) as run:
        foreseen = forecast(run, "client-01", "client-02", "client-03")
        assert foreseen.verdict == Verdict(VerdictKind.ROLLBACK, 1)
        assert (foreseen.served, foreseen.cost) == (0, Cost())
        assert foreseen.obstacle == "1 participants are left, fewer than k = 3"


def test_who_never_took_part_is_foretold_so_and_in_company_shares_its_fate(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings()) as run:
        run.ledger.register(["newcomer"])
        assert forecast(run, "newcomer").verdict == Verdict(VerdictKind.NEVER_PRESENT)
        assert forecast(run, "newcomer", "client-01").verdict == Verdict(VerdictKind.DENIABLE)


def test_before_the_first_round_everybody_is_never_present(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings()) as run:
        assert forecast(run, "client-01") == Forecast(Verdict(VerdictKind.NEVER_PRESENT), Cost(), served=0)


@pytest.mark.parametrize("gone", [True, False])
def test_who_is_not_there_is_refused(tmp_path: Path, gone: bool) -> None:
    with trained_toy(tmp_path / "run", toy_settings()) as run:
        if gone:
            leave(run, "client-01")
        with refuses(AlreadyForgotten if gone else UnknownClient, "client-01" if gone else "nobody"):
            forecast(run, "client-02", "client-01" if gone else "nobody")


# -- in the middle of something ----------------------------------------------------------------------------------


def test_requests_that_wait_are_judged_with_it_and_so_foretold_with_it(tmp_path: Path) -> None:
    """Somebody has asked and was not answered yet: whoever asks now leaves together with them."""
    with trained_toy(tmp_path / "run", toy_settings()) as run:
        one, two = sorted(run.ledger.membership(1)[0])[:2]
        ask(run, one)
        foreseen = forecast(run, two)
        [_, request] = [*run.ledger.requests(), *leave(run, two)]
        assert foreseen.verdict == request.verdict


def test_an_interrupted_rebuild_is_taken_into_account(tmp_path: Path) -> None:
    """Killed in the middle of a rebuild, the run holds fewer rounds than it will: they must be trained as well."""
    with trained_toy(tmp_path / "run", toy_settings(clients=12)) as run:
        rolled_back(run, [sorted(run.ledger.membership(1)[0])[0]], 1)
        for _ in range(2):
            run.mechanism.rebuild_next(run.ledger, run.engine, run.options)
        # two of the four rounds are rebuilt when the next ones come
        pairs = combinations(sorted(run.ledger.membership(1)[0]), 2)
        pair = next(pair for pair in pairs if forecast(run, *pair).verdict.round == 1)
        foreseen = forecast(run, *pair)
        assert foreseen.served == 4
        leave(run, *pair)
        assert [s.number for s in standing(run.ledger)] == list(range(1, foreseen.served + 1))


def test_a_copy_of_a_run_is_told_the_same(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings()) as run:
        due = forecast(run, "client-01", "client-02")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with reopen_toy(tmp_path / "copy") as copy:
        assert forecast(copy, "client-01", "client-02") == due


# -- with a privacy budget -----------------------------------------------------------------------------------------

FIXED: dict[str, Any] = {
    "clustering": {"method": "fixed"},
    "noise": {"mode": "calibrated", "clip": 1.0, "tau": 1.2},
}
MDAV: dict[str, Any] = {"noise": {"mode": "calibrated", "clip": 1.0, "tau": 4.0}}


def spendable(rounds: int, changed: dict[str, Any], directory: Path) -> float:
    """A budget that is enough for so many rounds of a toy run, and for no more."""
    with start_toy(directory, toy_settings(**changed, rounds=rounds)) as run:
        run.train()
        return Budget(1.0, 1e-5).spent(run.ledger.events()) * 1.0001


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        pytest.param(FIXED, 0, marks=pytest.mark.torture),
        (FIXED, 2),
        (MDAV, 0),
        pytest.param(MDAV, 2, marks=pytest.mark.torture),
    ],
    ids=["fixed 0", "fixed 2", "mdav 0", "mdav 2"],
)
def test_a_spent_budget_is_foretold_and_what_it_allows_is_rebuilt(
    tmp_path: Path, changed: dict[str, Any], more: int
) -> None:
    """Four rounds and `more` can be paid for; the erasure breaks the first of four."""
    epsilon = spendable(4 + more, changed, tmp_path / "measured")
    settings = toy_settings(**changed, rounds=4, privacy={"epsilon": epsilon})
    with trained_toy(tmp_path / "run", settings) as run:
        leavers = [*run.ledger.membership(1)[0]]
        foreseen = check_against_what_happens(run, leavers)
        assert foreseen.verdict == Verdict(VerdictKind.ROLLBACK, 1)
        assert foreseen.obstacle is not None
        assert "the privacy budget is spent" in foreseen.obstacle
        assert foreseen.served in ({0} if more == 0 else {1, 2, 3})
        [remark] = {request.remark for request in run.ledger.requests()}
        start = "not retrained: " if foreseen.served == 0 else f"retrained only up to round {foreseen.served}: "
        assert remark.startswith(start)
        assert len(run.ledger.events()) == 4 + foreseen.served
        with pytest.raises(BudgetSpent):
            run.train()
        # who is deniable is still answered at once, and whoever is not still brings a rollback
        while run.ledger.clients():
            check_against_what_happens(run, list(run.ledger.clients()[:1]))
    assert faults(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("privacy", "at"), [({}, 1), ({"epsilon": 1e5}, 2)], ids=["round 1, no budget", "round 2, budget"]
)
def test_a_round_whose_fixed_clusters_are_all_empty_ends_the_rebuild(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], privacy: dict[str, Any], at: int
) -> None:
    """One cluster of four takes part in each round; everybody in that of round `at` leaves."""
    settings = toy_settings(
        clients=8, rounds=4, training={"fraction": 0.25, "epochs": 1}, clustering={"k": 2, "method": "fixed"},
        noise={"mode": "calibrated", "clip": 1.0, "tau": 2.0}, deniability={"x": 1}, privacy=privacy,
    )  # fmt: skip
    with trained_toy(tmp_path / "run", settings) as run:
        [leavers] = run.ledger.membership(at)
        first = min(n for n in range(1, 5) if run.ledger.membership(n) == (leavers,))
        assert first == at  # or the case is another one
        foreseen = check_against_what_happens(run, list(leavers))
        assert (foreseen.verdict, foreseen.served) == (Verdict(VerdictKind.ROLLBACK, at), at - 1)
        assert foreseen.obstacle is not None
        room = room_for(run.ledger, run.options, at)
        assert (room.rounds, room.obstacle) == (0, foreseen.obstacle)
        assert leave(run) == ()
    with reopen_toy(tmp_path / "run") as run, pytest.raises(RoundRefused):
        run.train()
    status(tmp_path / "run", as_json=False)
    assert f"{at - 1} of 4; no more can be trained" in capsys.readouterr().out
    assert faults(tmp_path / "run") == []


def test_a_deniable_request_is_answered_though_the_budget_is_spent(tmp_path: Path) -> None:
    epsilon = spendable(4, MDAV, tmp_path / "measured")
    with start_toy(tmp_path / "run", toy_settings(**MDAV, rounds=6, privacy={"epsilon": epsilon})) as run:
        with pytest.raises(BudgetSpent):
            run.train()
        before = digests(run.ledger)
        assert len(before) == 4
        [answered] = leave(run, "client-01")
        assert (answered.verdict, answered.remark) == (Verdict(VerdictKind.DENIABLE), "")
        assert digests(run.ledger) == before
