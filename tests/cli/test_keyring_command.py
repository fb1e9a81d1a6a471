"""`disavow keyring`: shown, checked, copied and rotated by commands."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from disavow.errors import ConfigError
from disavow.ledger import Ledger, fsck
from disavow.ledger.copying import run_id_of
from disavow.ledger.keyring import Keyring
from tests.cli.erasing import Command, contents
from tests.cli.process import assert_refused, error_code
from tests.kill.erasure_driver import Driver


@pytest.fixture
def keyring(run: Path) -> Keyring:
    return Keyring(run.parent / "keys", run_id_of(run))


def test_show_tells_what_it_holds_and_names_nobody(run: Path, keyring: Keyring, disavow: Command) -> None:
    assert disavow("erase", run, "client-03").returncode == 0
    shown = disavow("keyring", "show", run, "--json")
    with Ledger.open(run) as ledger:
        length = ledger.log_length()
    document = json.loads(shown.stdout)
    assert document == {
        "run": str(run),
        "run_id": keyring.run_id,
        "folder": str(keyring.folder),
        "clients": 7,
        "forgotten": 1,
        "epoch": 1,
        "generation": keyring.generation,
        "head": {"size": length, "root": document["head"]["root"]},
    }
    words = disavow("keyring", "show", run)
    assert (words.returncode, words.stderr) == (0, "")
    assert document["head"]["root"] in words.stdout
    assert "client-" not in shown.stdout + words.stdout


def test_check_is_clean_until_a_key_is_damaged(run: Path, keyring: Keyring, disavow: Command) -> None:
    clean = disavow("keyring", "check", run)
    assert (clean.returncode, clean.stdout) == (0, f"{keyring.folder}: clean\n")
    file = keyring.folder / "keys.1"
    data = bytearray(file.read_bytes())
    data[32] ^= 1
    file.write_bytes(data)
    found = disavow("keyring", "check", run, "--json")
    document = json.loads(found.stdout)
    assert (found.returncode, document["clean"], len(document["faults"])) == (1, False, 1)
    assert "place 1 " in document["faults"][0]
    assert disavow("keyring", "check", run).returncode == 1


def test_check_finds_a_leavers_key_that_was_put_back(run: Path, keyring: Keyring, disavow: Command) -> None:
    before = (keyring.folder / "keys.1").read_bytes()
    assert disavow("erase", run, "client-03").returncode == 0
    assert disavow("keyring", "check", run).returncode == 0
    (keyring.folder / "keys.1").write_bytes(before)
    assert "was forgotten" in disavow("keyring", "check", run).stdout


def test_files_that_others_may_read_are_refused(run: Path, keyring: Keyring, disavow: Command) -> None:
    (keyring.folder / "keys.1").chmod(0o640)
    for command in ("show", "check"):
        assert_refused(disavow("keyring", command, run), ConfigError, keyring.folder / "keys.1", "chmod")


def test_a_backup_is_a_keyring_of_its_own_and_is_never_overwritten(
    run: Path, keyring: Keyring, disavow: Command
) -> None:
    target = run.parent / "backup"
    made = disavow("keyring", "backup", run, target)
    assert made.returncode == 0, made.stderr
    copied = Keyring(target, keyring.run_id)
    assert (copied.present(), copied.states(), copied.faults()) == (keyring.present(), keyring.states(), [])
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (copied.folder, *copied.folder.iterdir())]
    assert [mode & 0o077 for mode in modes] == [0] * len(modes)
    copied.close()
    before = contents(target)
    again = disavow("keyring", "backup", run, target)
    assert (again.returncode, error_code(again)) == (2, "DSV-101")
    assert contents(target) == before
    shutil.rmtree(keyring.folder)
    assert disavow("erase", run, "client-03", keys=target).returncode == 0
    assert disavow("fsck", run, "--absent", "client-03", keys=target).returncode == 0


def test_a_backup_inside_the_run_is_refused(run: Path, disavow: Command) -> None:
    before = contents(run)
    assert disavow("keyring", "backup", run, run / "keys").returncode == 2
    assert contents(run) == before


def test_rounds_after_a_rotation_go_by_new_keys_and_everything_else_goes_on(
    run: Path, keyring: Keyring, disavow: Command
) -> None:
    old = {client: found.keys for client, found in keyring.present().items()}
    keyring.close()
    result = disavow("keyring", "rotate", run, "--json")
    assert (result.returncode, json.loads(result.stdout)["epoch"]) == (0, 2)
    new = {client: found.keys for client, found in keyring.present().items()}
    assert {client: keys[:1] for client, keys in new.items()} == old
    assert len({key for keys in new.values() for key in keys}) == 2 * len(old)
    settings = (run / "config.toml").read_text().replace("\nrounds = 3\n", "\nrounds = 4\n")
    (run / "config.toml").write_text(settings)
    resumed = disavow("resume", run)
    assert resumed.returncode == 0, resumed.stderr
    with Ledger.open(run) as ledger:
        for number in (3, 4):
            assert {client for group in ledger.membership(number) for client in group} == set(old)
    assert disavow("erase", run, "client-03").returncode == 0
    assert (fsck(run), disavow("keyring", "check", run).returncode) == ([], 0)


def test_keys_from_before_a_rotation_are_refused(run: Path, disavow: Command) -> None:
    shutil.copytree(run.parent / "keys", run.parent / "older")
    assert disavow("keyring", "rotate", run).returncode == 0
    refused = disavow("resume", run, keys=run.parent / "older")
    assert (refused.returncode, error_code(refused)) == (2, "DSV-107")


def test_a_run_in_use_is_not_rotated_but_copied(
    run: Path, driver: Driver, keyring: Keyring, disavow: Command
) -> None:
    holder = driver.start(run, task="hold")
    holder.wait_for_output("held", "stdout")
    try:
        refused = disavow("keyring", "rotate", run)
        assert (refused.returncode, error_code(refused)) == (4, "DSV-208")
        assert disavow("keyring", "backup", run, run.parent / "backup").returncode == 0
    finally:
        holder.kill()
        holder.wait()
    assert keyring.epoch == 1


@pytest.mark.parametrize("command", ["show", "check", "backup", "rotate"])
def test_without_a_keyring_or_a_run_each_says_so(run: Path, disavow: Command, command: str) -> None:
    more = ["copy"] if command == "backup" else []
    refused = disavow("keyring", command, run, *more, keys=run.parent / "nothing")
    assert (refused.returncode, error_code(refused)) == (2, "DSV-106")
    refused = disavow("keyring", command, run.parent / "no run", *more)
    assert (refused.returncode, error_code(refused)) == (2, "DSV-203")
    assert not (run.parent / "no run").exists()
    assert not (run.parent / "nothing").exists()
