"""Runs and keyrings that are restored from backups: a leaver leaves again, and an older keyring is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from disavow.domain import RequestState
from disavow.erasure.proof_files import default_openings, request_opened_for
from disavow.ledger import Ledger
from disavow.ledger.copying import run_id_of
from disavow.ledger.id_search import files_with
from disavow.ledger.keyring import Keyring
from disavow.ledger.requests import RESTORED
from tests.cli.erasing import contents, own_keys
from tests.kill.erasure_driver import Driver, Ended

LEAVER, OTHER = "client-03", "client-01"


class Restored:
    """A run from which somebody has left, and what there was of it and of its keyring before."""

    def __init__(self, run: Path, keys: Path, driver: Driver) -> None:
        self.run, self.keys, self._driver = run, keys, driver
        self.run_id = run_id_of(run)
        own_keys(run, keys)
        self.old_run = Path(shutil.copytree(run, run.with_name("old run")))
        copied = self("keyring", "backup", run, run.with_name("old keys"))
        assert copied.status == 0, copied.stderr
        self.old_keys = run.with_name("old keys")
        left = self("erase", run, LEAVER)
        assert left.status == 0, left.stderr

    def accept(self) -> None:
        accepted = self("keyring", "accept", self.run)
        assert accepted.status == 0, accepted.stderr

    def __call__(self, *arguments: str | Path) -> Ended:
        return self._driver.run(*arguments, keys=self.keys, cwd=self.run.parent)

    def restore_run(self) -> None:
        self.run.rename(self.run.with_name("newer run"))
        shutil.copytree(self.old_run, self.run)

    def restore_keys(self) -> None:
        self.keys.rename(self.keys.with_name("newer keys"))
        shutil.copytree(self.old_keys, self.keys)

    @property
    def keyring(self) -> Keyring:
        return Keyring(self.keys, self.run_id)

    def json_of(self, *arguments: str | Path) -> dict[str, object]:
        document: dict[str, object] = json.loads(self(*arguments, "--json").stdout)
        return document


@pytest.fixture
def both_new(run_dir: Path, tmp_path: Path, driver: Driver) -> Restored:
    return Restored(run_dir, tmp_path / "keys", driver)


@pytest.fixture
def restored(both_new: Restored) -> Restored:
    """The run as it was before somebody left; the keyring is the newest."""
    both_new.restore_run()
    return both_new


@pytest.fixture
def accepted(restored: Restored) -> Restored:
    """The same, accepted."""
    restored.accept()
    return restored


def test_status_and_fsck_find_it_and_change_nothing(restored: Restored) -> None:
    before = contents(restored.run)
    document = restored.json_of("status", restored.run)
    assert (document["restored"], document["complete"]) == ({"older": True, "accepted": False, "slots": 3}, False)
    assert "restored from a backup" in restored("status", restored.run).stdout
    checked = restored("fsck", restored.run, "--json")
    assert (checked.status, json.loads(checked.stdout)["clean"]) == (1, False)
    assert contents(restored.run) == before
    listed = restored.json_of("clients", restored.run)["clients"]
    assert isinstance(listed, list)
    assert (LEAVER in listed, len(listed)) == (False, 7)


@pytest.mark.parametrize("command", ["resume", "erase", "cancel", "keyring rotate"])
def test_nothing_is_written_to_it_before_it_is_accepted(restored: Restored, command: str) -> None:
    before = contents(restored.run), restored.keyring.generation
    refused = restored(*command.split(), restored.run, *([OTHER] if command in ("erase", "cancel") else []))
    assert (refused.status, "DSV-209" in refused.stderr) == (2, True)
    assert "keyring accept" in refused.stderr
    assert (contents(restored.run), restored.keyring.generation) == before


def test_accepting_says_what_follows_and_is_done_once(restored: Restored) -> None:
    document = restored.json_of("keyring", "accept", restored.run)
    assert (document["changed"], document["slots"]) == (True, 3)
    assert restored.json_of("keyring", "accept", restored.run)["changed"] is False
    assert "nothing was changed" in restored("keyring", "accept", restored.run).stdout


def test_erasing_the_leaver_again_says_that_it_is_forgotten_and_suggests_nobody(accepted: Restored) -> None:
    shutil.move(accepted.run.with_name("run.openings"), accepted.run.with_name("openings until today"))
    refused = accepted("erase", accepted.run, LEAVER)
    assert (refused.status, "DSV-303" in refused.stderr, "client-0" in refused.stderr.replace(LEAVER, "")) == (
        7,
        True,
        False,
    )
    assert accepted("resume", accepted.run).status == 0
    assert "DSV-303" in accepted("erase", accepted.run, LEAVER).stderr


def test_export_refuses_the_model_with_the_leaver_in_it(restored: Restored) -> None:
    refused = restored("export", restored.run, "-o", "model.safetensors")
    assert (refused.status, refused.stdout) == (11, "")
    assert not (restored.run.parent / "model.safetensors").exists()
    given = restored("export", restored.run, "-o", "model.safetensors", "--anyway", "--json")
    assert (given.status, json.loads(given.stdout)["restored"]["slots"]) == (0, 3)


def test_a_request_that_only_waits_does_not_hide_it_and_cannot_be_cancelled(accepted: Restored) -> None:
    restored = accepted
    with Ledger.open(
        restored.run, shared=True, keys=restored.keys
    ) as ledger:  # as a command does that then refuses
        assert [(r.state, r.remark) for r in ledger.requests()] == [(RequestState.WAITING, RESTORED)]
    assert restored("export", restored.run, "-o", "model.safetensors").status == 11
    assert restored("fsck", restored.run).status == 1
    assert restored.json_of("status", restored.run)["restored"] == {"older": True, "accepted": True, "slots": 3}
    assert restored("cancel", restored.run, LEAVER).status == 7
    with Ledger.open(restored.run, shared=True, keys=restored.keys) as ledger:
        assert len(ledger.requests()) == 1
    assert restored("resume", restored.run).status == 0
    assert restored("fsck", restored.run).status == 0
    assert restored.json_of("status", restored.run)["restored"] == {"older": False, "accepted": True, "slots": 0}


@pytest.mark.parametrize("command", ["resume", "erase"])
def test_whoever_opens_it_for_writing_withdraws_the_leaver_and_says_so(accepted: Restored, command: str) -> None:
    restored = accepted
    more = [OTHER, "--yes"] if command == "erase" else []
    ended = restored(command, restored.run, *more)
    assert ended.status == 0, ended.stderr
    assert "restored from a backup" in ended.stderr
    assert "never present" not in ended.stdout + ended.stderr
    listed = restored.json_of("requests", restored.run)["requests"]
    assert isinstance(listed, list)
    assert [one["state"] for one in listed] == ["answered"] * (1 + bool(more))
    assert [RESTORED in one["remark"] for one in listed] == [True, False][: len(listed)]
    keyring = restored.keyring
    assert (keyring.find(LEAVER), keyring.faults()) == (None, [])
    assert files_with(restored.run, LEAVER) + files_with(keyring.folder, LEAVER) == []
    assert restored("fsck", restored.run).status == 0
    assert restored("export", restored.run, "-o", "model.safetensors").status == 0
    again = restored("resume", restored.run)
    assert (again.status, "restored" in again.stderr) == (0, False)


def test_a_leaver_who_asks_again_is_not_told_of_somebody_elses_request(restored: Restored) -> None:
    """Requests are numbered again from the backup on; the opening beside the run is of the other history."""
    restored.accept()
    assert restored("resume", restored.run).status == 0
    with Ledger.open(restored.run, keys=restored.keys) as ledger:
        assert [request.number for request in ledger.requests()] == [1]
        assert (ledger.find_request(LEAVER), ledger.has_left(LEAVER)) == (None, True)
        assert default_openings(restored.run).is_dir()
        assert request_opened_for(ledger, default_openings(restored.run), LEAVER) is None


def test_a_request_that_waited_in_the_backup_is_given_up(run_dir: Path, tmp_path: Path, driver: Driver) -> None:
    own_keys(run_dir, tmp_path / "keys")
    with Ledger.open(run_dir, shared=True, keys=tmp_path / "keys") as ledger:
        ledger.place_requests([LEAVER], at=ledger.created_at)
    found = Restored.__new__(Restored)
    found.run, found.keys, found._driver, found.run_id = run_dir, tmp_path / "keys", driver, run_id_of(run_dir)
    found.old_run = Path(shutil.copytree(run_dir, tmp_path / "old run"))
    assert found("resume", run_dir).status == 0
    found.restore_run()
    found.accept()
    assert found("resume", run_dir).status == 0
    listed = found.json_of("requests", run_dir)["requests"]
    assert isinstance(listed, list)
    assert [(one["state"], one["client"]) for one in listed] == [("cancelled", None), ("answered", None)]
    assert found("fsck", run_dir).status == 0


@pytest.mark.parametrize("command", ["resume", "erase", "keyring check"])
def test_an_older_keyring_is_refused_and_nothing_is_written(both_new: Restored, command: str) -> None:
    both_new.restore_keys()
    before = contents(both_new.run)
    refused = both_new(*command.split(), both_new.run, *([OTHER] if command == "erase" else []))
    if command == "keyring check":
        assert refused.status == 1
    else:
        assert (refused.status, "DSV-107" in refused.stderr) == (2, True)
    assert contents(both_new.run) == before
    assert both_new("fsck", both_new.run).status == 1


def test_the_newest_keyring_is_taken_again_after_an_older_one(both_new: Restored) -> None:
    both_new.restore_keys()
    assert both_new("resume", both_new.run).status == 2
    shutil.rmtree(both_new.keys)
    both_new.keys.with_name("newer keys").rename(both_new.keys)
    assert both_new("resume", both_new.run).status == 0
    assert both_new("fsck", both_new.run, "--absent", LEAVER).status == 0


def test_a_run_that_went_on_from_a_backup_does_not_take_its_newer_history_back(accepted: Restored) -> None:
    restored = accepted
    assert restored("resume", restored.run).status == 0
    shutil.rmtree(restored.run)
    restored.run.with_name("newer run").rename(restored.run)
    refused = restored("resume", restored.run)
    assert (refused.status, "DSV-209" in refused.stderr) == (2, True)


def test_the_older_run_with_the_older_keyring_is_as_before_anybody_left(restored: Restored) -> None:
    """What docs/backup.md warns of: nothing is left that could know better."""
    restored.restore_keys()
    ended = restored("resume", restored.run)
    assert (ended.status, "restored" in ended.stderr) == (0, False)
    assert restored.keyring.find(LEAVER) is not None


def test_without_the_keyring_a_run_is_read_and_served_but_names_nobody_and_is_not_written(
    both_new: Restored,
) -> None:
    shutil.rmtree(both_new.keys)
    before = contents(both_new.run)
    document = both_new.json_of("status", both_new.run)
    assert (document["clients"], document["complete"]) == (None, True)
    assert both_new("fsck", both_new.run).status == 0
    assert both_new("export", both_new.run, "-o", "model.safetensors").status == 0
    for command in (("resume",), ("erase", OTHER), ("clients",)):
        refused = both_new(command[0], both_new.run, *command[1:])
        assert (refused.status, "DSV-106" in refused.stderr) == (2, True), command
    assert contents(both_new.run) == before


def test_the_backup_of_a_run_that_was_never_erased_from_is_as_good_as_the_run(
    run_dir: Path, tmp_path: Path, driver: Driver
) -> None:
    own_keys(run_dir, tmp_path / "keys")
    copy = shutil.copytree(run_dir, tmp_path / "copy")
    for command in ("resume", "status", "fsck"):
        ended = driver.run(command, copy, keys=tmp_path / "keys")
        assert (ended.status, "restored" in ended.stdout + ended.stderr) == (0, False)
