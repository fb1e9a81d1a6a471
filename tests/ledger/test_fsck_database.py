"""A damaged database file, values of any kind and a schema of another shape: fsck names them and never breaks."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from disavow.errors import DisavowError, LedgerError, RunMissing
from disavow.ledger import fsck
from disavow.ledger.database import NAME
from tests.cli import forked
from tests.cli.forked import disavow
from tests.cli.process import assert_refused
from tests.erasure.mechanisms.contract import leave, reopen_toy, toy_settings, trained_toy
from tests.ledger.making import TABLES, all_rows, by_hand, change
from tests.refusals import refuses

ROOT = Path(__file__).parents[2]


# -- the database file itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.99, 0.5, 0.1, 0.01])
def test_a_database_cut_short_is_found(run_dir: Path, kept: float) -> None:
    path = run_dir / NAME
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    [first, *_] = fsck(run_dir)
    assert first.fault
    assert str(first).startswith(f"{NAME}: is damaged")
    assert disavow("fsck", run_dir).returncode == 1


def test_an_empty_database_is_no_run(run_dir: Path) -> None:
    (run_dir / NAME).write_bytes(b"")
    with refuses(RunMissing, run_dir / NAME):
        fsck(run_dir)


def test_a_page_of_garbage_is_found_wherever_it_is(run_dir: Path) -> None:
    path = run_dir / NAME
    data, page = path.read_bytes(), 4096
    chance = random.Random(3)
    for start in range(0, len(data), page):
        path.write_bytes(data[:start] + chance.randbytes(page) + data[start + page :])
        found = fsck(run_dir)
        assert any(finding.fault and finding.where == NAME for finding in found), (start, found)


@pytest.mark.parametrize("command", ["status", "resume"])
def test_other_commands_refuse_a_damaged_database_in_one_line(run_dir: Path, command: str) -> None:
    path, page = run_dir / NAME, 4096
    with by_hand(run_dir) as connection:
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rounds'")
    data = path.read_bytes()
    garbage = random.Random(4).randbytes(page)
    path.write_bytes(data[: (root - 1) * page] + garbage + data[root * page :])
    assert_refused(disavow(command, run_dir), LedgerError, run_dir)


def _fuzz(*arguments: str | Path) -> dict[str, str]:
    result = forked.module("tests.ledger.fuzz", *arguments, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    complaints: dict[str, str] = json.loads(result.stdout)
    return complaints


def test_fsck_survives_any_byte_flipped(trained: Path) -> None:
    assert _fuzz("flips", trained, "0", "100") == {}


@pytest.mark.torture
@pytest.mark.parametrize("first", range(10_000, 50_000, 5_000))
def test_fsck_survives_any_byte_flipped_very_often(trained: Path, first: int) -> None:
    assert _fuzz("flips", trained, str(first), "5000") == {}


# what SQLite lets anyone write into any column, whatever type it was declared with
STRANGE = ("x'00'", "x'ff'", "'text'", "''", "-1", "0", "1.5", "4611686018427387904", "1e999", "'[[1]]'", "'{}'")


@pytest.mark.parametrize(
    "every", [pytest.param(6, id="some"), pytest.param(1, id="all", marks=pytest.mark.torture)]
)
# no rows in `members`: the run has neither fixed clusters nor a task
@pytest.mark.parametrize(
    "table", [*(each for each in TABLES if each != "members"), "sqlite_sequence", "alembic_version"]
)
def test_fsck_survives_a_value_of_any_kind_in_any_column(trained: Path, table: str, every: int) -> None:
    with by_hand(trained) as connection:
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    keys = ", ".join(name for _, name, _, _, _, key in columns if key) or "_rowid_"
    # a row in the middle, found by its primary key: some of these tables have no row ids
    row = f"({keys}) IN (SELECT {keys} FROM {table} LIMIT 1 OFFSET {count // 2})"
    assert count > 0
    statements = [
        f"UPDATE OR IGNORE {table} SET {column[1]} = {value} WHERE {row}"
        for place, column in enumerate(columns)
        for value in STRANGE[place % every :: every]
    ]
    assert _fuzz("sql", trained, *statements) == {}


def test_fsck_survives_any_one_character_changed_in_the_runs_json(trained: Path, run_dir: Path) -> None:
    """A comma turned into a point makes a shape a fraction; no bit of the file is then wrong for SQLite."""
    [row] = all_rows(trained)["run"]
    texts = {"policy": row[3], "layout": row[4]}
    chance = random.Random(11)
    for column, text in texts.items():
        for _ in range(40):
            position = chance.randrange(len(text))
            # characters that are likely to keep it JSON
            changed = text[:position] + chance.choice('.,-09e"[]{}ntx ') + text[position + 1 :]
            change(run_dir, f"UPDATE run SET {column} = :value", value=changed)
            try:
                fsck(run_dir)
            except DisavowError:
                pass
            except Exception as error:
                pytest.fail(f"{type(error).__name__}: {error} on {column} = {changed}")
        change(run_dir, f"UPDATE run SET {column} = :value", value=text)


# -- the schema ----------------------------------------------------------------------------------------------------


KEEPER = (
    "CREATE TABLE diary (id TEXT)",
    "CREATE TRIGGER keeper BEFORE DELETE ON members BEGIN INSERT INTO diary VALUES (old.token); END",
)


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE diary (id TEXT)"],
        ["CREATE TRIGGER keeper AFTER INSERT ON rounds BEGIN DELETE FROM evaluations; END"],
        ["CREATE VIEW everybody AS SELECT token FROM members"],
        ["CREATE INDEX by_name ON members (sealed, token)"],
        ["ALTER TABLE members ADD COLUMN address TEXT"],
        ["ALTER TABLE rounds DROP COLUMN seconds"],
        ["DROP INDEX ix_requests_client"],
        ["DROP TABLE evaluations"],
        ["ALTER TABLE members RENAME TO people", "CREATE VIEW members AS SELECT * FROM people"],
        ["ANALYZE"],
        ["CREATE TABLE `\u202e` (id TEXT)"],
    ],
    ids=lambda statements: statements[-1][:40],
)
def test_whatever_the_format_does_not_have_is_a_fault(run_dir: Path, statements: list[str]) -> None:
    with by_hand(run_dir) as connection:
        for statement in statements:
            connection.execute(statement)
    found = [finding for finding in fsck(run_dir) if finding.fault]
    assert found
    assert {finding.where for finding in found} == {f"{NAME}, schema"}
    assert all(str(finding).isascii() for finding in found)


def test_a_trigger_that_keeps_who_was_erased_does_not_pass(tmp_path: Path) -> None:
    trained_toy(tmp_path / "run", toy_settings(rounds=2)).close()
    with by_hand(tmp_path / "run") as connection:
        for statement in KEEPER:
            connection.execute(statement)
    with reopen_toy(tmp_path / "run") as run:
        leave(run, "client-01")
    assert {finding.where for finding in fsck(tmp_path / "run") if finding.fault} == {f"{NAME}, schema"}
