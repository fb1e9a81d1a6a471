"""SQLite is set up as promised, and its formats are told apart."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from disavow.errors import LedgerVersion, RunError, RunInUse, RunMissing
from disavow.ledger import Ledger, backend, database, fsck
from disavow.ledger.schema import metadata
from disavow.ledger.sqlite import SQLite
from tests.cli.forked import disavow
from tests.cli.process import assert_refused
from tests.ledger.making import change, create, files_of, record_next
from tests.refusals import refuses

PRAGMAS = {"foreign_keys": 1, "secure_delete": 1, "synchronous": 2, "journal_mode": "wal"}


@pytest.mark.parametrize("write", [True, False])
def test_the_pragmas_are_really_set_on_every_connection(tmp_path: Path, write: bool) -> None:
    with create(tmp_path / "run"):
        pass
    # two at a time, so that the pool has to open a second one
    with (
        Ledger.open(tmp_path / "run", write=write) as ledger,
        ledger._engine.connect() as one,
        ledger._engine.connect() as two,
    ):
        for connection in (one, two):
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            found = {name: raw.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
            assert found == PRAGMAS
            assert raw.execute("PRAGMA query_only").fetchone()[0] == (0 if write else 1)


def test_foreign_keys_are_enforced_for_writers_and_nothing_can_be_written_by_readers(tmp_path: Path) -> None:
    orphan = "INSERT INTO evaluations (round_id, metrics) VALUES (77, '{}')"
    with create(tmp_path / "run") as ledger, pytest.raises(sa.exc.IntegrityError), ledger._engine.begin() as writer:
        writer.exec_driver_sql(orphan)
    with (
        Ledger.open(tmp_path / "run") as ledger,
        ledger._engine.connect() as reader,
        refuses(RunError, "cannot be written"),
    ):
        reader.exec_driver_sql("DELETE FROM members")


def test_a_reader_sees_a_recorded_round_while_the_writer_is_still_there(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer, Ledger.open(tmp_path / "run") as reader:
        record_next(writer)
        assert reader.next_round() == (2, 1)


@pytest.mark.parametrize("name", ["a b", "50%", "what?", "#1", "ünï"])
def test_a_run_lives_in_a_directory_of_any_name(tmp_path: Path, name: str) -> None:
    with create(tmp_path / name) as ledger:
        record_next(ledger)
    with Ledger.open(tmp_path / name) as ledger:
        assert ledger.next_round() == (2, 1)


# -- formats -----------------------------------------------------------------------------------------------------


def _migrated(directory: Path) -> sa.Engine:
    directory.mkdir(exist_ok=True)
    engine = database.connect(directory, write=True)
    database.migrate(engine)
    return engine


def test_a_database_migrated_from_nothing_is_the_one_the_schema_describes(tmp_path: Path) -> None:
    engine = _migrated(tmp_path / "new")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_new_file_is_what_a_migration_from_nothing_makes_of_it(tmp_path: Path) -> None:
    _migrated(tmp_path / "migrated").dispose()
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        database.make_empty(SQLite(tmp_path / name))
    dumps = []
    for name in ("migrated", "one", "another"):
        with closing(sqlite3.connect(tmp_path / name / database.NAME)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            dumps.append(list(connection.iterdump()))
    assert dumps[0] == dumps[1] == dumps[2]
    assert f"VALUES('{database.HEAD}')" in "\n".join(dumps[0])


def test_migrations_and_schema_agree_in_what_alembic_does_not_compare(tmp_path: Path) -> None:
    _migrated(tmp_path / "migrated").dispose()
    (tmp_path / "declared").mkdir()
    declared = database.connect(tmp_path / "declared", write=True)
    metadata.create_all(declared)
    declared.dispose()
    migrated = _shape(tmp_path / "migrated" / database.NAME)
    migrated.pop("alembic_version")
    assert migrated == _shape(tmp_path / "declared" / database.NAME)


def _shape(path: Path) -> dict[str, Any]:
    """Per table: columns, keys, indices (unique, partial), and whether it has row ids."""
    with closing(sqlite3.connect(path)) as connection:
        shape: dict[str, Any] = {}
        for _, table, kind, _, without_rowid, _ in connection.execute("PRAGMA table_list").fetchall():
            if kind != "table" or table.startswith("sqlite_"):
                continue
            [(ddl,)] = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [table])
            indices = connection.execute(f"PRAGMA index_list({table})").fetchall()
            shape[table] = {
                "columns": connection.execute(f"PRAGMA table_xinfo({table})").fetchall(),
                "keys": sorted(row[2:] for row in connection.execute(f"PRAGMA foreign_key_list({table})")),
                "without rowid": without_rowid,
                "autoincrement": "AUTOINCREMENT" in ddl,
                "indices": sorted(
                    (
                        [row[2] for row in connection.execute(f"PRAGMA index_info({index[1]})")],
                        index[2:],
                    )
                    for index in indices
                ),
            }
        return shape


def test_the_initial_migration_is_the_only_one() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(database.__file__).parent / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    assert [each.revision for each in scripts.walk_revisions()] == [database.HEAD]


def test_migrating_what_is_newest_changes_nothing(tmp_path: Path) -> None:
    _migrated(tmp_path / "new").dispose()
    before = (tmp_path / "new" / database.NAME).read_bytes()
    _migrated(tmp_path / "new").dispose()
    assert (tmp_path / "new" / database.NAME).read_bytes() == before


def test_a_newer_format_is_refused_with_what_to_do(run_dir: Path) -> None:
    change(run_dir, "UPDATE alembic_version SET version_num = '9999'")
    before = files_of(run_dir)
    for write in (False, True):
        with refuses(LedgerVersion, "9999", "newer disavow"):
            Ledger.open(run_dir, write=write)
    with refuses(LedgerVersion, "9999"):
        fsck(run_dir)
    assert files_of(run_dir) == before


@pytest.mark.parametrize("command", ["status", "fsck", "resume"])
def test_a_newer_format_is_exit_6_on_the_command_line(run_dir: Path, command: str) -> None:
    change(run_dir, "UPDATE alembic_version SET version_num = '9999'")
    assert_refused(disavow(command, run_dir), LedgerVersion, "9999")


@pytest.mark.parametrize("found", ["0001", "0006"])
def test_a_format_that_was_never_released_is_refused_with_what_to_do(run_dir: Path, found: str) -> None:
    change(run_dir, f"UPDATE alembic_version SET version_num = '{found}'")
    before = files_of(run_dir)
    for write in (False, True):
        with refuses(LedgerVersion, found, "train a new one"):
            Ledger.open(run_dir, write=write)
    with refuses(LedgerVersion, found):
        fsck(run_dir)
    assert files_of(run_dir) == before


@pytest.mark.parametrize(
    "content",
    [b"", b"this is a shopping list\n" * 200, sqlite3.sqlite_version.encode()],
    ids=["empty", "text", "short"],
)
@pytest.mark.parametrize("write", [True, False])
def test_a_file_that_is_no_ledger_is_no_run(tmp_path: Path, content: bytes, write: bool) -> None:
    (tmp_path / database.NAME).write_bytes(content)
    with refuses(RunMissing, tmp_path / database.NAME):
        Ledger.open(tmp_path, write=write)
    assert (tmp_path / database.NAME).read_bytes() == content


def test_another_programs_database_is_no_run(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / database.NAME)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with refuses(RunMissing, tmp_path / database.NAME):
        Ledger.open(tmp_path)


def test_an_error_of_the_database_says_nothing_of_the_values_it_was_given(run_dir: Path) -> None:
    """Values are client ids, salts and digests; an exception ends up in logs."""
    engine = database.connect(run_dir, write=False)
    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError) as caught:
        connection.execute(sa.text("SELECT * FROM nowhere WHERE id = :id"), {"id": "client-03"})
    assert "client-03" not in str(caught.value)
    engine.dispose()


def test_a_ledger_that_somebody_is_writing_is_in_use_not_damaged(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(run_dir / database.NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with Ledger.open(run_dir, shared=True) as ledger, refuses(RunInUse, "being written"):
            ledger.place_requests(["client-01"], at=datetime.now(UTC))
