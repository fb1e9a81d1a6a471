"""Retrain: a round like any other, with whoever is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms.retrain import Retrain
from tests.erasure.mechanisms.contract import (
    MechanismContract,
    digests,
    leave,
    rolled_back,
    start_toy,
    toy_settings,
)


class TestRetrain(MechanismContract):
    """Exact, and needs nothing but the ledger."""

    def make(self) -> Mechanism:
        return Retrain()


def test_it_is_exact_and_needs_nothing() -> None:
    assert (Retrain().name, Retrain().exact, Retrain().needs) == ("retrain", True, frozenset())


@pytest.mark.parametrize(("fraction", "most"), [(1.0, 6), (0.5, 3), (0.34, 1)])
def test_the_obstacle_counts_participants_not_survivors(tmp_path: Path, fraction: float, most: int) -> None:
    """Nine clients, k = 3: with half of them a round, five survivors make two participants, which is too few."""
    settings = toy_settings(training={"fraction": fraction})
    with start_toy(tmp_path / "run", settings) as run:
        run.train()
        found = [run.mechanism.obstacle(run.ledger, run.conduct, leavers=n) for n in range(10)]
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
    with start_toy(tmp_path / "run", toy_settings()) as run:
        run.train()
        before, old = run.ledger.digest_before(2), digests(run.ledger)[1]
        run.ledger.register(["newcomer"], key=run.tombstone_key())  # never took part: leaves the others as they are
        rolled_back(run, ["newcomer"], 2)
        run.mechanism.rebuild_next(run.ledger, run.engine, run.conduct)
        rebuilt = run.ledger.round(2)
        assert rebuilt.before == before
        assert len(rebuilt.slots) == 9
        assert rebuilt.after != old
