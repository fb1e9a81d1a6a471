"""A ledger in PostgreSQL: what SQLite gives for nothing, and what can go wrong with a server."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from disavow.errors import (
    ConfigError,
    DatabaseUnavailable,
    MissingExtra,
    RunError,
    RunInUse,
    RunMissing,
    StorageFull,
)
from disavow.ledger import Ledger, backend, creation, database, fsck, postgres
from disavow.ledger.copying import copy_run
from disavow.ledger.keys import default_folder
from disavow.ledger.postgres import Postgres
from disavow.run_checks import check_run
from tests.ledger.making import IDS, MOMENT, by_id, record_next
from tests.postgres.making import by_hand, create, schema_of, schemas
from tests.postgres_server import DATABASE, PASSWORD, ROLE, Server
from tests.refusals import refuses

pytestmark = pytest.mark.postgres


@pytest.fixture
def run(tmp_path: Path, server: Server) -> Path:
    """A run of two rounds."""
    with create(tmp_path / "run", server.url) as ledger:
        record_next(ledger)
        record_next(ledger)
    return tmp_path / "run"


def faults(run: Path) -> list[str]:
    return [str(finding) for finding in fsck(run) if finding.fault]


# -- one database, many runs -------------------------------------------------------------------------------------


def test_runs_share_a_database_and_nothing_in_it(tmp_path: Path, server: Server) -> None:
    with create(tmp_path / "one", server.url) as one, create(tmp_path / "two", server.url) as two:
        record_next(one)
        assert (one.next_round(), two.next_round()) == ((2, 1), (1, 1))
        assert by_id(one.round(1)) == by_id(record_next(two))
    assert schema_of(tmp_path / "one") != schema_of(tmp_path / "two")
    assert fsck(tmp_path / "one") == fsck(tmp_path / "two") == []


def test_a_run_directory_holds_no_rows_and_no_password(tmp_path: Path, server: Server) -> None:
    with create(tmp_path / "run", server.tcp_url()) as ledger:
        record_next(ledger)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.toml",
        "models",
        "lock",
        "database.json",
    }
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes()
    document = json.loads((tmp_path / "run" / "database.json").read_text())
    assert document["url"] == server.tcp_url(None)
    assert (tmp_path / "run" / "database.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("by", ["DISAVOW_DATABASE", "PGPASSWORD"])
def test_the_password_comes_from_the_environment(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    create(tmp_path / "run", server.tcp_url()).close()
    monkeypatch.setattr(postgres, "_GIVEN", {})  # as in another process
    with refuses(DatabaseUnavailable, "DISAVOW_DATABASE"):
        Ledger.open(tmp_path / "run")
    monkeypatch.setenv(by, PASSWORD if by == "PGPASSWORD" else server.tcp_url())
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.clients() == IDS


def test_the_environment_decides_for_new_runs_unless_told_otherwise(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_DATABASE", server.url)
    create(tmp_path / "there", "").close()
    create(tmp_path / "here", "sqlite").close()
    assert (tmp_path / "there" / "database.json").exists()
    assert (tmp_path / "here" / "ledger.sqlite3").exists()


def test_a_role_sees_its_own_schemas_only(run: Path, server: Server) -> None:
    server.psql("DROP ROLE IF EXISTS curious")
    server.psql("CREATE ROLE curious LOGIN")
    server.psql(f"GRANT CONNECT ON DATABASE {DATABASE} TO curious")
    address = run / "database.json"
    address.write_text(address.read_text().replace(ROLE, "curious"))
    with refuses(RunMissing, run):
        Ledger.open(run)
    with refuses(RunError, "curious", "permission denied"):
        create(run.with_name("new"), server.url_of("curious"))
    assert [path.name for path in run.parent.iterdir()] == ["run"]
    server.psql(f"REVOKE ALL ON DATABASE {DATABASE} FROM curious")
    server.psql("DROP ROLE curious")


def test_an_empty_schema_is_what_a_migration_from_nothing_makes_of_it(tmp_path: Path, server: Server) -> None:
    made = Postgres.new(tmp_path, server.url, "made")
    database.make_empty(made)
    migrated = Postgres.new(tmp_path, server.url, "migrated")
    server.psql(f"CREATE SCHEMA {migrated.schema} AUTHORIZATION {ROLE}", DATABASE)
    engine, other = migrated.connect(write=True), made.connect(write=False)
    database.migrate(engine)
    with engine.connect() as one, other.connect() as two:
        assert migrated.objects(one) == made.objects(two) == made.expected_objects(two, database.HEAD)
        assert migrated.revision_of(engine) == made.revision_of(other) == database.HEAD
    engine.dispose()
    other.dispose()
    for each in (made, migrated):
        each.remove()


def test_numbers_have_no_gaps_behind_what_was_rolled_back(run: Path) -> None:
    with Ledger.open(run, write=True) as ledger:
        with suppress(ZeroDivisionError), ledger._begin() as connection:
            connection.exec_driver_sql(
                "INSERT INTO requests (client, asked_at, nonce, checksum) VALUES (1, '', '', '')"
            )
            raise ZeroDivisionError
        assert ledger.place_requests(["ada"], at=MOMENT) == (1,)
    assert faults(run) == []


# -- coming into being -------------------------------------------------------------------------------------------


def test_a_run_that_cannot_be_made_leaves_no_schema(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = schemas(server)
    monkeypatch.setattr(creation, "_move", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        create(tmp_path / "run", server.url)
    assert schemas(server) == before
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_half_made_goes_with_the_next_run(tmp_path: Path, server: Server) -> None:
    before = schemas(server)
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom disavow.ledger import creation\n"
        "from tests.postgres.making import create\n"
        "creation._move = lambda *_: os.kill(os.getpid(), 9)\n"
        "create(Path(sys.argv[1]), sys.argv[2])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run"), server.url]
    assert subprocess.run(command, check=False, cwd=Path(__file__).parents[2], timeout=120).returncode == -9
    assert len(schemas(server) - before) == 1
    create(tmp_path / "run", server.url).close()
    assert schemas(server) - before == {schema_of(tmp_path / "run")}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_empty_directory_becomes_a_run(tmp_path: Path, server: Server) -> None:
    (tmp_path / "run").mkdir()
    create(tmp_path / "run", server.url).close()
    assert fsck(tmp_path / "run") == []


# -- locks -------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(run: Path) -> Path:
    """The same run as another machine sees it: the same files, and a lock of its own on them."""
    return Path(shutil.copytree(run, run.with_name("elsewhere"), ignore=shutil.ignore_patterns("lock")))


def test_a_run_is_locked_on_every_machine(run: Path, elsewhere: Path) -> None:
    with Ledger.open(run, write=True) as ledger:
        with refuses(RunInUse, f"process {os.getpid()}"):
            Ledger.open(elsewhere, write=True)
        with Ledger.open(elsewhere, shared=True) as other:
            assert other.place_requests(["bela"], at=MOMENT) == (1,)
            assert [request.client for request in ledger.requests()] == ["bela"]
    Ledger.open(elsewhere, write=True).close()


def test_who_has_lost_the_lock_writes_nothing(run: Path, elsewhere: Path, server: Server) -> None:
    with Ledger.open(run, write=True) as ledger:
        # the sessions of the first process are lost, as behind a firewall; those it opens then are new ones
        server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'disavow'")
        ledger._engine.dispose()
        with Ledger.open(elsewhere, write=True) as other:
            with refuses(RunInUse, "taken"):
                record_next(ledger)
            assert record_next(other).number == 3
    assert faults(elsewhere) == []


def test_a_writer_waits_for_another_and_gives_up_in_time(
    run: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "BUSY_SECONDS", 0.2)
    with Ledger.open(run, write=True) as ledger, ledger._begin(), Ledger.open(run, shared=True) as other:
        assert other.next_round() == (3, 1)  # nobody who reads has to wait
        with refuses(RunInUse, "being written"):
            other.place_requests(["ada"], at=MOMENT)


def test_a_reader_sees_one_state_and_then_the_newest(run: Path) -> None:
    with Ledger.open(run, write=True) as ledger, Ledger.open(run) as reader:
        with reader.snapshot() as snapshot:
            assert snapshot.last_round == 2
            record_next(ledger)
            assert snapshot.last_round == 2
        assert reader.last_round == 3


# -- errors ------------------------------------------------------------------------------------------------------

UNUSABLE: dict[str, Callable[[Server], str]] = {
    "wrong password": lambda server: server.tcp_url("wrong horse"),
    "no such database": lambda server: server.tcp_url(database="nowhere"),
    "no such server": lambda server: server.tcp_url().replace(str(server.port), "1"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_database_that_cannot_be_used_is_told_without_its_password(
    tmp_path: Path, server: Server, what: str
) -> None:
    with refuses(DatabaseUnavailable, tmp_path / "run", "127.0.0.1") as caught:
        create(tmp_path / "run", UNUSABLE[what](server))
    for message in (str(caught.value), repr(caught.value.__cause__)):
        assert "horse" not in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["mysql://secret@host/db", "postgresql+psycopg2://u:secret@host/db", "postgresql://secret@host", "secret"],
)
def test_a_url_that_is_none_is_refused_unseen(tmp_path: Path, url: str) -> None:
    with refuses(ConfigError, "database") as caught:
        create(tmp_path / "run", url)
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_connection_lost_in_a_transaction_leaves_the_last_good_state(run: Path, server: Server) -> None:
    schema = schema_of(run)
    lose = f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = '{schema}.rounds'::regclass"
    with Ledger.open(run, write=True) as ledger:

        def lost(connection: sa.Connection, *_: object) -> None:
            server.psql(lose, DATABASE)

        sa.event.listen(ledger._engine, "commit", lost)
        with refuses(DatabaseUnavailable, "last good state"):
            record_next(ledger)
        sa.event.remove(ledger._engine, "commit", lost)
        assert ledger.next_round() == (3, 1)
        record_next(ledger)
    assert fsck(run) == []


def test_a_full_disk_of_the_server_is_a_full_disk(run: Path, server: Server) -> None:
    by_hand(
        server,
        run,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$; "
        "CREATE TRIGGER full_disk BEFORE INSERT ON slots EXECUTE FUNCTION full_disk()",
    )
    with Ledger.open(run, write=True) as ledger, refuses(StorageFull, "extend"):
        record_next(ledger)
    by_hand(server, run, "DROP TRIGGER full_disk ON slots; DROP FUNCTION full_disk()")
    assert fsck(run) == []


def test_a_run_whose_schema_is_gone_is_no_run(run: Path, server: Server) -> None:
    server.psql(f"DROP SCHEMA {schema_of(run)} CASCADE", DATABASE)
    for write in (False, True):
        with refuses(RunMissing):
            Ledger.open(run, write=write)


@pytest.mark.parametrize(
    "content", ["", "{}", '{"url": "x", "schema": "y"}', '{"url": "postgresql://h/d", "schema": "a; DROP"}']
)
def test_an_address_that_says_nothing_is_refused(run: Path, content: str) -> None:
    (run / "database.json").write_text(content)
    with refuses(RunError, run / "database.json"):
        Ledger.open(run)


def test_a_run_has_one_ledger(run: Path) -> None:
    (run / "ledger.sqlite3").touch()
    with refuses(RunError, "ledger.sqlite3", "database.json"):
        Ledger.open(run)


# -- fsck, search, copies ----------------------------------------------------------------------------------------

DAMAGE = {
    "a trigger": (
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$; "
        "CREATE TRIGGER keep BEFORE DELETE ON members FOR EACH ROW EXECUTE FUNCTION keep()",
        "trigger 'members.keep'",
    ),
    "a table": ("CREATE TABLE kept (id TEXT)", "table 'kept'"),
    "a rule": ("CREATE RULE kept AS ON DELETE TO members DO INSTEAD NOTHING", "rule 'members.kept'"),
    "a view for a table": ("ALTER TABLE members RENAME TO m; CREATE VIEW members AS TABLE m", "table members"),
    "an index": ("DROP INDEX ix_requests_client", "index ix_requests_client is missing"),
    "a default": ("ALTER TABLE rounds ALTER id DROP DEFAULT", "column rounds.id"),
    "a function": (
        "CREATE OR REPLACE FUNCTION next_number(TEXT) RETURNS INTEGER LANGUAGE SQL AS 'SELECT 1'",
        "function next_number",
    ),
    "a child": ("CREATE TABLE pg_temp.x (); CREATE TABLE public.kept () INHERITS (members)", "child"),
    "a foreign key": ("DELETE FROM models", "table rounds: a row refers to a row of models"),
    "a row": ("DELETE FROM log WHERE round_id = 2; DELETE FROM events WHERE round_id = 2", "round 2"),
    "the last row": ("UPDATE numbers SET last = 3 WHERE name = 'requests'", "table requests: the row with id 1"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_and_named(run: Path, server: Server, what: str) -> None:
    statement, named = DAMAGE[what]
    assert fsck(run) == []
    by_hand(server, run, statement)
    found = faults(run)
    server.psql("DROP TABLE IF EXISTS public.kept", DATABASE)
    assert any(named in each for each in found), found


def test_an_id_in_any_table_is_found(run: Path, server: Server) -> None:
    assert check_run(run, absent=["grace-hopper"]) == []
    by_hand(
        server, run, f"CREATE TABLE kept AS SELECT 'see grace-hopper' AS note; ALTER TABLE kept OWNER TO {ROLE}"
    )
    found = [str(each) for each in check_run(run, absent=["grace-hopper"])]
    assert any(each.startswith("table kept") and "grace-hopper" in each for each in found)


def test_a_copy_is_the_run_in_a_file_of_its_own(run: Path, tmp_path: Path) -> None:
    with Ledger.open(run, write=True) as ledger:
        ledger.place_requests(["ada"], at=MOMENT)
        ledger.cancel_request("ada", at=MOMENT)
    keys = tmp_path / "copied keys"
    copy_run(run, tmp_path / "copy", keys=default_folder(), target_keys=keys)
    with Ledger.open(run) as one, Ledger.open(tmp_path / "copy", keys=keys) as two:
        assert one.round(2) == two.round(2)
        assert one.requests() == two.requests()
    assert fsck(tmp_path / "copy", keys=keys) == []
    rows = sqlite3.connect(tmp_path / "copy" / "ledger.sqlite3")
    assert dict(rows.execute("SELECT name, seq FROM sqlite_sequence")) == {
        "rounds": 2,
        "erasures": 0,
        "requests": 1,
        "request_events": 2,
        "releases": 0,
    }
    rows.close()


def test_without_the_driver_the_extra_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with refuses(MissingExtra, run, "postgres"):
        Ledger.open(run)


def test_what_keeps_its_rows_in_a_file_never_loads_the_driver(tmp_path: Path) -> None:
    create(tmp_path / "run", "sqlite").close()
    code = (
        "import sys\nfrom pathlib import Path\nfrom disavow.ledger import Ledger\n"
        "Ledger.open(Path(sys.argv[1])).close()\nassert 'psycopg' not in sys.modules\n"
        "assert 'disavow.ledger.postgres' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True, timeout=120)
