"""Runs and keyrings of several ages, and copies of a run: what is gone on with, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from disavow.domain import RequestState, Verdict, VerdictKind
from disavow.errors import (
    KeyringMissing,
    KeyringOutdated,
    LeaverReturns,
    RunInUse,
    RunOutdated,
)
from disavow.ledger import Ledger, fsck, journal, log
from disavow.ledger.keyring import Keyring
from disavow.ledger.members import UNKNOWN
from disavow.ledger.restored import Restored
from disavow.ledger.run_state import RunState, state_of
from disavow.ledger.schema import memberships, requests, rounds
from tests.ledger.making import IDS, MOMENT, create, files_of, record_next, two_clusters
from tests.refusals import refuses

# -- run and keyring together ------------------------------------------------------------------------------------


def leave(ledger: Ledger, client: str) -> None:
    """Let a client leave, deniably, with every step of the journal."""
    ledger.place_requests([client], at=MOMENT)
    _answer(ledger)


def _answer(ledger: Ledger) -> None:
    with ledger._begin() as connection:
        waiting = journal.waiting(connection)
        erasure = journal.open_erasure(
            connection, ledger.members, waiting, Verdict(VerdictKind.DENIABLE), mechanism="retrain", at=MOMENT
        )
        log.log_erasure(connection, ledger.members, erasure)
    with ledger._begin() as connection:
        leavers = journal.leavers_to_forget(connection)
        journal.give_up_contributions(connection, ledger.members, list(leavers))
    ledger.forget(leavers)
    with ledger._begin() as connection:
        journal.finish(connection, ledger.keyring, at=MOMENT)


class Restoring:
    """A run and its keyring, with copies of both from before and after a client left."""

    def __init__(self, folder: Path) -> None:
        self.run, self.keys, self.kept = folder / "run", folder / "keys", folder / "kept"
        with create(self.run) as ledger:
            record_next(ledger)
            self.run_id = ledger.run_id
        self.keep("before")
        with self.open() as ledger:
            leave(ledger, "cleo")
        self.keep("after")

    def open(self, *, write: bool = True) -> Ledger:
        return Ledger.open(self.run, write=write, keys=self.keys)

    def accept(self) -> Restored:
        return Ledger.accept(self.run, keys=self.keys)

    def keep(self, when: str) -> None:
        shutil.copytree(self.run, self.kept / f"run {when}")
        shutil.copytree(self.keys, self.kept / f"keys {when}")

    def restore(self, *, run: str, keys: str) -> None:
        for path, when in ((self.run, run), (self.keys, keys)):
            shutil.rmtree(path)
            shutil.copytree(self.kept / f"{path.name} {when}", path)


@pytest.fixture
def restoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Restoring:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    return Restoring(tmp_path)


def test_the_newest_of_both_is_as_it_was(restoring: Restoring) -> None:
    restoring.restore(run="after", keys="after")
    with restoring.open() as ledger:
        assert (ledger.restored.older, ledger.clients()) == (False, ("ada", "bela", "dora"))
    assert [finding for finding in fsck(restoring.run) if finding.fault] == []


def test_an_older_run_withdraws_the_forgotten_again_before_anything_else(restoring: Restoring) -> None:
    restoring.restore(run="before", keys="after")
    with restoring.open(write=False) as reader:
        assert reader.restored_from_backup().slots == 1
        assert reader.clients() == ("ada", "bela", "dora")
    assert [finding.where for finding in fsck(restoring.run) if finding.fault] == ["table log", "round 1"]
    with refuses(RunOutdated, restoring.run, "keyring accept"):
        restoring.open()
    assert restoring.accept().slots == 1
    assert restoring.accept().accepted  # once is enough
    with restoring.open() as ledger:
        assert (ledger.restored.older, ledger.restored.slots) == (True, 1)
        assert ledger.restored.notes
        [request] = ledger.requests()
        assert (request.client, request.state, request.remark) == (
            None,
            RequestState.WAITING,
            "restored from a backup",
        )
        assert list(ledger.waiting().clients.values()) == [UNKNOWN]
        _answer(ledger)
        assert [request.state for request in ledger.requests()] == [RequestState.ANSWERED]
        with refuses(LeaverReturns):
            ledger.register(["cleo"])
        record_next(ledger, clusters=two_clusters(("ada", "bela", "dora", "ada"))[:1])
    with restoring.open() as ledger:
        assert not ledger.restored.older
    assert [finding for finding in fsck(restoring.run) if finding.fault and "weight" not in finding.what] == []


def test_an_older_run_in_which_the_leaver_waits_gives_that_request_up(restoring: Restoring) -> None:
    restoring.restore(run="before", keys="before")
    with restoring.open() as ledger:
        ledger.place_requests(["cleo"], at=MOMENT)
    restoring.keep("asked")
    with restoring.open() as ledger:
        _answer(ledger)
    restoring.keep("gone")
    restoring.restore(run="asked", keys="gone")
    restoring.accept()
    with restoring.open() as ledger:
        states = {request.number: request.state for request in ledger.requests()}
        assert states == {1: RequestState.CANCELLED, 2: RequestState.WAITING}
        _answer(ledger)
    assert [finding for finding in fsck(restoring.run) if finding.fault] == []


def test_an_older_keyring_is_refused_for_writing(restoring: Restoring) -> None:
    restoring.restore(run="after", keys="before")
    before = files_of(restoring.run)
    with pytest.raises(KeyringOutdated):
        restoring.open()
    assert {name: data for name, data in files_of(restoring.run).items() if "-shm" not in name} == {
        name: data for name, data in before.items() if "-shm" not in name
    }
    assert [finding.where for finding in fsck(restoring.run) if finding.fault][:1] == ["keyring"]


def test_a_keyring_from_before_its_newest_forgetting_is_refused_though_the_log_is_the_same(
    restoring: Restoring,
) -> None:
    """A backup between the withdrawal, which is in the log, and the destruction of the key, which is not."""
    restoring.restore(run="before", keys="before")
    with restoring.open() as ledger:
        ledger.place_requests(["cleo"], at=MOMENT)
        with ledger._begin() as connection:
            waiting = journal.waiting(connection)
            erasure = journal.open_erasure(
                connection, ledger.members, waiting, Verdict(VerdictKind.DENIABLE), mechanism="retrain", at=MOMENT
            )
            log.log_erasure(connection, ledger.members, erasure)
    restoring.keep("withdrawn")
    with restoring.open() as ledger:
        ledger.forget(ledger.leavers_to_forget())
        with ledger._begin() as connection:
            journal.finish(connection, ledger.keyring, at=MOMENT)
    restoring.keep("gone")
    restoring.restore(run="gone", keys="withdrawn")
    with pytest.raises(KeyringOutdated):
        restoring.open()


def test_both_older_is_the_day_of_the_backup(restoring: Restoring) -> None:
    """Nothing says that somebody left since: docs/backup.md warns of it."""
    restoring.restore(run="before", keys="before")
    with restoring.open() as ledger:
        assert (ledger.restored.older, ledger.clients()) == (False, IDS)


def test_another_history_of_the_same_length_is_refused(restoring: Restoring) -> None:
    restoring.restore(run="before", keys="before")
    with restoring.open() as ledger:
        record_next(ledger)
    restoring.keep("one")
    restoring.restore(run="before", keys="before")
    with restoring.open() as ledger:
        record_next(ledger, after=ledger.model_before(1))
    restoring.keep("other")
    restoring.restore(run="one", keys="other")
    with pytest.raises(RunOutdated):
        restoring.open()


def test_without_its_keyring_a_run_is_read_and_not_written(restoring: Restoring) -> None:
    shutil.rmtree(restoring.keys)
    with restoring.open(write=False) as ledger:
        assert ledger.last_round == 1
        assert ledger.model_after(1).size
        assert ledger.count_clients() is None
        assert [(request.client, request.state) for request in ledger.requests()] == [(None, RequestState.ANSWERED)]
        with pytest.raises(KeyringMissing):
            ledger.clients()
    with pytest.raises(KeyringMissing):
        restoring.open()
    found = fsck(restoring.run)
    assert "keyring" in [finding.where for finding in found]
    assert not any(finding.fault for finding in found)


def test_a_kill_between_noting_a_head_and_committing_it_is_no_older_run(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        with ledger._connect() as connection:
            now = state_of(connection)
        ledger.keyring.advance(now, replace(now, commits=now.commits + 1, root=bytes(32)), tmp_path)
    with Ledger.open(tmp_path / "run", write=True) as ledger:
        assert (ledger.restored.older, ledger.keyring.settled) == (False, True)
        record_next(ledger)
    with Ledger.open(tmp_path / "run", write=True) as ledger:
        assert not ledger.restored.older


def test_a_process_that_confirms_late_does_not_take_the_keyring_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has committed; before it says so, another one commits too, and says so only after it."""
    with create(tmp_path / "run") as holder, Ledger.open(tmp_path / "run", shared=True) as other:
        confirm, called = Keyring.confirm, list[tuple[Keyring, RunState]]()

        def confirm_late(keyring: Keyring, state: RunState) -> None:
            called.append((keyring, state))
            if keyring is holder.keyring:
                other.place_requests([IDS[0]], at=MOMENT)
                for each in called:
                    confirm(*each)

        monkeypatch.setattr(Keyring, "confirm", confirm_late)
        holder.place_requests([IDS[1]], at=MOMENT)
        monkeypatch.undo()
        with holder._connect() as connection:
            assert holder.keyring.states() == (state_of(connection), None)
        other.place_requests([IDS[2]], at=MOMENT)
    with Ledger.open(tmp_path / "run", write=True) as ledger:
        assert not ledger.restored.older
        assert len(ledger.requests()) == 3


