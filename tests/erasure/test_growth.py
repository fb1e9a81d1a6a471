"""What an erasure, a forecast, a status and a record cost as ledgers grow, in statements, steps and hashes."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from disavow.domain import Cluster, Slot, VerdictKind
from disavow.erasure.dry_run import foresee
from disavow.erasure.erase import answer_without_training
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.erasure.reporting import Reporting
from disavow.ledger import Ledger, odds
from disavow.rounds.options import RoundOptions
from tests.ledger.making import MOMENT, POLICY, create, member, record_next

OWN_ROUNDS = 3
FRIENDS = ("leaver", "ann", "ben", "cal")
OPTIONS = RoundOptions(seed=1, clock=lambda: MOMENT)


def ledger_of(directory: Path, *, rounds: int, clients: int) -> Ledger:
    """The leaver is in the first rounds, together with others; then in none."""
    ids = [f"n{number:04d}" for number in range(clients)]
    ledger = create(directory, clients=[*FRIENDS, *ids], policy=replace(POLICY, k=4, sticky=False))
    for number in range(rounds):
        record_next(ledger, clusters=in_fours([*(FRIENDS if number < OWN_ROUNDS else ()), *ids]))
    return ledger


def in_fours(ids: Sequence[str]) -> tuple[Cluster, ...]:
    """Clusters of four."""
    groups = [ids[start : start + 4] for start in range(0, len(ids), 4)]
    return tuple(Cluster(1 / len(groups), 0.25, tuple(Slot(member(each)) for each in group)) for group in groups)


@dataclass
class Counted:
    """What was done: SQL statements, steps of SQLite's machine, keyed hashes."""

    statements: int = 0
    steps: int = 0
    hashes: int = 0
    active: bool = True

    def tick(self) -> int:
        """Count a step; SQLite goes on asking when nobody counts any more."""
        self.steps += self.active
        return 0


@contextmanager
def counting(ledger: Ledger) -> Iterator[Counted]:
    """Count what happens to a ledger meanwhile."""
    counted, digest = Counted(), hmac.digest

    def hashing(*args: Any) -> bytes:
        counted.hashes += 1
        return digest(*args)

    def executing(connection: Any, *rest: Any) -> None:
        counted.statements += 1
        connection.connection.driver_connection.set_progress_handler(counted.tick, 1)

    sa.event.listen(ledger._engine, "before_cursor_execute", executing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hmac, "digest", hashing)
        yield counted
    counted.active = False
    sa.event.remove(ledger._engine, "before_cursor_execute", executing)


def erase(ledger: Ledger) -> None:
    ledger.place_requests(["leaver"], at=MOMENT)
    [answered] = answer_without_training(
        ledger, OPTIONS, Retrain(), Reporting(openings=ledger.directory.parent / "openings")
    )
    assert answered.verdict is not None
    assert answered.verdict.kind is VerdictKind.DENIABLE


def forecast(ledger: Ledger) -> None:
    assert foresee(ledger, ["leaver"], OPTIONS, Retrain()).verdict.kind is VerdictKind.DENIABLE


def look(ledger: Ledger) -> None:
    assert ledger.count_clients()
    assert ledger.summaries()
    assert ledger.odds()


def cost(directory: Path, what: Callable[[Ledger], None], *, rounds: int, clients: int) -> Counted:
    with ledger_of(directory / f"{what.__name__}-{rounds}-{clients}" / "run", rounds=rounds, clients=clients):
        pass
    run = directory / f"{what.__name__}-{rounds}-{clients}" / "run"
    with Ledger.open(run, write=True) as ledger, counting(ledger) as counted:
        what(ledger)
    return counted


@pytest.mark.parametrize("what", [erase, forecast, look], ids=["erase", "forecast", "status"])
def test_four_times_the_clients_cost_no_more(
    what: Callable[[Ledger], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_TRIED", "_SAMPLED"):  # as a large run is looked at
        monkeypatch.setattr(odds, limit, 0)
    few, many = (cost(tmp_path, what, rounds=8, clients=clients) for clients in (40, 160))
    assert few.hashes > 0
    assert few.statements > 0
    assert many.statements == few.statements
    if what is look:  # of the fixed number of clients that it looks at, more or fewer have taken part, by chance
        assert many.hashes < 2 * few.hashes
        assert many.steps < 2 * few.steps
        return
    assert many.hashes == few.hashes
    assert many.steps == pytest.approx(few.steps, rel=0.25)


@pytest.mark.parametrize("what", [erase, forecast], ids=["erase", "forecast"])
def test_a_round_without_the_leaver_costs_one_hash_and_no_statement(
    what: Callable[[Ledger], None], tmp_path: Path
) -> None:
    few, many = (cost(tmp_path, what, rounds=rounds, clients=8) for rounds in (6, 24))
    assert many.statements == few.statements
    assert many.hashes - few.hashes == 18


def test_recording_a_round_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    clusters = in_fours([f"n{number:04d}" for number in range(8)])
    with ledger_of(tmp_path / "run", rounds=5, clients=8) as ledger:

        def recorded() -> Counted:
            with counting(ledger) as counted:
                record_next(ledger, clusters=clusters)
            return counted

        early = recorded()
        for _ in range(60):
            record_next(ledger, clusters=clusters)
        late = recorded()
    assert early.hashes > 0
    assert (late.statements, late.hashes) == (early.statements, early.hashes)
    assert late.steps == pytest.approx(early.steps, rel=0.1)


def test_what_was_found_in_a_transaction_that_was_given_up_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a round that was not recorded is given to the next one."""
    with ledger_of(tmp_path / "run", rounds=2, clients=8) as ledger:
        [number] = ledger.numbers_of(["leaver"]).values()
        clusters = in_fours(["n0000", "n0001", "n0002", "n0003"])

        def fail(connection: sa.Connection, *_: Any) -> None:
            assert len(ledger.members.tokens(connection, number)) == 2
            assert ledger.members._rounds[-1].id == 3
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr("disavow.ledger.updates.insert", fail)
            with pytest.raises(ZeroDivisionError):
                record_next(ledger, clusters=clusters)
        record_next(ledger, clusters=in_fours(FRIENDS))
        assert ledger.rounds_with("leaver") == (1, 2, 3)
