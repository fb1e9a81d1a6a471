"""The updates that a run keeps for FedEraser, and when they are given up."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from disavow.domain import Layout, RequestState, TensorSpec
from disavow.erasure.dry_run import foresee
from disavow.erasure.erase import answer_requests, answer_without_training
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms.federaser import FedEraser
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.errors import ConfigError, IntegrityError, LedgerError
from disavow.ledger import Ledger, fsck
from disavow.ledger.copying import copy_run
from disavow.ledger.keys import default_folder
from disavow.rounds.vectors import Model
from tests.erasure.mechanisms import contract
from tests.erasure.mechanisms.contract import (
    ask,
    digests,
    faults,
    leave,
    mates,
    reopen_toy,
    rolled_back,
    start_toy,
    toy_settings,
    trained_toy,
)
from tests.erasure.mechanisms.federaser_runs import toy, update_files
from tests.refusals import refuses

# -- what is kept ------------------------------------------------------------------------------------------------


def test_updates_are_kept_at_every_so_many_rounds_and_under_no_other_mechanism(tmp_path: Path) -> None:
    counts = {}
    for interval in (1, 2, 3, 8):
        with toy(tmp_path / str(interval), interval=interval) as run:
            counts[interval] = len(update_files(tmp_path / str(interval)))
            assert [kept.number for kept in run.ledger.kept_rounds(1)] == list(range(1, 9, interval))
    assert counts == {1: 72, 2: 36, 3: 27, 8: 9}
    sizes = [sum(path.stat().st_size for path in update_files(tmp_path / str(interval))) for interval in (1, 2)]
    assert sizes[0] == 2 * sizes[1]  # they are random numbers, all of one size
    for name in ("retrain", "retrain-from-scratch"):
        with start_toy(tmp_path / name, toy_settings(mechanism={"name": name, "interval": 1})) as run:
            run.train()
        assert not (tmp_path / name / "updates").exists()


def test_no_update_is_kept_where_the_log_promises_another_mechanism(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings()) as run:
        keeping = replace(run, own_options=replace(run.options, keep_every=1))
        with pytest.raises(LedgerError):
            keeping.train()
        assert run.ledger.next_round() == (1, 1)
    assert not update_files(tmp_path / "run")


@pytest.mark.parametrize(("promised", "other"), [("retrain", FedEraser()), ("federaser", Retrain())])
def test_a_run_is_rebuilt_by_no_other_mechanism_than_its_log_names(
    tmp_path: Path, promised: str, other: Mechanism
) -> None:
    with trained_toy(tmp_path / "run", toy_settings(mechanism={"name": promised})) as run:
        assert run.ledger.policy.mechanism == promised
        ask(run, "client-01")
        with pytest.raises(ConfigError):
            answer_requests(run.ledger, run.engine, run.options, other)
        with pytest.raises(ConfigError):
            answer_without_training(run.ledger, run.options, other)
        with pytest.raises(ConfigError):
            foresee(run.ledger, ["client-02"], run.options, other)
        assert [request.state for request in run.ledger.requests()] == [RequestState.WAITING]
        assert run.answer()


def test_what_is_kept_is_what_the_clients_returned(tmp_path: Path) -> None:
    with toy(tmp_path / "run", rounds=1) as run:
        [kept] = run.ledger.kept_rounds(1)
        model = Model(run.ledger.layout, torch.from_numpy(run.ledger.model_before(1)))
        returned = run.engine.train(model, [member.client for member in kept.members], 1)
        for update, row in zip(run.ledger.kept_updates(kept), returned.vectors, strict=True):
            assert np.array_equal(update, row.numpy())
        assert [member.samples for member in kept.members] == list(returned.samples)


def test_without_compression_files_are_larger_and_models_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 20_000  # of so many numbers there is something to compress, beyond padding
    monkeypatch.setattr(contract, "LAYOUT", Layout((TensorSpec("weight", (size,)),)))
    taken, models = {}, {}
    for compress in (True, False):
        directory = tmp_path / str(compress)
        with toy(directory, compress=compress) as run:
            files = {path: path.stat().st_size for path in update_files(directory)}
            leave(run, *mates(run))
            models[compress] = digests(run.ledger)
        calibrated = {path: path.stat().st_size for path in update_files(directory) if path not in files}
        assert len(files) == 4 * 9
        assert len(calibrated) == 4 * 7
        taken[compress] = [*files.values(), *calibrated.values()]
        assert faults(directory) == []
    assert models[True] == models[False]
    assert max(taken[True]) < 4 * size
    assert all(4 * size < bytes_ < 4 * size + 5_000 for bytes_ in taken[False])


def test_a_deniable_leaver_takes_its_updates_with_it_and_nobody_elses(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        before = set(update_files(tmp_path / "run"))
        mine = {
            run.ledger.updates.path(filled)
            for kept in run.ledger.kept_rounds(1)
            for filled in kept.filled
            if filled.client.id == "client-03"
        }
        assert len(mine) == 4
        [request] = leave(run, "client-03")
        assert str(request.verdict) == "deniable"
        assert set(update_files(tmp_path / "run")) == before - mine
    assert faults(tmp_path / "run") == []


def test_superseded_rounds_give_up_their_updates_when_the_rebuild_commits_and_not_before(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        rolled_back(run, ["client-04"], 1)
        before = set(update_files(tmp_path / "run"))
        run.mechanism.rebuild_next(run.ledger, run.engine, run.options)
        # the first rebuilt round holds the survivors' updates as they are, in files of its own
        assert set(update_files(tmp_path / "run")) > before
        run.answer()
        after = update_files(tmp_path / "run")
        assert len(after) == 4 * 8
        assert not set(after) & before
    assert faults(tmp_path / "run") == []


def test_a_kept_update_that_was_changed_or_lost_is_named(tmp_path: Path) -> None:
    toy(tmp_path / "run", rounds=2).close()
    with Ledger.open(tmp_path / "run") as ledger:
        one, two, *_ = map(ledger.updates.path, ledger.kept_rounds(1)[0].filled)
    data = bytearray(one.read_bytes())
    data[-1] ^= 1
    one.write_bytes(data)
    two.unlink()
    found = faults(tmp_path / "run")
    assert len(found) == 2
    assert all("round 1, the kept update of slot" in text for text in found)
    assert {"missing" in text for text in found} == {True, False}
    with Ledger.open(tmp_path / "run") as ledger:
        [kept] = [each for each in ledger.kept_rounds(1) if two in map(ledger.updates.path, each.filled)]
        [lost] = [each for each in kept.filled if ledger.updates.path(each) == two]
        with refuses(IntegrityError, two.name, "missing"):
            ledger.updates.read(ledger.layout.size, lost)


def test_files_that_no_row_names_are_noticed_and_removed(tmp_path: Path) -> None:
    toy(tmp_path / "run", rounds=2).close()
    kept = update_files(tmp_path / "run")
    left = tmp_path / "run" / "updates" / f"{bytes(32).hex()}.update"
    left.touch(mode=0o600)
    [note] = fsck(tmp_path / "run")
    assert (note.where, note.fault) == (f"updates/{left.name}", False)
    Ledger.open(tmp_path / "run", write=True).close()
    assert update_files(tmp_path / "run") == kept


def test_a_copy_of_the_run_has_what_it_needs_to_rebuild(tmp_path: Path) -> None:
    toy(tmp_path / "run").close()
    keys = tmp_path / "copy" / "keys"
    copy_run(tmp_path / "run", tmp_path / "copy" / "run", keys=default_folder(), target_keys=keys)
    assert [p.name for p in update_files(tmp_path / "copy" / "run")] == [
        p.name for p in update_files(tmp_path / "run")
    ]
    assert fsck(tmp_path / "copy" / "run", keys=keys) == []


def test_a_restored_run_gives_up_the_updates_of_clients_who_were_forgotten_since(tmp_path: Path) -> None:
    """Nobody can say which slots were theirs; their rows must not keep files that nobody can open."""
    with toy(tmp_path / "run") as run:
        keys = run.ledger.keyring.folder.parent.parent
    shutil.copytree(tmp_path / "run", tmp_path / "backup")
    with reopen_toy(tmp_path / "run") as run:
        leave(run, "client-03")
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(tmp_path / "backup", tmp_path / "run")
    assert Ledger.accept(tmp_path / "run", keys=keys).slots == 8  # of eight rounds, four of which are kept
    with reopen_toy(tmp_path / "run") as run:
        before = len(update_files(tmp_path / "run"))
        [request] = run.answer()
        assert request.client is None
        assert len(update_files(tmp_path / "run")) == before - 4
    assert faults(tmp_path / "run") == []
