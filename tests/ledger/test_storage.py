"""What the disk refuses is told as it is: no room, or another error; the run stays at its last good state."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from disavow.errors import StorageError, StorageFull
from disavow.ledger import Ledger, fsck
from tests.ledger.making import create, files_of, record_next


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
    return tmp_path / "run"


def intact(run: Path) -> bool:
    """Whether one round stands, nothing is wrong and the next can be recorded."""
    assert [finding for finding in fsck(run) if finding.fault and finding.where != "config.toml"] == []
    with Ledger.open(run, write=True) as ledger:
        assert ledger.next_round() == (2, 1)
        record_next(ledger)
    return True


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EIO, StorageError),
        (errno.EFBIG, StorageError),
    ],
    ids=errno.errorcode.get,
)
def test_a_file_that_cannot_be_synced_is_told_by_what_the_system_says(
    run: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    models = files_of(run / "models")
    with Ledger.open(run, write=True) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", refuse)
            with pytest.raises(StorageError) as caught:
                record_next(ledger)
        assert type(caught.value) is kind
        assert os.strerror(number) in str(caught.value)
    assert files_of(run / "models") == models
    assert intact(run)


def test_a_database_that_may_not_grow_is_full(run: Path) -> None:
    with Ledger.open(run, write=True) as ledger:
        with ledger._connect() as connection:  # what follows in this connection finds as much room as there is now
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}").scalar_one()
        with pytest.raises(StorageFull):
            [record_next(ledger) for _ in range(100)]
    with Ledger.open(run) as ledger:
        standing = ledger.last_round
    assert [finding for finding in fsck(run) if finding.fault and finding.where != "config.toml"] == []
    with Ledger.open(run, write=True) as ledger:
        assert record_next(ledger).number == standing + 1


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """This process has as many files open as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_open_files_are_no_full_disk(run: Path) -> None:
    with Ledger.open(run, write=True) as ledger:
        with no_more_descriptors(), pytest.raises(StorageError) as caught:
            record_next(ledger)
        assert not isinstance(caught.value, StorageFull)
        assert os.strerror(errno.EMFILE) in str(caught.value)
    assert intact(run)


def test_a_ledger_that_sqlite_cannot_open_is_no_full_disk_and_no_damage(run: Path) -> None:
    with no_more_descriptors(), pytest.raises(StorageError) as caught:
        fsck(run)
    assert not isinstance(caught.value, StorageFull)
    assert intact(run)
