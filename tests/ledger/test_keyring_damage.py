"""Damaged, forked, interrupted and raced keyrings; what a run tells without one."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from disavow.domain import Evaluation
from disavow.errors import (
    ConfigError,
    MetricNamesClient,
)
from disavow.ledger import pseudonyms
from disavow.ledger.keyring import Keyring, never_opened_in, unfinished_in
from disavow.ledger.pseudonyms import RoundName
from disavow.ledger.schema import memberships, rounds, slots
from tests.ledger.keyrings import RUN, bytes_of
from tests.ledger.making import IDS, MOMENT, create, record_next, two_clusters
from tests.refusals import refuses


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


# -- successors and excluded records -----------------------------------------------------------------------------


def replaced(keyring: Keyring, client: str, records: list[str]) -> tuple[int, int]:
    """Let a successor take a client's place; the numbers of both."""
    before = keyring.present()[client].number
    after = keyring.prepare_successors([before])[before]
    keyring.put_in_place_of({before: after}, {client: records})
    return before, after


def test_a_prepared_successor_changes_nothing_until_it_is_put_in_place(keyring: Keyring) -> None:
    numbers = keyring.register(["ada", "bela"])
    known = keyring.present()
    successor = keyring.prepare_successors([numbers["ada"]])[numbers["ada"]]
    assert keyring.prepare_successors([numbers["ada"]]) == {numbers["ada"]: successor}
    assert (keyring.present(), keyring.count(), keyring.exclusions()) == (known, 2, {})
    assert keyring.by_number([successor])[successor].id == "ada"
    assert keyring.faults() == []

    keyring.put_in_place_of({numbers["ada"]: successor}, {"ada": ["r1"]})
    now = keyring.present()
    assert (now["ada"].number, now["bela"], keyring.count()) == (successor, known["bela"], 2)
    assert set(now["ada"].keys).isdisjoint(known["ada"].keys)
    assert keyring.by_number([numbers["ada"]])[numbers["ada"]].keys == known["ada"].keys
    assert keyring.predecessors() == {numbers["ada"]}
    assert keyring.faults() == []
    generation = keyring.generation
    keyring.put_in_place_of({numbers["ada"]: successor}, {"ada": ["r1"]})  # whoever opens the run does it again
    assert (keyring.present(), keyring.generation) == (now, generation)


def test_a_predecessor_is_forgotten_without_a_tombstone_and_its_successor_stays(keyring: Keyring) -> None:
    keyring.register([f"client-{i}" for i in range(40)])
    old = keyring.present()["client-7"].keys
    before, after = replaced(keyring, "client-7", ["r1"])
    keyring.forget([before])
    keyring.forget([before])
    assert old[0] not in bytes_of(keyring)
    assert (keyring.count(), keyring.tombstones(), keyring.has_left("client-7")) == (40, 0, False)
    assert keyring.present()["client-7"].number == after
    assert keyring.register(["client-7"]) == {"client-7": after}
    assert keyring.faults() == []


def test_whoever_leaves_takes_a_prepared_successor_along_and_its_erased_records_stay(keyring: Keyring) -> None:
    numbers = keyring.register(["ada", "bela"])
    keyring.exclude({"ada": ["r1"]})
    successor = keyring.prepare_successors([numbers["ada"]])[numbers["ada"]]
    keys = keyring.by_number([successor])[successor].keys
    keyring.forget([numbers["ada"]])
    assert keys[0] not in bytes_of(keyring)
    assert (keyring.by_number([successor]), keyring.count(), keyring.has_left("ada")) == ({}, 1, True)
    assert keyring.exclusions(["ada"])["ada"].excludes("r1")
    assert keyring.exclusions() == {}  # nobody who is in
    assert keyring.faults() == []


def test_erased_records_add_up_over_successors_and_are_known_by_hashes_alone(keyring: Keyring) -> None:
    keyring.register(["ada", "bela"])
    replaced(keyring, "ada", ["patient-17"])
    replaced(keyring, "ada", ["patient-18", "patient-17"])
    found = keyring.exclusions()
    assert list(found) == ["ada"]
    assert len(found["ada"].hashes) == 2
    assert [found["ada"].excludes(f"patient-{i}") for i in (16, 17, 18)] == [False, True, True]
    assert b"patient" not in bytes_of(keyring)
    both = keyring.exclusions(["bela", "ada"])
    assert (both["ada"], both["bela"].hashes) == (found["ada"], frozenset())
    assert both["bela"].key != both["ada"].key  # the same record has another hash at another client
    assert len(keyring.predecessors()) == 2
    assert keyring.faults() == []


def test_copies_and_rotations_keep_successors_predecessors_and_erased_records(
    keyring: Keyring, tmp_path: Path
) -> None:
    keyring.register(["ada", "bela", "cleo"])
    before, _ = replaced(keyring, "ada", ["r1"])
    bela = keyring.present()["bela"].number
    prepared = keyring.prepare_successors([bela])[bela]
    keyring.ask_records(bela, b"n" * 16, ["r2", "r\udc80"])
    keyring.rotate()
    assert keyring.faults() == []
    with closing(keyring.copy(tmp_path / "copy")) as made:
        for each in (keyring, made):
            assert set(each.by_number([before, prepared])) == {before, prepared}
            assert each.exclusions()["ada"].excludes("r1")
            assert each.prepare_successors([bela]) == {bela: prepared}
            assert each.requested_records(bela, b"n" * 16) == ("r2", "r\udc80")
            assert each.faults() == []
    keyring.forget([bela])
    assert keyring.requested_records(bela, b"n" * 16) == ()


def test_a_second_key_of_nobody_is_found(keyring: Keyring) -> None:
    number = keyring.register(["ada"])["ada"]
    keyring.prepare_successors([number])
    with keyring._writing() as connection:
        connection.execute("UPDATE clients SET marked = 1, sealed = NULL WHERE number = ?", [number])
        connection.execute("UPDATE facts SET value = 0 WHERE name = 'clients'")
    assert any("succeeds a client who is not there" in each for each in keyring.faults())