# -- copies of a run, and histories ------------------------------------------------------------------------------


def tokens_of(run: Path) -> list[bytes]:
    """The pseudonyms of the newest round of a run, in order."""
    with Ledger.open(run) as ledger, ledger._connect() as connection:
        newest = sa.select(sa.func.max(rounds.c.id)).scalar_subquery()
        query = sa.select(memberships.c.token).where(memberships.c.round_id == newest)
        return sorted(connection.execute(query).scalars())


def test_rounds_recorded_again_after_a_restore_have_other_pseudonyms(restoring: Restoring) -> None:
    restoring.restore(run="before", keys="before")
    with restoring.open() as ledger:
        record_next(ledger)
    first = tokens_of(restoring.run)
    shutil.rmtree(restoring.run)
    shutil.copytree(restoring.kept / "run before", restoring.run)
    restoring.accept()
    with restoring.open() as ledger:
        record_next(ledger)  # the same round, attempt, clients and keys
        assert not {*first} & {*tokens_of(restoring.run)}


def test_requests_placed_again_after_a_restore_are_committed_to_by_others(restoring: Restoring) -> None:
    nonces = []
    for _ in range(2):
        restoring.restore(run="before", keys="before")
        with restoring.open() as ledger:
            assert ledger.place_requests(["ada"], at=MOMENT) == (1,)
            with ledger._connect() as connection:
                nonces.append(connection.execute(sa.select(requests.c.nonce)).scalar_one())
            [number] = ledger.numbers_of(["ada"]).values()
            salts = ledger.members.request_salts(number, nonces[-1])
            nonces += [salts.rounds, salts.client, salts.records]
    assert len(set(nonces)) == 8


