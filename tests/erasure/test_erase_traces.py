"""Nothing of a leaver is left in any file of the run."""

from __future__ import annotations

import random
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from disavow.domain import RequestState
from disavow.ledger import Ledger, fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.ledger import Ledger as LedgerClass
from disavow.ledger.schema import clients, memberships
from tests.erasure.erased_runs import Interrupted, failing, toy
from tests.erasure.mechanisms.contract import (
    ask,
    faults,
    leave,
    reopen_toy,
    start_toy,
    toy_settings,
)
from tests.ledger.making import files_of


def secrets_of(ledger: Ledger, client: str) -> list[bytes]:
    """All bytes that tie a slot to a client: salts, update digests, and the random number that stands for it."""
    with ledger._connect() as connection:
        number = connection.execute(sa.select(clients.c.number).where(clients.c.id == client)).scalar_one()
        query = sa.select(memberships.c.salt, memberships.c.update_digest).where(memberships.c.client == number)
        found = [value for row in connection.execute(query) for value in row]
    return [*found, number.to_bytes(8, "big")]


def files_holding(directory: Path, secrets: Sequence[bytes]) -> list[str]:
    """The files that hold any of these bytes."""
    return [name for name, data in files_of(directory).items() if any(secret in data for secret in secrets)]


def test_all_clients_leave_one_by_one_and_no_file_names_any(tmp_path: Path) -> None:
    """Tables, free pages, the log."""
    order = random.Random(5)
    with start_toy(tmp_path / "run", toy_settings(clients=24, rounds=2, clustering={"k": 4})) as run:
        run.train()
        left = list(run.ledger.clients())
        order.shuffle(left)
        for done, client in enumerate(left, start=1):
            [request] = leave(run, client)
            assert request.state is RequestState.ANSWERED
            assert len(run.ledger.clients()) == 24 - done
            # while the run is still open: the log counts
            for gone in left if done == len(left) else [client]:
                assert files_with(tmp_path / "run", gone) == []
            if done % 12 == 0:
                assert faults(tmp_path / "run") == []
        verdicts = {str(request.verdict) for request in run.ledger.requests()}
        assert {"deniable", "rollback to round 1"} <= verdicts
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(2, 12))])
def test_nothing_that_ties_a_slot_to_a_leaver_is_left_in_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Salt and update digest open a slot's commitment for whoever tries ids; the number links slots of one client.

    Pages that SQLite splits can keep copies of rows in what counts as free space. Where they do depends on the
    random bytes that are stored, so these are drawn from a seed here.
    """
    chance = random.Random(seed)
    monkeypatch.setattr(secrets, "token_bytes", chance.randbytes)
    monkeypatch.setattr(secrets, "randbits", chance.getrandbits)
    remains: list[str] = []
    with start_toy(
        tmp_path / "run", toy_settings(clients=36 + 3 * (seed % 6), rounds=3, clustering={"k": 4})
    ) as run:
        run.train()
        left = list(run.ledger.clients())
        chance.shuffle(left)
        for client in left:
            known = secrets_of(run.ledger, client)
            assert len(known) > 2
            leave(run, client)
            remains += [client] * bool(files_holding(tmp_path / "run", known))
    assert remains == []


@pytest.mark.parametrize("count", [1, 25])
def test_leaving_together_nothing_is_left_of_any(tmp_path: Path, count: int) -> None:
    ids = [f"somebody-with-a-long-name-{i:03d}" for i in range(60)]
    with start_toy(tmp_path / "run", toy_settings(clients=60, clustering={"k": 4}), ids=ids) as run:
        run.train()
        leavers = random.Random(count).sample(ids, count)
        known = [secret for client in leavers for secret in secrets_of(run.ledger, client)]
        leave(run, *leavers)
        for client in leavers:
            assert files_with(tmp_path / "run", client) == []
        assert files_holding(tmp_path / "run", known) == []
    assert fsck(tmp_path / "run") == []


def test_a_leaver_whose_id_is_part_of_anothers_is_gone_and_the_other_stays(tmp_path: Path) -> None:
    ids = ["client-1", "client-10", "client-11", "client-2", "client-20", "client-3", "my-client-1"]
    with start_toy(tmp_path / "run", toy_settings(clients=7), ids=ids) as run:
        run.train()
        assert len(leave(run, "client-1")) == 1
        assert run.ledger.clients() == tuple(ids[1:])
        assert files_with(tmp_path / "run", "client-1", run.ledger.clients()) == []
        assert files_with(tmp_path / "run", "client-10", run.ledger.clients()) != []
        leave(run, "client-10")
        for gone in ("client-1", "client-10"):
            assert files_with(tmp_path / "run", gone, run.ledger.clients()) == []


def test_an_interrupted_purge_is_repeated_though_nobody_knows_the_ids_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(tmp_path / "run", clients=30)
    ask(run, "client-07", "client-19")
    with monkeypatch.context() as patch:
        patch.setattr(LedgerClass, "purge", failing([1]))
        with pytest.raises(Interrupted):
            run.answer()
    # rows are gone; the log still holds the pages of before
    assert [path.name for path in files_with(tmp_path / "run", "client-07")]
    shutil.copytree(tmp_path / "run", tmp_path / "crashed")  # as a killed process leaves it: log and all
    run.close()
    with reopen_toy(tmp_path / "crashed") as again:
        assert len(again.answer()) == 2
        for client in ("client-07", "client-19"):
            assert files_with(tmp_path / "crashed", client) == []


def test_a_program_whose_argument_is_the_leaver_does_not_write_it_into_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock names the program that holds the run, and after a kill it stays as it is."""
    toy(tmp_path / "run").close()
    monkeypatch.setattr(sys, "argv", ["forget.py", "client-05"])
    with reopen_toy(tmp_path / "run") as run:
        leave(run, "client-05")
        assert files_with(tmp_path / "run", "client-05") == []
