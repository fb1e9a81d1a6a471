"""The files of a node's evidence: private, whole or not there at all, and never written through somebody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from disavow.flower.evidence_store import EvidenceStore

pytestmark = pytest.mark.flower

RUN = "0123456789abcdef" * 2


def store_in(folder: Path) -> EvidenceStore:
    return EvidenceStore(Context(1, 1, {"evidence-dir": str(folder)}, RecordDict(), {}))


def test_files_and_folders_are_the_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store_in(tmp_path / "node" / "evidence").write(RUN, "receipts/one.json", b"1")
    finally:
        os.umask(before)
    made = [tmp_path / "node", *(tmp_path / "node").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert [path.stat().st_mode & 0o777 for path in made if path.is_file()] == [0o600]


def test_a_temporary_file_is_never_one_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write in the folder cannot guess the name, nor have a file of theirs opened."""
    opened: list[tuple[str, int, int]] = []
    open_file = os.open

    def watched(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT:
            opened.append((Path(path).name, flags, mode))
        return open_file(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", watched)
    kept = store_in(tmp_path)
    for data in (b"1", b"2"):
        kept.write(RUN, "client.txt", data)
    assert kept.read(RUN, "client.txt") == b"2"
    assert len({name for name, _, _ in opened}) == len(opened) == 2
    assert all(flags & os.O_EXCL and mode == 0o600 for _, flags, mode in opened)
    assert str(os.getpid()) not in {name.rpartition(".")[2] for name, _, _ in opened}


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    (tmp_path / "evidence" / RUN).mkdir(parents=True)
    (tmp_path / "evidence" / RUN / "client.txt").symlink_to(other)
    kept = store_in(tmp_path / "evidence")
    kept.write(RUN, "client.txt", b"c1")
    assert other.read_bytes() == b"mine"
    assert kept.read(RUN, "client.txt") == b"c1"


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    kept = store_in(tmp_path)
    kept.write(RUN, "client.txt", b"c1")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        kept.write(RUN, "client.txt", b"c2")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["client.txt"]
    assert kept.read(RUN, "client.txt") == b"c1"


def test_what_was_kept_is_durable_and_so_is_every_folder_that_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to tell which file a descriptor is of")
    monkeypatch.setattr(os, "fsync", watched)
    store_in(tmp_path / "node").write(RUN, "receipts/one.json", b"1")
    folders = [tmp_path, tmp_path / "node", tmp_path / "node" / RUN, tmp_path / "node" / RUN / "receipts"]
    assert set(map(str, folders)) <= set(synced)
    assert any(Path(name).name.startswith(".one.json.") for name in synced)
