"""The keyring: ids sealed, keys destroyed for good, older copies noticed, and nothing to link without it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.domain import RequestState, Verdict, VerdictKind
from disavow.errors import ConfigError, KeyringMissing, KeyringOutdated, LeaverReturns, LedgerError
from disavow.ledger import Ledger, fsck, journal, log, pseudonyms
from disavow.ledger.keyring import Head, Keyring
from disavow.ledger.members import UNKNOWN
from disavow.ledger.pseudonyms import RoundName
from disavow.ledger.schema import memberships, slots
from tests.ledger.making import IDS, MOMENT, create, files_of, record_next, two_clusters
from tests.refusals import refuses

RUN = "0" * 32


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[Keyring]:
    made = Keyring.create(tmp_path / "keys", RUN)
    yield made
    made.close()


def secrets_of(keyring: Keyring, client: str) -> list[bytes]:
    """Whatever tells of a client: its keys, its id."""
    found = keyring.find(client)
    assert found is not None
    return [client.encode(), *found.keys]


def bytes_of(keyring: Keyring) -> bytes:
    return b"".join(files_of(keyring.folder).values())


# -- who is in it ------------------------------------------------------------------------------------------------


def test_clients_are_found_by_id_and_by_number_and_listed_in_order(keyring: Keyring) -> None:
    numbers = keyring.register(["bela", "ada"])
    assert list(keyring.present()) == ["ada", "bela"]
    found = keyring.find("ada")
    assert found is not None
    assert (found.number, found.id) == (numbers["ada"], "ada")
    assert keyring.by_number([numbers["bela"], 17]).keys() == {numbers["bela"]}
    assert keyring.find("cleo") is None
    assert keyring.count() == 2


def test_registering_again_gives_the_same_numbers_and_keys(keyring: Keyring) -> None:
    first, key = keyring.register(["ada"]), keyring.present()["ada"].keys
    assert keyring.register(["ada", "bela"])["ada"] == first["ada"]
    assert keyring.present()["ada"].keys == key


@settings(max_examples=30, deadline=None)
@given(st.sets(st.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable()), max_size=8))
def test_any_ids_read_back_and_none_of_them_is_in_a_file(
    tmp_path_factory: pytest.TempPathFactory, ids: set[str]
) -> None:
    keyring = Keyring.create(tmp_path_factory.mktemp("keys"), RUN)
    keyring.register(ids)
    assert set(keyring.present()) == ids
    again = Keyring(keyring.folder.parent.parent, RUN)
    assert again.present() == keyring.present()
    keyring.close()
    again.close()


@pytest.mark.parametrize("client", ["", "a\0b"])
def test_an_id_that_is_none_is_refused_and_nobody_is_registered(keyring: Keyring, client: str) -> None:
    with pytest.raises(LedgerError):
        keyring.register(["ada", client])
    assert keyring.count() == 0


# -- forgetting --------------------------------------------------------------------------------------------------


def test_nothing_of_whoever_was_forgotten_is_left_in_any_file(keyring: Keyring) -> None:
    """Among many, in no order: pages of the table are split and merged, and keep copies."""
    ids = [f"client-{(number * 7919) % 3001:05}-zeppelin" for number in range(3000)]
    for start in range(0, len(ids), 500):
        keyring.register(ids[start : start + 500])
    gone = ids[::3]
    told = {client: secrets_of(keyring, client) for client in gone}
    keyring.rotate()
    told = {client: [*told[client], *secrets_of(keyring, client)] for client in gone}
    keyring.forget({keyring.present()[client].number: 7 for client in gone})
    data = bytes_of(keyring)
    for client in gone:
        assert [part for part in told[client] if part != bytes(32) and part in data] == []
        assert keyring.find(client) is None
        assert keyring.left(client) == 7
    assert set(keyring.present()) == set(ids) - set(gone)
    assert (keyring.count(), keyring.tombstones()) == (2000, 1000)
    assert keyring.faults() == []


def test_whoever_was_forgotten_cannot_return_and_forgetting_twice_changes_nothing(keyring: Keyring) -> None:
    number = keyring.register(["ada", "bela"])["ada"]
    keyring.forget({number: 1})
    generation = keyring.generation
    keyring.forget({number: 2})
    assert (keyring.generation, keyring.left("ada")) == (generation, 1)
    with refuses(LeaverReturns, "'ada'"):
        keyring.register(["cleo", "ada"])
    assert list(keyring.present()) == ["bela"]


KILLED = """
import os, signal, sys
from pathlib import Path
from typing import Any
from disavow.ledger.keyring import Keyring
keyring = Keyring(Path(sys.argv[1]), "0" * 32)
Keyring._write_keys = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
keyring.forget({int(sys.argv[2]): 1})
"""


def test_a_kill_before_the_key_is_overwritten_is_made_up_for(keyring: Keyring) -> None:
    number = keyring.register(["ada", "bela"])["ada"]
    key = keyring.present()["ada"].first
    keyring.close()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(keyring.folder.parent.parent), str(number)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert key in bytes_of(keyring)
    assert keyring.find("ada") is None  # marked already: nobody finds it any more
    keyring.finish_forgetting()
    assert key not in bytes_of(keyring)
    assert keyring.faults() == []


def test_who_is_marked_while_another_process_finishes_is_not_taken_for_destroyed(
    keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = keyring.register(["ada", "bela"])
    key = keyring.present()["bela"].first
    other = Keyring(keyring.folder.parent.parent, RUN)
    write, waiting = Keyring._write_keys, threading.Event()

    def overtaken(self: Keyring, *arguments: Any, **named: Any) -> None:
        if self is other:
            waiting.set()
            time.sleep(0.2)  # the other one wants to mark its leaver meanwhile
        write(self, *arguments, **named)

    monkeypatch.setattr(Keyring, "_write_keys", overtaken)
    slow = threading.Thread(target=other.forget, args=({numbers["ada"]: 1},))
    slow.start()
    assert waiting.wait(30)
    keyring.forget({numbers["bela"]: 2})
    slow.join()
    other.close()
    assert key not in bytes_of(keyring)
    assert (keyring.unfinished(), keyring.faults()) == (0, [])


# -- rotation, copies, damage ------------------------------------------------------------------------------------


def test_a_rotation_gives_new_keys_for_later_rounds_and_keeps_those_of_earlier_ones(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        before = ledger.keyring.present()["ada"].keys
        assert ledger.keyring.rotate() == 2
        record_next(ledger)
        after = ledger.keyring.present()["ada"].keys
        assert after[:1] == before
        assert after[1] not in (before[0], bytes(32))
        assert ledger.rounds_with("ada") == (1, 2)
        assert ledger.membership(1) == ledger.membership(2)
        ledger.register(["eve"])
        assert ledger.keyring.present()["eve"].keys[0] == bytes(32)
    assert [finding for finding in fsck(tmp_path / "run") if finding.fault] == []


def test_a_copy_is_a_keyring_of_its_own(keyring: Keyring, tmp_path: Path) -> None:
    number = keyring.register(["ada"])["ada"]
    copied = keyring.copy(tmp_path / "backup")
    assert copied.present() == keyring.present()
    copied.forget({number: 1})
    assert list(keyring.present()) == ["ada"]
    with pytest.raises(ConfigError):
        keyring.copy(tmp_path / "backup")
    copied.close()


@pytest.mark.parametrize("name", ["keys.1", "clients.sqlite3", "."])
def test_files_that_others_may_use_are_refused(keyring: Keyring, name: str) -> None:
    keyring.register(["ada"])
    keyring.close()
    path = keyring.folder / name
    path.chmod(path.stat().st_mode | 0o040)
    with refuses(ConfigError, "chmod"):
        keyring.present()
    path.chmod(path.stat().st_mode & ~0o040)
    assert list(keyring.present()) == ["ada"]


def test_a_keyring_that_is_none_is_refused(keyring: Keyring) -> None:
    keyring.register(["ada"])
    keyring.close()
    (keyring.folder / "clients.sqlite3").write_bytes(b"no database")
    for end in ("-wal", "-shm"):
        (keyring.folder / f"clients.sqlite3{end}").unlink(missing_ok=True)
    with refuses(ConfigError, keyring.folder):
        keyring.present()


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
    with pytest.raises(KeyringOutdated):
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
        head = ledger.log_head()
        ledger.keyring.note_head(Head(head.size + 1, bytes(32)), Head(head.size, head.root))
    with Ledger.open(tmp_path / "run", write=True) as ledger:
        assert not ledger.restored.older
        record_next(ledger)
    with Ledger.open(tmp_path / "run", write=True) as ledger:
        assert not ledger.restored.older


# -- what is counted once -----------------------------------------------------------------------------------------


def test_the_number_of_clients_that_is_kept_is_that_of_a_recount(keyring: Keyring) -> None:
    numbers = keyring.register(["ada", "bela", "cleo"])
    keyring.register(["ada", "dora"])
    keyring.forget({numbers["bela"]: 1})
    keyring.forget({numbers["bela"]: 1})
    assert keyring.count() == len(keyring.present()) == 3
    assert keyring.faults() == []
    assert set(keyring.some(2)) < {client.number for client in keyring.present().values()}
    with keyring._writing() as connection:
        connection.execute("UPDATE facts SET value = 9 WHERE name = 'clients'")
    assert len(keyring.faults()) == 1


# -- nothing to link without the key -----------------------------------------------------------------------------


def test_without_a_clients_key_its_slots_are_random_to_whoever_has_the_run(tmp_path: Path) -> None:
    """The same clients, with the same updates and sample counts, in the same clusters, round after round."""
    rounds = 40
    with create(tmp_path / "run") as ledger:
        for _ in range(rounds):
            record_next(ledger, clusters=two_clusters())
        with ledger._connect() as connection:
            rows = connection.execute(sa.select(memberships).order_by(memberships.c.round_id)).all()
            closed = connection.execute(sa.select(slots.c.commitment)).scalars().all()
        keys, run_id = ledger.keyring.present(), ledger.run_id
        order = [
            [slot.member.client for slot in ledger.round(number).slots if slot.member] for number in range(1, 41)
        ]
    assert {row.token[:4] for row in rows} == {number.to_bytes(4, "big") for number in range(1, rounds + 1)}
    cells = [cell for row in rows for cell in (row.token[4:], row.sealed)] + list(closed)
    assert len({cell[:12] for cell in cells}) == len(cells)  # nothing repeats, whole or in its first bytes
    assert len({len(row.sealed) for row in rows}) == 1
    bits = [byte for cell in cells for byte in cell]
    ones = sum(byte.bit_count() for byte in bits)
    assert abs(ones - 4 * len(bits)) < 5 * (2 * len(bits)) ** 0.5  # five standard deviations
    # the order within a cluster is not that of another round either: each of two members comes first about as often
    first = [clients[0] for clients in order]
    assert 5 < first.count("ada") < rounds - 5
    # a token is found with the key, and with no other one
    where = RoundName(run_id, 1, 1)
    tokens = {row.token for row in rows if row.round_id == 1}
    assert {pseudonyms.token(client.first, where) for client in keys.values()} == tokens
    assert pseudonyms.token(bytes(32), where) not in tokens
