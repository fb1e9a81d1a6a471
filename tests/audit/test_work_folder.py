"""An audit's folder: one audit at a time, gone on with after an interruption, gone in the end."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disavow.audit import audit as audit_module
from disavow.audit import worlds as worlds_module
from disavow.audit.audit import Effort, audit
from disavow.audit.report import Audit
from disavow.audit.subject import Subject
from disavow.errors import ConfigError, RunInUse, StorageFull
from disavow.ledger.lock import Lock
from disavow.ledger.work_folders import remove_work_folder
from tests.audit.making import (
    CLIENT,
    DENIABLE,
    Forbidden,
    Interrupted,
    hashes_of,
    interrupt_after,
    keys_of,
    make_run,
    subject_in,
)
from tests.refusals import refuses

LEAST = Effort(worlds=32, shadows=4, forgings=2)

AT_ONCE = -1
"""Interrupted before the first world is trained."""


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one round."""
    return make_run(tmp_path_factory.mktemp("short") / "run", DENIABLE, {"rounds": 1})


def audited(subject: Subject, work: Path, rounds: int | None = None) -> Audit:
    """An audit; or one that is interrupted after so many rounds of worlds."""
    on_round = interrupt_after(rounds) if rounds is not None else lambda more: None
    return audit(subject, LEAST, work=work, keys=keys_of(subject.directory), on_round=on_round)


def test_an_interrupted_audit_goes_on_and_leaves_nothing_behind(short: Path, tmp_path: Path) -> None:
    subject, before = subject_in(short), hashes_of(short.parent)
    with pytest.raises(Interrupted):
        audited(subject, tmp_path / "one", 8)
    kept = [path for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert sum(path.suffix == ".json" for path in kept) == 8
    assert {path.name for path in kept if path.suffix != ".json"} == {"lock"}
    assert all(CLIENT.encode() not in path.read_bytes() and CLIENT not in str(path) for path in kept)
    seen: list[int] = []
    resumed = audit(subject, LEAST, work=tmp_path / "one", keys=keys_of(short), on_round=seen.append)
    assert seen[0] == 8  # those that were there
    assert sum(seen) == len(LEAST.worlds_of(subject))
    assert list((tmp_path / "one").iterdir()) == []
    assert hashes_of(short.parent) == before
    assert (resumed.client, resumed.rounds, resumed.worlds, resumed.shadows) == (CLIENT, 1, 32, 4)
    assert all(np.isfinite(found.difference.estimate) for found in resumed.found)


def test_another_audit_of_the_same_client_is_refused_while_one_is_at_work(short: Path, tmp_path: Path) -> None:
    """It would delete the other's scratch."""
    subject = subject_in(short)
    with pytest.raises(Interrupted):
        audited(subject, tmp_path, AT_ONCE)
    [folder] = tmp_path.iterdir()
    with Lock(folder), refuses(RunInUse):
        audited(subject, tmp_path)
    with Lock(folder), pytest.raises(Interrupted):  # of somebody else, it is not
        audited(subject_in(short, "client-04"), tmp_path, AT_ONCE)


def test_without_room_an_audit_says_how_to_go_on(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(worlds_module, "write_durably", full)
    with refuses(StorageFull, tmp_path, "No space left") as error:
        audited(subject_in(short), tmp_path)
    assert "disavow resume" not in str(error.value)  # that is for runs
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lock"]


def test_a_model_that_overflowed_is_refused_before_worlds_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_run(tmp_path / "run", DENIABLE, {"rounds": 1, "training": {"learning_rate": 1e6}})
    monkeypatch.setattr(audit_module, "trainer_of", lambda subject: Forbidden())
    with refuses(ConfigError, "finite"):
        audited(subject_in(directory), tmp_path / "work")


def test_worlds_of_other_clients_settings_or_lengths_are_not_gone_on_with(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever would make another world makes another folder, or another one within it."""
    subject = subject_in(short)
    training = subject.settings.training.model_copy(update={"learning_rate": 0.2})
    settings = subject.settings.model_copy(update={"training": training})
    for other in (subject, subject_in(short, "client-04"), replace(subject, settings=settings)):
        with pytest.raises(Interrupted):
            audited(other, tmp_path, AT_ONCE)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_run_that_was_trained_on_since_is_audited_as_it_is_now(tmp_path: Path) -> None:
    """The subject was looked up after one round; worlds are trained for as many as the copy has."""
    directory = make_run(tmp_path / "run", DENIABLE, {"rounds": 2})
    with pytest.raises(Interrupted):
        audited(replace(subject_in(directory), rounds=1), tmp_path / "work", AT_ONCE)
    assert [path.name for path in (tmp_path / "work").glob("*/*") if path.is_dir()] == ["2-rounds"]


def test_what_an_interrupted_audit_left_is_removed_unless_one_is_at_work(tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "run.audit" / "0123"
    assert not remove_work_folder(run, "audit")
    folder.mkdir(parents=True)
    with Lock(folder):
        assert not remove_work_folder(run, "audit")
        assert folder.exists()
    assert remove_work_folder(run, "audit")
    assert not folder.parent.exists()