def test_a_backup_from_just_before_the_newest_round_is_noticed(restoring: Restoring) -> None:
    """The keyring's generation is the same, and the log lacks one leaf: as after a kill, but nobody was killed."""
    restoring.restore(run="after", keys="after")
    with restoring.open() as ledger:
        record_next(ledger, clusters=two_clusters(("ada", "bela", "dora", "ada"))[:1])
    shutil.rmtree(restoring.run)
    shutil.copytree(restoring.kept / "run after", restoring.run)
    with refuses(RunOutdated):
        restoring.open()
    with restoring.open(write=False) as reader:
        restored = reader.restored_from_backup()
        assert (restored.older, restored.accepted, restored.slots) == (True, False, 0)


def test_a_backup_from_before_a_request_that_waits_is_noticed(restoring: Restoring) -> None:
    """No leaf tells of it yet; the request would be lost."""
    restoring.restore(run="after", keys="after")
    with restoring.open() as ledger:
        ledger.place_requests(["ada"], at=MOMENT)
    shutil.rmtree(restoring.run)
    shutil.copytree(restoring.kept / "run after", restoring.run)
    with refuses(RunOutdated):
        restoring.open()


def test_a_copy_that_was_written_to_leaves_the_run_behind_until_that_is_accepted(restoring: Restoring) -> None:
    restoring.restore(run="before", keys="before")
    copy = Path(shutil.copytree(restoring.run, restoring.run.with_name("copy")))
    with Ledger.open(copy, write=True, keys=restoring.keys) as ledger:
        record_next(ledger)
        known = ledger.keyring.state
    with refuses(RunOutdated, restoring.run):
        restoring.open()
    with Ledger.open(copy, write=True, keys=restoring.keys) as ledger:
        assert ledger.keyring.state == known  # refusing it has changed nothing
    restoring.accept()
    with restoring.open() as ledger:
        record_next(ledger)
    with refuses(RunOutdated, copy):
        Ledger.open(copy, write=True, keys=restoring.keys)


