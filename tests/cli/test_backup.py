"""A run that is restored from a backup: who left it since is noticed, and leaves again before anything else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from disavow.domain import RequestState
from disavow.ledger import Ledger
from disavow.ledger.id_search import files_with
from disavow.ledger.tombstones import RESTORED
from tests.kill.erasure_driver import Driver, Ended

LEAVER = "client-03"


class Restored:
    """A run from which somebody has left, in the state of a backup that was made before."""

    def __init__(self, run: Path, keys: Path, driver: Driver) -> None:
        self.run, self._keys, self._driver = run, keys, driver
        backup = shutil.copytree(run, run.with_name("backup"))
        left = self("erase", run, LEAVER)
        assert left.status == 0, left.stderr
        shutil.rmtree(run)
        backup.rename(run)

    def __call__(self, *arguments: str | Path) -> Ended:
        return self._driver.run(*arguments, keys=self._keys, cwd=self.run.parent)


@pytest.fixture
def restored(run_dir: Path, tmp_path: Path, driver: Driver) -> Restored:
    return Restored(run_dir, tmp_path / "keys", driver)


def clients(run: Path) -> tuple[str, ...]:
    with Ledger.open(run) as ledger:
        return ledger.clients()


def test_status_and_fsck_find_it_and_change_nothing(restored: Restored) -> None:
    told = json.loads(restored("status", restored.run, "--json").stdout)
    assert told["restored"] == {"clients": [LEAVER], "unknown": 0}
    assert told["complete"] is False
    assert "restored from a backup" in restored("status", restored.run).stdout
    checked = restored("fsck", restored.run, "--json")
    assert (checked.status, json.loads(checked.stdout)["clean"]) == (1, False)
    assert LEAVER in clients(restored.run)


def test_export_refuses_the_model_with_the_leaver_in_it(restored: Restored) -> None:
    refused = restored("export", restored.run, "-o", "model.safetensors")
    assert (refused.status, refused.stdout) == (11, "")
    assert not (restored.run.parent / "model.safetensors").exists()
    given = restored("export", restored.run, "-o", "model.safetensors", "--anyway", "--json")
    assert (given.status, json.loads(given.stdout)["restored"]["clients"]) == (0, [LEAVER])


def test_a_request_that_only_waits_again_does_not_hide_it_and_cannot_be_cancelled(restored: Restored) -> None:
    keys = restored.run.parent / "keys"
    with Ledger.open(restored.run, shared=True, keys=keys) as ledger:  # as a command does that then refuses
        assert [request.state for request in ledger.requests()] == [RequestState.WAITING]
    assert restored("export", restored.run, "-o", "model.safetensors").status == 11
    assert restored("fsck", restored.run).status == 1
    assert LEAVER in restored("status", restored.run, "--json").stdout
    assert restored("cancel", restored.run, LEAVER).status == 2
    assert restored("resume", restored.run).status == 0
    assert LEAVER not in clients(restored.run)


def test_without_the_key_nothing_is_written_to_a_restored_run(restored: Restored) -> None:
    (restored.run.parent / "keys" / "tombstone.key").unlink()
    assert restored("resume", restored.run).status != 0
    assert LEAVER in clients(restored.run)


@pytest.mark.parametrize("command", ["resume", "erase"])
def test_whoever_opens_it_for_writing_withdraws_the_leaver_and_says_so(restored: Restored, command: str) -> None:
    more = ["client-01"] if command == "erase" else []
    ended = restored(command, restored.run, *more)
    assert ended.status == 0, ended.stderr
    assert "restored from a backup" in ended.stderr
    assert LEAVER not in clients(restored.run)
    listed = json.loads(restored("requests", restored.run, "--json").stdout)["requests"]
    assert [one["state"] for one in listed] == ["answered"] * (1 + len(more))
    assert [RESTORED in one["remark"] for one in listed].count(True) == 1
    assert files_with(restored.run, LEAVER) == []
    assert restored("fsck", restored.run).status == 0
    assert restored("export", restored.run, "-o", "model.safetensors").status == 0


def test_the_backup_of_a_run_that_was_never_erased_from_is_as_good_as_the_run(
    run_dir: Path, tmp_path: Path, driver: Driver
) -> None:
    copy = shutil.copytree(run_dir, tmp_path / "copy")
    for command in ("resume", "status", "fsck"):
        ended = driver.run(command, copy, keys=tmp_path / "keys")
        assert (ended.status, "restored" in ended.stdout + ended.stderr) == (0, False)
    assert not (tmp_path / "keys").exists()
