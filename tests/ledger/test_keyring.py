"""The keyring: who is in it, forgetting, rotation, copies."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.errors import (
    ConfigError,
    LeaverReturns,
    LedgerError,
)
from disavow.ledger import fsck
from disavow.ledger.keyring import Keyring
from tests.ledger.keyrings import RUN, bytes_of, secrets_of
from tests.ledger.making import create, record_next
from tests.refusals import refuses


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
    parts = {client: secrets_of(keyring, client) for client in gone}
    keyring.rotate()
    parts = {client: [*parts[client], *secrets_of(keyring, client)] for client in gone}
    rows = {client: numbers_of_row(keyring, client) for client in gone[:3]}
    keyring.forget([keyring.present()[client].number for client in gone])
    data = bytes_of(keyring)
    for client in gone:
        assert [part for part in parts[client] if part != bytes(32) and part in data] == []
        assert keyring.find(client) is None
        assert keyring.has_left(client)
    assert set(keyring.present()) == set(ids) - set(gone)
    assert (keyring.count(), keyring.tombstones()) == (2000, 1000)
    assert keyring.faults() == []
    # nor does a row say where its key was, or what the run called it: only that somebody of this id has left
    for client in rows:
        assert numbers_of_row(keyring, client) is None
    with closing(sqlite3.connect(keyring.folder / "clients.sqlite3")) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(tombstones)")]
        assert columns == ["lookup", "gone", "readmitted"]
        kept = connection.execute("SELECT DISTINCT gone, readmitted FROM tombstones").fetchall()
        assert kept == [(1, None)]


def numbers_of_row(keyring: Keyring, client: str) -> tuple[int, int] | None:
    """The number and the place in the row of a client, found by the hash of its id."""
    with closing(sqlite3.connect(keyring.folder / "clients.sqlite3")) as connection:
        query = "SELECT number, place FROM clients WHERE lookup = ?"
        found: tuple[int, int] | None = connection.execute(query, [keyring._lookup(client)]).fetchone()
        return found


def test_of_a_small_table_no_free_page_tells_what_the_run_called_a_leaver(keyring: Keyring) -> None:
    """The run's backups may still have the number, beside the slots that its request withdrew."""
    ids = [f"client-{(number * 7919) % 301:03}" for number in range(300)]
    for start in range(0, len(ids), 50):
        keyring.register(ids[start : start + 50])
    numbers = {client: keyring.present()[client].number for client in ids[::7]}
    keyring.forget(numbers.values())
    data = bytes_of(keyring)
    assert [client for client, number in numbers.items() if number.to_bytes(8, "big") in data] == []


def test_places_say_nothing_about_ids_or_about_who_came_when(keyring: Keyring) -> None:
    for number in range(60):
        keyring.register([f"client-{number:03}"])
    positions = [row[1] for number in range(60) if (row := numbers_of_row(keyring, f"client-{number:03}"))]
    rises = sum(one < two for one, two in pairwise(positions))
    assert len(set(positions)) == 60
    assert 12 < rises < 47  # of 59; about 2e-6 by chance
    free = keyring.present()["client-007"].number
    keyring.forget([free])
    assert (keyring.folder / "keys.1").stat().st_size == (128 + 1) * 32
    assert keyring.faults() == []


def test_whoever_was_forgotten_cannot_return_and_forgetting_twice_changes_nothing(keyring: Keyring) -> None:
    number = keyring.register(["ada", "bela"])["ada"]
    keyring.forget([number])
    generation = keyring.generation
    keyring.forget([number])
    assert (keyring.generation, keyring.has_left("ada")) == (generation, True)
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
keyring.forget([int(sys.argv[2])])
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
    slow = threading.Thread(target=other.forget, args=([numbers["ada"]],))
    slow.start()
    assert waiting.wait(30)
    keyring.forget([numbers["bela"]])
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
    copied.forget([number])
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


# -- damage, forks, interrupted making ---------------------------------------------------------------------------