def test_a_run_that_is_open_does_not_write_once_another_copy_has(restoring: Restoring) -> None:
    restoring.restore(run="before", keys="before")
    copy = Path(shutil.copytree(restoring.run, restoring.run.with_name("copy")))
    with restoring.open() as ledger, Ledger.open(copy, write=True, keys=restoring.keys) as other:
        record_next(other)
        known = other.keyring.state
        with refuses(RunOutdated):
            record_next(ledger)
        assert (ledger.last_round, ledger.keyring.state) == (1, known)


def test_a_longer_history_is_not_taken_back_once_another_was_accepted(restoring: Restoring) -> None:
    restoring.restore(run="after", keys="after")
    with restoring.open() as ledger:
        for _ in range(3):
            record_next(ledger, clusters=two_clusters(("ada", "bela", "dora", "ada"))[:1])
    longer = Path(shutil.copytree(restoring.run, restoring.run.with_name("longer")))
    shutil.rmtree(restoring.run)
    shutil.copytree(restoring.kept / "run after", restoring.run)
    restoring.accept()
    with refuses(RunOutdated):
        Ledger.open(longer, write=True, keys=restoring.keys)


def test_a_keyring_from_before_a_run_was_accepted_is_older(restoring: Restoring) -> None:
    restoring.restore(run="before", keys="after")
    restoring.accept()
    shutil.rmtree(restoring.keys)
    shutil.copytree(restoring.kept / "keys after", restoring.keys)
    with refuses(KeyringOutdated):
        restoring.open()


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_killed_while_it_is_accepted_a_run_is_not_and_can_be_again(
    restoring: Restoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    restoring.restore(run="before", keys="after")
    with monkeypatch.context() as patch:
        patch.setattr(Keyring, "adopt", interrupted)
        with pytest.raises(KeyboardInterrupt):
            restoring.accept()
    with refuses(RunOutdated):
        restoring.open()
    restoring.accept()
    with restoring.open() as ledger:
        assert [request.state for request in ledger.requests()] == [RequestState.WAITING]
        assert ledger.restored.slots == 1


def test_a_run_is_not_accepted_while_another_process_holds_it(restoring: Restoring) -> None:
    with restoring.open(), refuses(RunInUse):
        restoring.accept()


def test_a_run_from_before_a_withdrawal_is_no_killed_one(restoring: Restoring) -> None:
    """Killed between the destruction of a key and the end of its erasure; then the run alone is restored."""
    restoring.restore(run="before", keys="before")
    with restoring.open() as ledger:
        ledger.place_requests(["cleo"], at=MOMENT)
        with ledger._connect() as connection:
            before = state_of(connection)
    restoring.keep("asked")
    with restoring.open() as ledger:
        [number] = ledger.numbers_of(["cleo"]).values()
        ledger.keyring.advance(before, replace(before, commits=before.commits + 1, root=bytes(32)), restoring.run)
        ledger.keyring.forget([number])
    with refuses(RunOutdated):
        restoring.open()
