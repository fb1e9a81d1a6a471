"""SQLite is set up as promised, and its formats are told apart."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from disavow.errors import LedgerError, LedgerVersion, RunInUse, RunMissing
from disavow.ledger import Ledger, database, fsck, journal
from disavow.ledger.retention import checkpoints
from disavow.ledger.schema import metadata
from tests.cli.forked import disavow
from tests.cli.process import only_error
from tests.erasure.mechanisms.contract import leave, start_toy, toy_settings
from tests.ledger.making import POLICY, change, create, files_of, record_next, vector

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
    orphan = "INSERT INTO evaluations (round_id, accuracy) VALUES (77, 0.5)"
    with create(tmp_path / "run") as ledger, pytest.raises(sa.exc.IntegrityError), ledger._engine.begin() as writer:
        writer.exec_driver_sql(orphan)
    with (
        Ledger.open(tmp_path / "run") as ledger,
        ledger._engine.connect() as reader,
        pytest.raises(sa.exc.OperationalError, match="readonly"),
    ):
        reader.exec_driver_sql("DELETE FROM clients")


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


def _migrated(path: Path) -> sa.Engine:
    engine = database.connect(path, write=True)
    database.migrate(engine)
    return engine


def test_a_database_migrated_from_nothing_is_the_one_the_schema_describes(tmp_path: Path) -> None:
    engine = _migrated(tmp_path / "new.sqlite3")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_new_file_is_what_a_migration_from_nothing_makes_of_it(tmp_path: Path) -> None:
    _migrated(tmp_path / "migrated.sqlite3").dispose()
    for name in ("one.sqlite3", "another.sqlite3"):
        database.make_empty(tmp_path / name)
    dumps = []
    for name in ("migrated", "one", "another"):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite3")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            dumps.append(list(connection.iterdump()))
    assert dumps[0] == dumps[1] == dumps[2]
    assert f"VALUES('{database.HEAD}')" in "\n".join(dumps[0])


def test_migrations_and_schema_agree_in_what_alembic_does_not_compare(tmp_path: Path) -> None:
    _migrated(tmp_path / "migrated.sqlite3").dispose()
    declared = database.connect(tmp_path / "declared.sqlite3", write=True)
    metadata.create_all(declared)
    declared.dispose()
    migrated = _shape(tmp_path / "migrated.sqlite3")
    migrated.pop("alembic_version")
    assert migrated == _shape(tmp_path / "declared.sqlite3")


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


def test_head_is_alembics_head_and_every_format_is_known() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(database.__file__).parent / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [database.HEAD]
    assert database.known_revisions() == sorted(script.revision for script in scripts.walk_revisions())


def test_migrating_what_is_newest_changes_nothing(tmp_path: Path) -> None:
    _migrated(tmp_path / "new.sqlite3").dispose()
    before = (tmp_path / "new.sqlite3").read_bytes()
    _migrated(tmp_path / "new.sqlite3").dispose()
    assert (tmp_path / "new.sqlite3").read_bytes() == before


def test_a_newer_format_is_refused_with_what_to_do(run_dir: Path) -> None:
    change(run_dir, "UPDATE alembic_version SET version_num = '9999'")
    before = files_of(run_dir)
    for write in (False, True):
        with pytest.raises(LedgerVersion, match=r"9999.*newer disavow, use that one"):
            Ledger.open(run_dir, write=write)
    with pytest.raises(LedgerVersion, match="9999"):
        fsck(run_dir)
    assert files_of(run_dir) == before


@pytest.mark.parametrize("command", ["status", "fsck", "resume"])
def test_a_newer_format_is_exit_6_on_the_command_line(run_dir: Path, command: str) -> None:
    change(run_dir, "UPDATE alembic_version SET version_num = '9999'")
    result = disavow(command, run_dir)
    assert result.returncode == 6
    assert "9999" in only_error(result)


def make_first_format(run_dir: Path) -> None:
    """Take a ledger back to the format 0001: what the first version of disavow wrote."""
    with closing(sqlite3.connect(run_dir / database.NAME)) as connection:
        for table in ("updates", "rebuilt", "events", "log", "withdrawals", "requests", "erasures"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DROP INDEX ix_clusters_round_id_first_slot")
        for table, column in (
            ("run", "tombstone_key"),
            ("models", "present"),
            ("models", "thinned"),
            ("rounds", "superseded_by"),
            ("rounds", "seconds"),
            ("rounds", "repeats"),
        ):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        connection.commit()


def test_an_older_format_is_migrated_by_a_writer_and_refused_by_a_reader(run_dir: Path) -> None:
    with Ledger.open(run_dir) as ledger:
        before = ledger.summaries(), ledger.round(2), ledger.clients()
    make_first_format(run_dir)
    old = (run_dir / database.NAME).read_bytes()
    with pytest.raises(LedgerVersion, match=rf"0001, older than this version's 0006; `disavow resume {run_dir}`"):
        Ledger.open(run_dir)
    assert (run_dir / database.NAME).read_bytes() == old
    with Ledger.open(run_dir, write=True) as ledger:
        assert (ledger.summaries(), ledger.round(2), ledger.clients()) == before
    assert [finding for finding in fsck(run_dir) if finding.fault] == []
    with Ledger.open(run_dir) as ledger:  # and from now on it can be read as it is
        assert ledger.requests() == ()


def make_format_0005(run_dir: Path) -> None:
    """Take a ledger back to the format before models could be thinned."""
    with closing(sqlite3.connect(run_dir / database.NAME)) as connection:
        for table, column in (("models", "thinned"), ("rounds", "repeats"), ("erasures", "broken")):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("UPDATE alembic_version SET version_num = '0005'")
        connection.commit()


def test_before_there_was_a_budget_every_model_was_kept_and_rollbacks_went_where_it_broke(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings()) as run:
        run.train()
        [*_, answered] = leave(run, "client-04", "client-05", "client-06", "client-07")
        assert answered.verdict is not None
        assert answered.verdict.round is not None
        with run.ledger.snapshot() as connection:
            due = checkpoints(connection)
    make_format_0005(tmp_path / "run")
    with Ledger.open(tmp_path / "run", write=True) as ledger:
        assert ledger.requests()[-1] == answered
        with ledger.snapshot() as connection:
            assert checkpoints(connection) == due
        assert all(each.kept for each in due)
    assert fsck(tmp_path / "run") == []


def make_format_0003(run_dir: Path) -> None:
    """Take a ledger back to the format before there were events."""
    make_format_0005(run_dir)
    with closing(sqlite3.connect(run_dir / database.NAME)) as connection:
        for table in ("updates", "rebuilt", "events"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("UPDATE alembic_version SET version_num = '0003'")
        connection.commit()


@pytest.mark.parametrize("noise", ["paper", "calibrated"])
def test_older_rounds_get_their_events_superseded_ones_too(tmp_path: Path, noise: str) -> None:
    policy = replace(POLICY, noise=noise, clip=1, tau=0.25)
    with create(tmp_path / "run", policy=policy) as ledger:
        for _ in range(3):
            record_next(ledger)
        with ledger.transaction() as connection:
            journal.supersede(connection, 2, 1)
        record_next(ledger, after=vector(9))
        due = ledger.events()
    assert [(event.number, event.attempt) for event in due] == [(1, 1), (2, 1), (3, 1), (2, 2)]
    assert {(event.mode, event.tau) for event in due} == {(noise, 0.25 if noise == "calibrated" else None)}
    with closing(sqlite3.connect(tmp_path / "run" / database.NAME)) as connection:
        before = connection.execute("SELECT * FROM events ORDER BY round_id").fetchall()
    make_format_0003(tmp_path / "run")
    with Ledger.open(tmp_path / "run", write=True) as ledger:
        assert ledger.events() == due
    with closing(sqlite3.connect(tmp_path / "run" / database.NAME)) as connection:
        assert connection.execute("SELECT * FROM events ORDER BY round_id").fetchall() == before


def test_a_run_whose_events_cannot_be_made_is_left_as_it_was(run_dir: Path) -> None:
    make_format_0003(run_dir)
    change(run_dir, "UPDATE run SET policy = '{}'")
    with pytest.raises(LedgerError, match="damaged, so it cannot be migrated"):
        Ledger.open(run_dir, write=True)
    assert database.check_revision(run_dir) == "0003"


@pytest.mark.parametrize(
    "content",
    [b"", b"this is a shopping list\n" * 200, sqlite3.sqlite_version.encode()],
    ids=["empty", "text", "short"],
)
@pytest.mark.parametrize("write", [True, False])
def test_a_file_that_is_no_ledger_is_no_run(tmp_path: Path, content: bytes, write: bool) -> None:
    (tmp_path / database.NAME).write_bytes(content)
    with pytest.raises(RunMissing, match="not a disavow ledger"):
        Ledger.open(tmp_path, write=write)
    assert (tmp_path / database.NAME).read_bytes() == content


def test_another_programs_database_is_no_run(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / database.NAME)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(RunMissing, match="not a disavow ledger"):
        Ledger.open(tmp_path)


def test_an_error_of_the_database_says_nothing_of_the_values_it_was_given(run_dir: Path) -> None:
    """Values are client ids, salts and digests; an exception ends up in logs."""
    engine = database.connect(run_dir / database.NAME, write=False)
    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError) as caught:
        connection.execute(sa.text("SELECT * FROM nowhere WHERE id = :id"), {"id": "client-03"})
    assert "client-03" not in str(caught.value)
    engine.dispose()


def test_a_ledger_that_somebody_is_writing_is_in_use_not_damaged(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(run_dir / database.NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with Ledger.open(run_dir, shared=True) as ledger, pytest.raises(RunInUse, match="being written"):
            ledger.place_requests(["client-01"], key=bytes(32), at=datetime.now(UTC))
