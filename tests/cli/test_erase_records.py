"""`disavow erase --record`: records of clients that stay, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disavow.errors import ConfigError, RecordErased, UnknownRecord
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.rounds.options import now
from tests.cli.test_confirmation import Command, command, states

__all__ = ["command"]

CLIENT = "client-03"


@pytest.fixture
def records(run_dir: Path, command: Command) -> list[str]:
    """The keys of a client's records."""
    with Federation.open(run_dir) as federation:
        found = federation.record_keys_of(CLIENT)
    assert found is not None
    return list(found)


def test_a_dry_run_says_so_and_the_answer_keeps_the_client(
    command: Command, run_dir: Path, records: list[str]
) -> None:
    result = command("erase", run_dir, CLIENT, "--record", records[0], "--dry-run")
    assert result.status == 0, result.stderr
    assert f"1 record of {CLIENT}: " in result.stdout
    assert "it would stay, under a new key" in result.stdout
    as_json = json.loads(command("erase", run_dir, CLIENT, "--record", records[0], "--dry-run", "--json").stdout)
    assert as_json["records"] == {CLIENT: records[:1]}
    assert states(run_dir) == []

    (command.folder / "keys.txt").write_text(f"{records[0]}\n\n{records[1]}\n")
    done = command("erase", run_dir, CLIENT, "--records", "keys.txt", "--yes")
    assert done.status == 0, done.stderr
    assert f"{CLIENT}: request 1 (2 records): " in done.stdout
    assert "the client stays, under a new key" in done.stdout
    [shown] = json.loads(command("requests", run_dir, "--json").stdout)["requests"]
    assert (shown["records"], shown["state"], shown["client"]) == (2, "answered", None)
    with Ledger.open(run_dir) as ledger:
        assert CLIENT in ledger.clients()
        assert len(ledger.exclusions()[CLIENT].hashes) == 2
    again = command("erase", run_dir, CLIENT, "--record", records[0], "--yes")
    assert again.status == RecordErased.exit_code
    assert RecordErased.code in again.stderr
    assert not [finding for finding in fsck(run_dir) if finding.fault]


def test_what_cannot_be_asked_for_is_refused(command: Command, run_dir: Path, records: list[str]) -> None:
    for arguments, kind in (
        ((CLIENT, "--record", "none"), UnknownRecord),
        (("--everywhere", "none"), UnknownRecord),
        ((CLIENT, "--record", records[0], "--everywhere", records[0]), ConfigError),
        (("--record", records[0]), ConfigError),
        ((CLIENT, "--unchecked"), ConfigError),
        ((CLIENT, "--records", "missing.txt"), ConfigError),
        ((), ConfigError),
    ):
        ended = command("erase", run_dir, *arguments, "--yes")
        assert ended.status == kind.exit_code, ended.stderr
        assert kind.code in ended.stderr
    (command.folder / "empty.txt").write_text("\n")
    assert command("erase", run_dir, CLIENT, "--records", "empty.txt", "--yes").status == ConfigError.exit_code
    assert states(run_dir) == []


def test_a_record_is_erased_wherever_it_is_and_one_request_is_cancelled(
    command: Command, run_dir: Path, records: list[str]
) -> None:
    done = command("erase", run_dir, "--everywhere", records[0], "--yes", "--json")
    assert done.status == 0, done.stderr
    [answered] = json.loads(done.stdout)["requests"]
    assert (answered["client"], answered["records"]) == (CLIENT, 1)
    with Ledger.open(run_dir, shared=True) as ledger:
        for record in records[1:3]:
            ledger.place_record_requests({CLIENT: [record]}, at=now())
    assert command("cancel", run_dir, CLIENT).status == ConfigError.exit_code
    assert command("cancel", run_dir).status == ConfigError.exit_code
    ended = command("cancel", run_dir, "--request", "2")
    assert ended.status == 0, ended.stderr
    assert states(run_dir) == ["answered", "cancelled", "waiting"]


def test_what_is_asked_and_decided_about_records_is_shown_and_leaves_the_run_whole(
    command: Command, run_dir: Path, records: list[str]
) -> None:
    with Ledger.open(run_dir, shared=True) as ledger:
        for record in records[:2]:
            ledger.place_record_requests({CLIENT: [record]}, at=now())
    [shown, refused, cancelled] = (
        command("request", "show", run_dir, "1", "--json"),
        command("request", "refuse", run_dir, "1", "--by", "officer", "--reason", "not the person"),
        command("cancel", run_dir, "--request", "2", "--by", "clerk"),
    )
    assert json.loads(shown.stdout)["request"]["record_keys"] == [records[0]]
    assert (refused.status, cancelled.status) == (0, 0), refused.stderr + cancelled.stderr
    lines = command("register", run_dir).stdout.splitlines()
    assert [line.endswith(f"1 record of {CLIENT}") for line in lines] == [False, True, True]
    assert ("officer" in lines[1], "clerk" in lines[2]) == (True, True)
    columns, *rows = command("register", run_dir, "--csv").stdout.splitlines()
    assert [row.split(",")[columns.split(",").index("records")] for row in rows] == ["1", "1"]
    assert not [finding for finding in fsck(run_dir) if finding.fault]


def test_the_answer_names_its_files_and_the_verifier_the_records(
    command: Command, run_dir: Path, records: list[str]
) -> None:
    assert command("keygen", "--no-passphrase").status == 0
    done = command("erase", run_dir, CLIENT, "--record", records[0], "--yes", "--json")
    [answered] = json.loads(done.stdout)["requests"]
    result = command(
        *("verify", answered["proof"], "--key", command.folder / "keys" / "signing.pub"),
        *("--opening", answered["opening"], "--client", CLIENT),
    )
    assert result.status == 0, result.stdout + result.stderr
    assert f"VALID proof about 1 record of '{CLIENT}', which stays: '{records[0]}'." in result.stdout
    everywhere = command("erase", run_dir, "--everywhere", records[0], "--yes")
    assert (everywhere.status, RecordErased.code in everywhere.stderr) == (RecordErased.exit_code, True)
    again = command("erase", run_dir, CLIENT, "--record", records[1], "--yes")
    assert "never present: under its present key the client took part in no round" in again.stdout
    assert command("erase", run_dir, CLIENT, "--record", "").status == ConfigError.exit_code
