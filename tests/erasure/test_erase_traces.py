"""Nothing of a client is in any file of the run, and nothing of a leaver in its keyring."""

from __future__ import annotations

import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from disavow.domain import RequestState
from disavow.ledger import fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.keyring import Keyring
from tests.erasure.erased_runs import Interrupted, failing, files_holding, forgotten, keys_of, secrets_of, toy
from tests.erasure.mechanisms.contract import (
    ask,
    faults,
    leave,
    reopen_toy,
    start_toy,
    toy_settings,
    trained_toy,
)


def test_all_clients_leave_one_by_one_and_no_file_names_any(tmp_path: Path) -> None:
    """Tables, free pages, the log."""
    order = random.Random(5)
    with trained_toy(tmp_path / "run", toy_settings(clients=12, rounds=2, clustering={"k": 4})) as run:
        left = list(run.ledger.clients())
        order.shuffle(left)
        for done, client in enumerate(left, start=1):
            [request] = leave(run, client)
            assert request.state is RequestState.ANSWERED
            assert len(run.ledger.clients()) == 12 - done
            # while the run is still open: the log counts
            for gone in left if done == len(left) else [client]:
                assert files_with(tmp_path / "run", gone) == []
            if done % 6 == 0:
                assert faults(tmp_path / "run") == []
        verdicts = {str(request.verdict) for request in run.ledger.requests()}
        assert {"deniable", "rollback to round 1"} <= verdicts
    assert fsck(tmp_path / "run") == []


def test_nothing_in_the_run_ties_a_slot_to_a_client_and_no_key_is_left_of_a_leaver(tmp_path: Path) -> None:
    """Salt and update digest open a slot's commitment for whoever tries ids; the key links slots of one client."""
    with trained_toy(tmp_path / "run", toy_settings(clients=16, rounds=3, clustering={"k": 4})) as run:
        left = list(run.ledger.clients())
        random.Random(5).shuffle(left)
        for client in left:
            known, keys = secrets_of(run.ledger, client), keys_of(run.ledger, client)
            assert len(known) >= 6
            assert all(files_holding(run.ledger.keyring.folder, key) for key in keys)
            assert not any(files_holding(tmp_path / "run", secret) for secret in [*known, *keys])
            leave(run, client)
            assert not any(files_holding(tmp_path / "run", secret) for secret in [*known, *keys])
            assert forgotten(run.ledger.keyring, keys, client)
            assert run.ledger.keyring.faults() == []
        keyring = run.ledger.keyring
    assert set((keyring.folder / "keys.1").read_bytes()[32:]) == {0}
    assert forgotten(keyring, [], *left)


def test_after_a_rotation_all_keys_of_a_leaver_are_destroyed(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings(rounds=2)) as run:
        run.ledger.keyring.rotate()
        replace(run, settings=run.settings.model_copy(update={"rounds": 4})).train()
        keys, known = keys_of(run.ledger, "client-05"), secrets_of(run.ledger, "client-05")
        assert (len(set(keys)), len(known)) == (2, 8)
        [request] = leave(run, "client-05")
        assert request.state is RequestState.ANSWERED
        assert forgotten(run.ledger.keyring, keys, "client-05")
        assert not any(files_holding(tmp_path / "run", secret) for secret in [*known, *keys])
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("count", [1, 10])
def test_leaving_together_nothing_is_left_of_any(tmp_path: Path, count: int) -> None:
    ids = [f"somebody-with-a-long-name-{i:03d}" for i in range(24)]
    with start_toy(tmp_path / "run", toy_settings(clients=24, clustering={"k": 4}), ids=ids) as run:
        run.train()
        leavers = random.Random(count).sample(ids, count)
        known = [secret for client in leavers for secret in secrets_of(run.ledger, client)]
        keys = keys_of(run.ledger, *leavers)
        leave(run, *leavers)
        assert forgotten(run.ledger.keyring, keys, *leavers)
        for client in leavers:
            assert files_with(tmp_path / "run", client) == []
        assert {name for secret in [*known, *keys] for name in files_holding(tmp_path / "run", secret)} == set()
    assert fsck(tmp_path / "run") == []


def test_a_leaver_whose_id_is_part_of_anothers_is_gone_and_the_other_stays(tmp_path: Path) -> None:
    ids = ["client-1", "client-10", "client-11", "client-2", "client-20", "client-3", "my-client-1"]
    with start_toy(tmp_path / "run", toy_settings(clients=7), ids=ids) as run:
        run.train()
        assert len(leave(run, "client-1")) == 1
        assert run.ledger.clients() == tuple(ids[1:])
        assert run.ledger.rounds_with("client-10") == (1, 2, 3, 4)
        leave(run, "client-10")
        assert run.ledger.clients() == tuple(ids[2:])
        for folder in (tmp_path / "run", run.ledger.keyring.folder):
            assert [path for client in ids for path in files_with(folder, client)] == []


def test_interrupted_forgetting_is_completed_though_nobody_knows_the_ids_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(tmp_path / "run", clients=30)
    keys = keys_of(run.ledger, "client-07", "client-19")
    ask(run, "client-07", "client-19")
    with monkeypatch.context() as patch:
        patch.setattr(Keyring, "_write_keys", failing([1]))
        with pytest.raises(Interrupted):
            run.answer()
    # both are noted as forgotten, and their keys are still there
    assert [bool(files_holding(run.ledger.keyring.folder, key)) for key in keys] == [True, True]
    assert not {"client-07", "client-19"} & run.ledger.keyring.present().keys()
    assert [(found.where, found.fault) for found in fsck(tmp_path / "run")] == [("keyring", False)]
    shutil.copytree(tmp_path / "run", tmp_path / "crashed")  # as a killed process leaves it: log and all
    run.close()
    with reopen_toy(tmp_path / "crashed") as again:
        assert forgotten(again.ledger.keyring, keys, "client-07", "client-19")
        assert len(again.answer()) == 2
        for client in ("client-07", "client-19"):
            assert files_with(tmp_path / "crashed", client) == []
    assert fsck(tmp_path / "crashed") == []


def test_a_program_whose_argument_is_the_leaver_does_not_write_it_into_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock names the program that holds the run, and after a kill it stays as it is."""
    toy(tmp_path / "run").close()
    monkeypatch.setattr(sys, "argv", ["forget.py", "client-05"])
    with reopen_toy(tmp_path / "run") as run:
        leave(run, "client-05")
        assert files_with(tmp_path / "run", "client-05") == []
