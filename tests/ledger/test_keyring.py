"""The keyring: ids sealed, keys destroyed for good, older copies noticed, and nothing to link without it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.domain import Evaluation
from disavow.errors import (
    ConfigError,
    LeaverReturns,
    LedgerError,
    MetricNamesClient,
)
from disavow.ledger import fsck, pseudonyms
from disavow.ledger.keyring import Keyring, never_opened_in, unfinished_in
from disavow.ledger.pseudonyms import RoundName
from disavow.ledger.schema import memberships, rounds, slots
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
    rows = {client: numbers_of_row(keyring, client) for client in gone[:3]}
    keyring.forget([keyring.present()[client].number for client in gone])
    data = bytes_of(keyring)
    for client in gone:
        assert [part for part in told[client] if part != bytes(32) and part in data] == []
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
    places = [row[1] for number in range(60) if (row := numbers_of_row(keyring, f"client-{number:03}"))]
    rises = sum(one < two for one, two in pairwise(places))
    assert len(set(places)) == 60
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


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("keys.1", "zeroed"),
        ("keys.1", "cut"),
        ("keys.2", "zeroed"),
        ("keys.2", "cut"),
        ("keys.2", "missing"),
        ("keys.1", "secret"),
    ],
)
def test_damaged_files_of_keys_are_refused(keyring: Keyring, name: str, damage: str) -> None:
    """With zeros for keys, rounds would be recorded that anybody can open, and ids would not be found."""
    keyring.register(["ada", "bela"])
    keyring.rotate()
    keyring.close()
    path = keyring.folder / name
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"zeroed": bytes(len(data)), "cut": data[:-32], "secret": bytes(32) + data[32:]}[damage])
    again = Keyring(keyring.folder.parent.parent, RUN)
    with refuses(ConfigError, "damaged"):
        again.find("ada")
    with refuses(ConfigError, "damaged"):
        again.present()
    again.close()


def test_a_keyring_of_another_owner_is_refused(keyring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.register(["ada"])
    keyring.close()
    monkeypatch.setattr(os, "geteuid", lambda: (keyring.folder.stat().st_uid) + 1)
    with refuses(ConfigError, keyring.folder):
        keyring.present()


def test_the_length_of_an_id_is_not_that_of_what_is_stored(keyring: Keyring) -> None:
    keyring.register(["a", "b" * 40, "c" * 64])
    assert set(keyring.present()) == {"a", "b" * 40, "c" * 64}
    with closing(sqlite3.connect(keyring.folder / "clients.sqlite3")) as connection:
        assert len({len(sealed) for (sealed,) in connection.execute("SELECT sealed FROM clients")}) == 1


def test_what_a_child_process_writes_is_not_lost_when_its_parent_closes_the_keyring(keyring: Keyring) -> None:
    """With SQLite's state of before the fork, neither knows of the other: the first to close deletes the log."""
    keyring.register(["ada"])
    (read, write), (reads, writes) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            keyring.present()
            os.write(writes, b"open")
            os.read(read, 6)
            keyring.register(["of the child"])
            status = 0
        finally:
            os._exit(status)
    os.read(reads, 4)
    keyring.close()
    os.write(write, b"closed")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for descriptor in (read, write, reads, writes):
        os.close(descriptor)
    found = subprocess.run(
        [sys.executable, "-c", LISTED, str(keyring.folder.parent.parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split("\n")[:-1] == ["ada", "of the child"]


LISTED = """
import sys
from pathlib import Path
from disavow.ledger.keyring import Keyring
print(*Keyring(Path(sys.argv[1]), "0" * 32).present(), sep="\\n")
"""


def test_threads_find_clients_while_one_of_them_forgets(keyring: Keyring) -> None:
    ids = [f"client-{number:02}" for number in range(40)]
    numbers = keyring.register(ids)
    keyring.present()
    failed: list[BaseException] = []

    def look() -> None:
        try:
            for _ in range(30):
                found = keyring.find_all(ids)
                assert {*ids[20:]} <= found.keys()
                keyring.present()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for client in ids[:20]:
        keyring.forget([numbers[client]])
    for thread in threads:
        thread.join()
    assert failed == []
    assert list(keyring.present()) == ids[20:]


MAKING = """
import os, signal, sys
from pathlib import Path
from disavow.ledger import creation
from disavow.ledger.keyring import Keyring
from tests.ledger.making import create
kind = {"_furnish": creation, "_move": creation}[sys.argv[1]]
setattr(kind, sys.argv[1], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
create(Path(sys.argv[2]))
"""


def make_and_die(step: str, run: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", MAKING, step, str(run)], check=False)
    assert killed.returncode == -signal.SIGKILL


def test_a_keyring_that_was_never_finished_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    monkeypatch.setenv("DISAVOW_KEYS", str(keys))
    make_and_die("_furnish", tmp_path / "run")
    assert len(unfinished_in(keys)) == len(list((keys / "keyring").iterdir())) == 1
    with create(tmp_path / "other") as ledger:
        assert unfinished_in(keys) == []
        assert list((keys / "keyring").iterdir()) == [ledger.keyring.folder]


def test_a_keyring_whose_run_never_came_to_its_place_is_named_and_never_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    monkeypatch.setenv("DISAVOW_KEYS", str(keys))
    make_and_die("_move", tmp_path / "run")
    [orphan] = never_opened_in(keys)
    with create(tmp_path / "other") as ledger:
        assert never_opened_in(keys) == [orphan]
        assert ledger.keyring.folder != orphan


REGISTERING = """
import os, signal, sys
from pathlib import Path
from disavow.ledger.keyring import Keyring
keyring = Keyring(Path(sys.argv[1]), "0" * 32)
Keyring._seal_id = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
keyring.register(["cleo"])
"""


def test_a_kill_while_clients_are_registered_leaves_no_key_of_nobody(keyring: Keyring) -> None:
    keyring.register(["ada"])
    keyring.close()
    killed = subprocess.run([sys.executable, "-c", REGISTERING, str(keyring.folder.parent.parent)], check=False)
    assert killed.returncode == -signal.SIGKILL
    keys = keyring.folder / "keys.1"
    assert sum(any(part) for part in parts(keys.read_bytes())) == 3  # the secret, ada's, and one of nobody
    assert keyring.faults() == []
    keyring.finish_forgetting()
    assert sum(any(part) for part in parts(keys.read_bytes())) == 2
    assert (list(keyring.present()), keyring.faults()) == (["ada"], [])


def parts(data: bytes) -> list[bytes]:
    return [data[at : at + 32] for at in range(0, len(data), 32)]


def test_a_cancelled_request_does_not_keep_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        ledger.place_requests(["ada"], at=MOMENT, openings=tmp_path / "for ada")
        [number] = ledger.numbers_of(["ada"]).values()
        assert ledger.keyring.openings(number) == str(tmp_path / "for ada")
        ledger.cancel_request("ada", at=MOMENT)
        assert ledger.keyring.openings(number) is None


# -- names of metrics --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("accuracy/client-03", False),
        ("client-03", False),
        ("auroc_client-03", False),
        ("f1 of [client-03]", False),
        ("loss/7", False),
        ("recall_at_7", True),
        ("client-033", True),
        ("accuracy", True),
        ("loss", True),
        ("auroc", True),
        ("gone", False),
    ],
)
def test_a_metric_that_names_a_client_is_not_stored(tmp_path: Path, name: str, stored: bool) -> None:
    with create(tmp_path / "run", clients=[*IDS, "client-03", "7", "loss", "gone"]) as ledger:
        ledger.forget([ledger.numbers_of(["gone"])["gone"]])
        record_next(ledger)
        evaluation = Evaluation(**{name: 0.5, "precision": 0.25})
        if stored:
            ledger.note_evaluation(1, evaluation)
        else:
            with pytest.warns(MetricNamesClient, match=name.replace("[", ".").replace("]", ".")):
                ledger.note_evaluation(1, evaluation)
        found = ledger.summary(1).evaluation
        assert found is not None
        assert found.metrics.keys() == {"precision", *([name] if stored else [])}


# -- what is counted once -----------------------------------------------------------------------------------------


def test_the_number_of_clients_that_is_kept_is_that_of_a_recount(keyring: Keyring) -> None:
    numbers = keyring.register(["ada", "bela", "cleo"])
    keyring.register(["ada", "dora"])
    keyring.forget([numbers["bela"]])
    keyring.forget([numbers["bela"]])
    assert keyring.count() == len(keyring.present()) == 3
    assert keyring.faults() == []
    assert set(keyring.some(2)) < {client.number for client in keyring.present().values()}
    with keyring._writing() as connection:
        connection.execute("UPDATE facts SET value = 9 WHERE name = 'clients'")
    assert len(keyring.faults()) == 1


# -- nothing to link without the key -----------------------------------------------------------------------------


def test_without_a_clients_key_its_slots_are_random_to_whoever_has_the_run(tmp_path: Path) -> None:
    """The same clients, with the same updates and sample counts, in the same clusters, round after round."""
    count = 40
    with create(tmp_path / "run") as ledger:
        for _ in range(count):
            record_next(ledger, clusters=two_clusters())
        with ledger._connect() as connection:
            rows = connection.execute(sa.select(memberships).order_by(memberships.c.round_id)).all()
            closed = connection.execute(sa.select(slots.c.commitment)).scalars().all()
            nonce = connection.execute(sa.select(rounds.c.nonce).where(rounds.c.id == 1)).scalar_one()
        keys, run_id = ledger.keyring.present(), ledger.run_id
        order = [
            [slot.member.client for slot in ledger.round(number).slots if slot.member] for number in range(1, 41)
        ]
    assert {row.token[:4] for row in rows} == {number.to_bytes(4, "big") for number in range(1, count + 1)}
    cells = [cell for row in rows for cell in (row.token[4:], row.sealed)] + list(closed)
    assert len({cell[:12] for cell in cells}) == len(cells)  # nothing repeats, whole or in its first bytes
    assert len({len(row.sealed) for row in rows}) == 1
    bits = [byte for cell in cells for byte in cell]
    ones = sum(byte.bit_count() for byte in bits)
    assert abs(ones - 4 * len(bits)) < 5 * (2 * len(bits)) ** 0.5  # five standard deviations
    # the order within a cluster is not that of another round either: each of two members comes first about as often
    first = [clients[0] for clients in order]
    assert 5 < first.count("ada") < count - 5
    # a token is found with the key, and with no other one
    where = RoundName(run_id, 1, 1, nonce)
    tokens = {row.token for row in rows if row.round_id == 1}
    assert {pseudonyms.token(client.first, where) for client in keys.values()} == tokens
    assert pseudonyms.token(bytes(32), where) not in tokens
