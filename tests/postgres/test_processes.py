"""Whole commands with their ledger in PostgreSQL: several at once, killed ones, and a server that is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from disavow import config
from disavow.errors import DatabaseUnavailable
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.schema import rounds
from tests.cli import forked
from tests.cli.forked import disavow
from tests.cli.process import write_config
from tests.conftest import SMALL
from tests.kill.erasure_driver import Ended
from tests.postgres.making import by_hand
from tests.postgres_server import DATABASE, PASSWORD, Server, started
from tests.refusals import refuses

pytestmark = [pytest.mark.postgres, pytest.mark.kill]

KILLS = 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """A run of `SMALL` that `disavow train --database` made."""
    folder = tmp_path_factory.mktemp("trained")
    settings = write_config(folder / "config.toml", SMALL)
    done = disavow("train", settings, "--run", folder / "run", "--database", server.url)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_run_in_postgres_is_the_run_that_it_is_in_a_file(trained: Path, tmp_path: Path) -> None:
    with Federation.create(tmp_path / "run", config.from_values(SMALL, source="tests"), database="sqlite") as run:
        run.train()
        digest = run.ledger.served_model_digest()
    with Ledger.open(trained) as ledger:
        assert ledger.served_model_digest() == digest
    assert fsck(trained) == []


def test_commands_work_beside_a_process_that_trains(tmp_path: Path, server: Server) -> None:
    settings = write_config(tmp_path / "config.toml", {**SMALL, "rounds": 12})
    keys = Path(os.environ["DISAVOW_KEYS"])
    run = tmp_path / "run"
    training = forked.driver().start("train", settings, "--run", run, "--database", server.url, keys=keys)
    while not (run / "database.json").exists():
        assert training.running(), training.output()
    seen = disavow("status", run, "--json")
    assert seen.returncode == 0, seen.stderr
    in_use = disavow("resume", run)
    placed = disavow("erase", run, "client-03", "--yes", "--wait", "0")
    checked = disavow("fsck", run)
    ended = training.wait()
    assert ended.status == 0, ended.stderr
    assert placed.returncode in (0, 4), placed.stderr  # 4: placed, for the process that trains
    assert checked.returncode == 0, checked.stdout
    assert in_use.returncode in (0, 4)  # 0 where the training was over by then
    rest = disavow("resume", run)
    assert rest.returncode == 0, rest.stderr
    [answered] = json.loads(disavow("requests", run, "--json").stdout)["requests"]
    assert answered["state"] == "answered"
    assert fsck(run) == []


def test_nothing_that_names_a_leaver_is_on_the_disk_of_the_server(tmp_path: Path, server: Server) -> None:
    settings = config.from_values(SMALL, source="tests")
    with Federation.create(tmp_path / "run", settings, database=server.url) as run:
        run.train()
        found = run.ledger.keyring.find("client-05")
        assert found is not None
        sought = [b"client-05", *found.keys]
        with run.ledger._connect() as connection:
            for header in connection.execute(sa.select(rounds)).all():
                filled = run.ledger.members.of_round(connection, header).values()
                sought += [each.salt for each in filled if each.client.id == "client-05"]
        assert len(sought) == 2 + SMALL["rounds"]
        run.erase(["client-05"])
    server.psql("CHECKPOINT", DATABASE)
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert any(b"disavow_" in path.read_bytes() for path in files)
    for path in files:
        data = path.read_bytes()
        assert not any(form in data for each in sought for form in (each, each.hex().encode())), path


def test_killed_at_any_instant_a_run_goes_on(tmp_path: Path, server: Server) -> None:
    settings = write_config(tmp_path / "config.toml", {**SMALL, "rounds": KILLS + 4})
    keys, run = Path(os.environ["DISAVOW_KEYS"]), tmp_path / "run"
    command: tuple[str | Path, ...] = ("train", settings, "--run", run, "--database", server.url)
    for number in range(KILLS):
        process = forked.driver().start(*command, keys=keys)
        while process.running() and _rounds(run) <= number:
            pass
        process.kill()
        process.wait()
        assert [finding for finding in fsck(run) if finding.fault] == []
        command = ("resume", run)
    done = disavow("resume", run)
    assert done.returncode == 0, done.stderr
    with Federation.create(
        tmp_path / "undisturbed",
        config.from_values({**SMALL, "rounds": KILLS + 4}, source="tests"),
        database="sqlite",
    ) as other:
        other.train()
        digest = other.ledger.served_model_digest()
    with Ledger.open(run) as ledger:
        assert ledger.served_model_digest() == digest
    assert fsck(run) == []


def _rounds(run: Path) -> int:
    if not (run / "database.json").exists():
        return -1
    with Ledger.open(run) as ledger:
        return ledger.last_round


@pytest.fixture
def mortal() -> Iterator[Server]:
    found = started()
    yield found
    found.stop()


def test_a_server_that_is_killed_loses_nothing_that_was_recorded(tmp_path: Path, mortal: Server) -> None:
    total = 30
    settings = write_config(tmp_path / "config.toml", {**SMALL, "rounds": total})
    keys, run = Path(os.environ["DISAVOW_KEYS"]), tmp_path / "run"
    process = forked.driver().start("train", settings, "--run", run, "--database", mortal.url, keys=keys)
    while process.running() and _rounds(run) < 2:
        pass
    mortal.kill()
    ended: Ended = process.wait()
    assert ended.status == 14, ended.stderr
    assert "DSV-711" in ended.stderr
    with refuses(DatabaseUnavailable, run):
        Ledger.open(run)
    mortal.start()
    assert _rounds(run) >= 2
    assert [finding for finding in fsck(run) if finding.fault] == []
    resumed = disavow("resume", run)
    assert resumed.returncode == 0, resumed.stderr
    assert _rounds(run) == total
    assert fsck(run) == []


@pytest.mark.parametrize("wrong", ["password", "database", "port"])
def test_no_command_prints_a_password(tmp_path: Path, server: Server, wrong: str) -> None:
    secret = "open sesame" if wrong == "password" else PASSWORD
    url = server.tcp_url(secret, database="nowhere" if wrong == "database" else DATABASE)
    if wrong == "port":
        url = url.replace(str(server.port), "1")
    settings = write_config(tmp_path / "config.toml", SMALL)
    done = disavow("train", settings, "--run", tmp_path / "run", "--database", url)
    assert done.returncode == 14
    assert "DSV-711" in done.stderr
    assert secret not in done.stdout + done.stderr
    assert secret.replace(" ", "%20") not in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()


def test_a_password_in_the_settings_is_refused(tmp_path: Path, server: Server) -> None:
    settings = write_config(tmp_path / "config.toml", {**SMALL, "ledger": {"database": server.tcp_url()}})
    done = disavow("train", settings, "--run", tmp_path / "run")
    assert done.returncode == 2
    assert PASSWORD not in done.stderr
    assert PASSWORD.replace(" ", "%20") not in done.stderr


def test_the_settings_name_the_database_and_the_run_does_not_keep_that(tmp_path: Path, server: Server) -> None:
    values = {**SMALL, "rounds": 1, "ledger": {"database": server.url}}
    with Federation.create(tmp_path / "run", config.from_values(values, source="tests")) as run:
        run.train()
    assert (tmp_path / "run" / "database.json").exists()
    assert "postgresql" not in (tmp_path / "run" / "config.toml").read_text().replace("such as postgresql", "")
    assert disavow("resume", tmp_path / "run").returncode == 0
    assert by_hand(server, tmp_path / "run", "SELECT count(*) FROM rounds").strip() == "1"
