"""Who left is remembered outside the run: a run that was restored from a backup does not bring anybody back."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from disavow.domain import RequestState, Verdict, VerdictKind
from disavow.errors import ConfigError, LedgerError
from disavow.ledger import Ledger, journal, log
from disavow.ledger.keys import fingerprint, tombstone, tombstone_key
from disavow.ledger.tombstones import FOLDER, RESTORED, Restored, listed, remember, restored
from tests.ledger.making import IDS, MOMENT, change, create, record_next
from tests.refusals import refuses

RUN_ID = "0123456789abcdef" * 2
STONES = [bytes([i]) * 32 for i in range(5)]
KEY = fingerprint(b"k" * 32)


# -- the list ------------------------------------------------------------------------------------------------------


def test_what_is_listed_is_read_back_in_order_and_once(tmp_path: Path) -> None:
    assert listed(tmp_path, RUN_ID) == ("", ())
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind
    remember(tmp_path, RUN_ID, KEY, STONES[:2])
    remember(tmp_path, RUN_ID, KEY, [STONES[1], STONES[3], STONES[3]])
    assert listed(tmp_path, RUN_ID) == (KEY, (STONES[0], STONES[1], STONES[3]))
    path = tmp_path / FOLDER / RUN_ID
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(path.read_text().splitlines()) == 4


@pytest.mark.parametrize("cut", [1, 30, 64, 65, 66, 100])
def test_a_line_that_a_crash_cut_off_was_never_written(tmp_path: Path, cut: int) -> None:
    remember(tmp_path, RUN_ID, KEY, STONES[:2])
    path = tmp_path / FOLDER / RUN_ID
    path.write_bytes(path.read_bytes()[:-cut])
    whole = STONES[: 2 - (cut + 64) // 65]
    assert listed(tmp_path, RUN_ID) == (KEY, tuple(whole))
    remember(tmp_path, RUN_ID, KEY, STONES[1:3])
    assert set(listed(tmp_path, RUN_ID)[1]) == {*whole, *STONES[1:3]}


def test_a_first_line_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    remember(tmp_path, RUN_ID, KEY, ())
    path = tmp_path / FOLDER / RUN_ID
    path.write_bytes(path.read_bytes()[:10])
    remember(tmp_path, RUN_ID, KEY, STONES[:1])
    assert listed(tmp_path, RUN_ID) == (KEY, (STONES[0],))


@pytest.mark.parametrize("damage", [b"nonsense\n", b"\xff\n", STONES[0].hex().upper().encode() + b"x\n"])
def test_a_damaged_list_is_refused_and_left_as_it_is(tmp_path: Path, damage: bytes) -> None:
    remember(tmp_path, RUN_ID, KEY, STONES[:1])
    path = tmp_path / FOLDER / RUN_ID
    path.write_bytes(path.read_bytes() + damage)
    before = path.read_bytes()
    for attempt in (lambda: listed(tmp_path, RUN_ID), lambda: remember(tmp_path, RUN_ID, KEY, STONES[2:])):
        with refuses(ConfigError, "backup"):
            attempt()
    assert path.read_bytes() == before


def test_another_key_is_refused(tmp_path: Path) -> None:
    remember(tmp_path, RUN_ID, KEY, STONES[:1])
    with refuses(LedgerError, "another key"):
        remember(tmp_path, RUN_ID, fingerprint(b"o" * 32), STONES[1:])


def test_the_id_of_a_foreign_run_leads_nowhere_else(tmp_path: Path) -> None:
    for wrong in ("../../../etc/passwd", "", RUN_ID + "/", RUN_ID.upper()):
        with refuses(LedgerError, "damaged"):
            remember(tmp_path, wrong, KEY, STONES)
    assert list(tmp_path.iterdir()) == []


def test_a_list_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / FOLDER / RUN_ID).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        remember(tmp_path, RUN_ID, KEY, STONES)
    assert (tmp_path / "elsewhere").read_bytes() == b""


# -- a run that was restored ---------------------------------------------------------------------------------------


def leave(ledger: Ledger, keys: Path, *ids: str) -> None:
    """Let clients leave who are deniable, to the end."""
    ledger.place_requests(ids, key=tombstone_key(keys, run=ledger.directory), at=MOMENT)
    with ledger._begin() as connection:
        verdict = Verdict(VerdictKind.DENIABLE)
        waiting = journal.waiting(connection)
        log.log_erasure(
            connection, journal.open_erasure(connection, waiting, verdict, mechanism="retrain", at=MOMENT)
        )
    ledger.keep_tombstones()
    with ledger._begin() as connection:
        journal.delete_leavers(connection, journal.leavers_to_delete(connection))
    assert ledger.purge()
    with ledger._begin() as connection:
        journal.finish(connection, at=MOMENT)


def reopen(run: Path, keys: Path | None) -> Ledger:
    return Ledger.open(run, write=True, keys=keys)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def backup_and_leave(run: Path, keys: Path, leavers: Sequence[str]) -> Path:
    """A run with a round, and the backup of it that was made before some left."""
    with create(run) as ledger:
        record_next(ledger)
    backup = Path(shutil.copytree(run, run.with_name("backup")))
    with reopen(run, keys) as ledger:
        for client in leavers:
            leave(ledger, keys, client)
    return backup


def test_leavers_of_a_restored_run_ask_again_in_the_order_in_which_they_left(tmp_path: Path, keys: Path) -> None:
    backup = backup_and_leave(tmp_path / "run", keys, ["dora", "bela"])
    with Ledger.open(backup) as reader, reader._connect() as connection:
        assert restored(connection, keys, directory=backup) == Restored(("dora", "bela"))
        assert reader.requests() == ()
    with reopen(backup, keys) as ledger:
        assert ledger.restored == Restored(("dora", "bela"))
        assert [(r.client, r.state, r.remark) for r in ledger.requests()] == [
            ("dora", RequestState.WAITING, RESTORED),
            ("bela", RequestState.WAITING, RESTORED),
        ]
    with reopen(backup, keys) as ledger:  # once is enough
        assert (ledger.restored, len(ledger.requests())) == (Restored(), 2)


def test_a_run_that_forgot_nobody_is_as_it_was(tmp_path: Path, keys: Path) -> None:
    backup_and_leave(tmp_path / "run", keys, ["dora"])
    with reopen(tmp_path / "run", keys) as ledger:
        assert (ledger.restored, len(ledger.requests())) == (Restored(), 1)


def test_who_joined_after_the_backup_and_left_cannot_return(tmp_path: Path, keys: Path) -> None:
    run = tmp_path / "run"
    create(run).close()
    backup = Path(shutil.copytree(run, tmp_path / "backup"))
    with reopen(run, keys) as ledger:
        ledger.register(["new"], key=tombstone_key(keys, run=run))
        leave(ledger, keys, "new")
    with reopen(backup, keys) as ledger:
        assert ledger.restored == Restored(strangers=1)
        key = tombstone_key(keys, run=run)
        assert (ledger.has_left("new", key=key), ledger.has_left("newer", key=key)) == (True, False)
        with refuses(LedgerError, "'new'", "cannot return"):
            ledger.register(["new"], key=key)
        assert ledger.clients() == IDS


def test_what_a_lost_list_has_forgotten_is_listed_again(tmp_path: Path, keys: Path) -> None:
    run = tmp_path / "run"
    backup = backup_and_leave(run, keys, ["dora"])
    shutil.rmtree(keys / FOLDER)
    reopen(run, keys).close()
    with reopen(backup, keys) as ledger:
        assert ledger.restored.clients == ("dora",)


def test_a_cancelled_request_does_not_answer_for_who_left(tmp_path: Path, keys: Path) -> None:
    run = tmp_path / "run"
    create(run).close()
    with reopen(run, keys) as ledger:
        ledger.place_requests(["ada"], key=tombstone_key(keys, run=run), at=MOMENT)
        ledger.cancel_request("ada", at=MOMENT)
    backup = Path(shutil.copytree(run, tmp_path / "backup"))
    with reopen(run, keys) as ledger:
        leave(ledger, keys, "ada")
    with reopen(backup, keys) as ledger:
        assert ledger.restored.clients == ("ada",)


def test_without_the_key_nobody_is_recognised_so_that_nothing_is_written(tmp_path: Path, keys: Path) -> None:
    backup = backup_and_leave(tmp_path / "run", keys, ["dora"])
    (keys / "tombstone.key").unlink()
    with pytest.raises(LedgerError):
        reopen(backup, keys)
    with Ledger.open(backup) as ledger, ledger._connect() as connection:
        assert restored(connection, keys, directory=backup) == Restored(strangers=1)
    assert not (keys / "tombstone.key").exists()


def test_with_another_key_a_restored_run_is_not_opened_for_writing(tmp_path: Path, keys: Path) -> None:
    backup = backup_and_leave(tmp_path / "run", keys, ["dora"])
    (keys / "tombstone.key").write_bytes(b"o" * 32)
    with refuses(LedgerError, "another key"):
        reopen(backup, keys)


def test_a_copy_that_is_tried_out_keeps_no_list(tmp_path: Path, keys: Path) -> None:
    backup = backup_and_leave(tmp_path / "run", keys, ["dora"])
    before = (keys / FOLDER / next((keys / FOLDER).iterdir()).name).read_bytes()
    with reopen(backup, None) as ledger:
        assert ledger.restored == Restored()
        leave(ledger, keys, "ada")
    assert next((keys / FOLDER).iterdir()).read_bytes() == before


def test_a_list_names_nobody(tmp_path: Path, keys: Path) -> None:
    backup_and_leave(tmp_path / "run", keys, ["dora"])
    [path] = (keys / FOLDER).iterdir()
    with Ledger.open(tmp_path / "run") as ledger:
        stone = tombstone(tombstone_key(keys, run=tmp_path / "run"), ledger.run_id, "dora")
        assert path.name == ledger.run_id
    assert path.read_text().splitlines()[1:] == [stone.hex()]
    assert "dora" not in path.read_text()


def test_keys_that_cannot_be_written_stop_an_erasure_before_anybody_is_deleted(tmp_path: Path, keys: Path) -> None:
    run = tmp_path / "run"
    create(run).close()
    with reopen(run, keys) as ledger:
        tombstone_key(keys, run=run)
        (keys / FOLDER).write_text("not a folder")
        with refuses(ConfigError, keys):
            leave(ledger, keys, "ada")
        assert [request.client for request in ledger.requests()] == ["ada"]


def test_a_damaged_run_id_is_refused(tmp_path: Path, keys: Path) -> None:
    create(tmp_path / "run").close()
    change(tmp_path / "run", "UPDATE run SET run_id = '../../somewhere'")
    with refuses(LedgerError, "damaged"):
        reopen(tmp_path / "run", keys)
