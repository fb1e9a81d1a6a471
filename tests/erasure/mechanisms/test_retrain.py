"""Retrain: a round like any other, with whoever is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from disavow.domain import Verdict, VerdictKind
from disavow.erasure.dry_run import foresee
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms.retrain import Retrain, RetrainFromScratch
from disavow.ledger import log
from disavow.proof.leaves import RollbackLeaf
from tests.erasure.mechanisms.contract import (
    MechanismContract,
    ahead,
    digests,
    faults,
    leave,
    pair_first_together_in,
    rolled_back,
    start_toy,
    toy_settings,
    trained_toy,
)


class TestRetrain(MechanismContract):
    """Exact, and needs nothing but the ledger."""

    def make(self) -> Mechanism:
        return Retrain()


class TestRetrainFromScratch(MechanismContract):
    """The same, from the initial model."""

    def make(self) -> Mechanism:
        return RetrainFromScratch()


def test_both_are_exact() -> None:
    for mechanism in (Retrain(), RetrainFromScratch()):
        assert mechanism.exact
    assert (Retrain().name, RetrainFromScratch().name) == ("retrain", "retrain-from-scratch")


def test_from_scratch_every_rollback_is_to_round_1(tmp_path: Path) -> None:
    ends = {}
    for name in ("retrain", "retrain-from-scratch"):
        settings = toy_settings(12, rounds=5, clustering={"sticky": False}, mechanism={"name": name})
        with start_toy(tmp_path / name, settings) as run:
            run.train()
            pair = pair_first_together_in(run.ledger, 3)
            foreseen = foresee(run.ledger, pair, run.options, run.mechanism)
            [request, _] = leave(run, *pair)
            assert request.verdict == foreseen.verdict
            assert request.cost is not None
            ends[name] = request.verdict, request.cost.rounds, foreseen.cost.rounds
            with run.ledger._connect() as connection:
                [rollback] = [leaf for leaf in log.leaves_of(connection) if isinstance(leaf, RollbackLeaf)]
            assert rollback.to == request.verdict.undoes
        assert faults(tmp_path / name) == []
    assert ends == {
        "retrain": (Verdict(VerdictKind.ROLLBACK, 3), 3, 3),
        "retrain-from-scratch": (Verdict(VerdictKind.ROLLBACK, 3, back_to=1), 5, 5),
    }


def test_from_scratch_a_deniable_request_is_still_answered_at_once(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings(mechanism={"name": "retrain-from-scratch"})) as run:
        before = digests(run.ledger)
        [request] = leave(run, "client-01")
        assert str(request.verdict) == "deniable"
        assert digests(run.ledger) == before


@pytest.mark.parametrize(("fraction", "most"), [(1.0, 6), (0.5, 3), (0.34, 1)])
def test_the_obstacle_counts_participants_not_survivors(tmp_path: Path, fraction: float, most: int) -> None:
    """Nine clients, k = 3: with half of them a round, five survivors make two participants, which is too few."""
    settings = toy_settings(training={"fraction": fraction})
    with trained_toy(tmp_path / "run", settings) as run:
        found = [ahead(run, first=1, last=4, leavers=run.ledger.clients()[:n]).obstacle for n in range(10)]
    assert [text is None for text in found] == [n <= most for n in range(10)]
    assert found[-1] == "0 participants are left, fewer than k = 3"


def test_its_rounds_are_those_of_the_same_rollback_in_a_copy(tmp_path: Path) -> None:
    """Seeded draws: exact means that there is one right answer."""
    ends = []
    for name in ("one", "two"):
        with start_toy(tmp_path / name, toy_settings()) as run:
            run.train()
            leave(run, *sorted(run.ledger.membership(2)[0])[:2])
            ends.append(digests(run.ledger))
    assert ends[0] == ends[1]


def test_a_rebuilt_round_draws_anew(tmp_path: Path) -> None:
    """Noise used twice cancels out: even with the same participants the second attempt is another model."""
    with trained_toy(tmp_path / "run", toy_settings()) as run:
        before, old = run.ledger.digest_before(2), digests(run.ledger)[1]
        run.ledger.register(["newcomer"])  # never took part: leaves the others as they are
        rolled_back(run, ["newcomer"], 2)
        run.mechanism.rebuild_next(run.ledger, run.engine, run.options)
        rebuilt = run.ledger.round(2)
        assert rebuilt.before == before
        assert len(rebuilt.slots) == 9
        assert rebuilt.after != old
