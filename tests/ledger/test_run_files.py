"""A run that somebody else made reaches no file but its own, whoever opens it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from disavow import runs
from disavow.errors import IntegrityError, RunUnsafe
from disavow.ledger import Ledger, fsck
from disavow.ledger.copying import copy_run
from disavow.ledger.database import NAME
from disavow.ledger.files import sync_folder
from disavow.ledger.id_search import files_with
from disavow.ledger.keys import default_folder
from disavow.ledger.run_files import make_private
from disavow.ledger.work_folders import remove_work_folder, work_folder
from tests.cli.forked import disavow
from tests.cli.process import assert_refused
from tests.erasure.mechanisms.contract import leave, start_toy, toy_settings
from tests.ledger.making import create, files_of, record_next, vector

FOLDERS = ("models", "updates", "proofs")
FILES = (NAME, f"{NAME}-wal", f"{NAME}-shm", "lock", "config.toml")

Open = Callable[[Path], Any]
OPENINGS: dict[str, Open] = {
    "writing": lambda run: Ledger.open(run, write=True).close(),
    "placing a request": lambda run: Ledger.open(run, shared=True).close(),
    "reading": lambda run: Ledger.open(run).close(),
    "copying": lambda run: copy_run(
        run, run.with_name("copy"), keys=default_folder(), target_keys=run.with_name("copied keys")
    ),
    "reading its settings": runs.settings_of,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with create(tmp_path / "run", config="seed = 1\n") as ledger:
        record_next(ledger)
    return tmp_path / "run"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Files of whoever opens the run: any, one that is named like a model, and one that is named like an update."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in ("thesis.tex", f"{'a' * 64}.safetensors.zst", f"{'b' * 64}.update", "request-1.json"):
        (folder / name).write_text("years of work")
    return folder


def give_way(path: Path) -> None:
    """Remove whatever is at a path."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS.keys())
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_a_link_is_refused_and_nothing_in_its_target_is_touched(
    run: Path, theirs: Path, name: str, opening: Open
) -> None:
    give_way(run / name)
    (run / name).symlink_to(theirs)
    before = files_of(theirs)
    with pytest.raises(RunUnsafe):
        opening(run)
    assert files_of(theirs) == before
    assert [(finding.where, finding.fault) for finding in fsck(run)] == [(name, True)]


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS.keys())
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_a_link_is_refused_and_its_target_is_as_it_was(
    run: Path, theirs: Path, name: str, opening: Open
) -> None:
    target = theirs / "thesis.tex"
    if (run / name).exists():
        shutil.copyfile(run / name, target)  # a link to the very bytes that should be there is no better
    give_way(run / name)
    (run / name).symlink_to(target)
    before = files_of(theirs)
    with pytest.raises(RunUnsafe):
        opening(run)
    assert files_of(theirs) == before
    assert [(finding.where, finding.fault) for finding in fsck(run)] == [(name, True)]


@pytest.mark.parametrize("name", ["lock", "ledger.sqlite3"])
def test_a_hard_link_to_somebodys_file_is_refused_and_the_file_is_as_it_was(run: Path, name: str) -> None:
    theirs = run.with_name("theirs")
    shutil.copyfile(run / name, theirs)
    theirs.write_bytes(theirs.read_bytes() + b"precious")
    before = theirs.read_bytes()
    (run / name).unlink()
    (run / name).hardlink_to(theirs)
    with pytest.raises(RunUnsafe):
        Ledger.open(run, write=True)
    assert theirs.read_bytes() == before


@pytest.mark.parametrize("name", [*FOLDERS, *FILES])
def test_a_dangling_link_is_refused_and_nothing_comes_into_being_at_its_end(
    run: Path, tmp_path: Path, name: str
) -> None:
    give_way(run / name)
    (run / name).symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunUnsafe):
        Ledger.open(run, write=True)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", [*FOLDERS, *FILES])
@pytest.mark.parametrize("kind", ["pipe", "the other kind"])
def test_special_files_and_folders_in_the_place_of_files_are_refused(run: Path, name: str, kind: str) -> None:
    give_way(run / name)
    if kind == "pipe":
        os.mkfifo(run / name)
    elif name in FOLDERS:
        (run / name).write_text("a file")
    else:
        (run / name).mkdir()
    with pytest.raises(RunUnsafe):
        Ledger.open(run, write=True)
    assert [(finding.where, finding.fault) for finding in fsck(run)] == [(name, True)]


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS.keys())
def test_a_rollback_journal_is_refused_before_sqlite_deletes_what_it_names(
    run: Path, theirs: Path, opening: Open
) -> None:
    """A journal may name a "super-journal", any file at all, which SQLite deletes when it recovers."""
    journal = run / f"{NAME}-journal"
    journal.write_bytes(hot_journal(run / NAME, theirs / "thesis.tex"))
    with pytest.raises(RunUnsafe):
        opening(run)
    assert (theirs / "thesis.tex").exists()
    assert [(finding.where, finding.fault) for finding in fsck(run)] == [(journal.name, True)]
    with closing(
        sqlite3.connect(run / NAME)
    ) as connection:  # SQLite alone, to see that the journal is what it says
        connection.execute("SELECT count(*) FROM run").fetchone()
    assert not (theirs / "thesis.tex").exists()


def hot_journal(database: Path, named: Path) -> bytes:
    """A journal that changes no page and names a super-journal; see sqlite.org/fileformat2.html, section 3."""
    magic, page = bytes.fromhex("d9d505f920a163d7"), 4096
    name, pages = str(named).encode(), database.stat().st_size // page
    header = (magic + struct.pack(">IIIII", 0, 1234, pages, 512, page)).ljust(512, b"\0")
    return (
        header + struct.pack(">I", (1 << 30) // page + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    )


def test_the_command_line_refuses_a_foreign_run_with_exit_2(run_dir: Path, theirs: Path) -> None:
    (run_dir / "updates").symlink_to(theirs)
    before = files_of(theirs)
    for command in ("resume", "status"):
        assert_refused(disavow(command, run_dir), RunUnsafe, run_dir / "updates")
    assert files_of(theirs) == before


# -- files in the folders ------------------------------------------------------------------------------------------


def test_only_names_of_our_own_are_ever_removed(run: Path) -> None:
    with Ledger.open(run) as ledger:
        known = {path.name for path in (run / "models").iterdir()}
        orphan = ledger.store.write(ledger.layout, vector(77))[0]
    (run / "updates").mkdir()
    ours = [
        run / "models" / f"{orphan}.safetensors.zst",
        run / "models" / f".{orphan}.safetensors.zst.0123abcd",
        run / "updates" / f"{'c' * 64}.update",
        run / "updates" / f".{'c' * 64}.update.0123abcd",
    ]
    others = [
        run / "models" / "thesis.tex",
        run / "models" / ".hidden",
        run / "models" / f"{orphan}.safetensors.zst.bak",
        run / "models" / f".{orphan}.safetensors.zst.0123abcz",
        run / "models" / f"{'c' * 64}.update",
        run / "updates" / f"{orphan}.safetensors.zst",
        run / "updates" / f"{'C' * 64}.update",
    ]
    for path in [*ours[1:], *others]:
        path.write_text("something")
    found = fsck(run)
    assert {finding.where for finding in found if finding.where.startswith(("models/", "updates/"))} == {
        str(path.relative_to(run)) for path in [*ours, *others]
    }
    assert not [finding for finding in found if finding.fault and finding.where != "config.toml"]
    Ledger.open(run, write=True).close()
    assert not any(path.exists() for path in ours)
    assert {path.name for path in (run / "models").iterdir()} == known | {
        path.name for path in others if path.parent.name == "models"
    }
    assert all(path.exists() for path in others)


def test_a_link_named_like_a_leftover_is_left_with_its_target(run: Path, theirs: Path) -> None:
    link = run / "models" / f"{'d' * 64}.safetensors.zst"
    link.symlink_to(theirs / "thesis.tex")
    Ledger.open(run, write=True).close()
    assert link.is_symlink()
    assert (theirs / "thesis.tex").read_text() == "years of work"


def test_a_model_that_is_a_link_is_not_read(run: Path, tmp_path: Path) -> None:
    with Ledger.open(run) as ledger:
        digest = ledger.round(1).after
    path = run / "models" / f"{digest}.safetensors.zst"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")  # the right bytes, and yet
    with Ledger.open(run) as ledger, pytest.raises(IntegrityError):
        ledger.model_after(1)
    assert [finding.where for finding in fsck(run) if finding.fault] == [f"model {digest[:12]}"]


def test_an_id_is_not_looked_for_behind_links(run: Path, tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("ada lovelace")
    (run / "link").symlink_to(tmp_path / "diary")
    os.mkfifo(run / "pipe")
    assert files_with(run, "lovelace") == []


def test_a_folder_swapped_for_a_link_while_the_run_is_open_is_refused(run: Path, theirs: Path) -> None:
    before = files_of(theirs)
    with Ledger.open(run, write=True) as ledger:
        (run / "models").rename(run / "moved")
        (run / "models").symlink_to(theirs)
        for attempt in (
            ledger.remove_leftovers,
            lambda: record_next(ledger),
            lambda: ledger.store.remove(["thesis.tex", *(path.name for path in theirs.iterdir())]),
        ):
            with pytest.raises(RunUnsafe):
                attempt()
    assert files_of(theirs) == before


# -- what may be a link, and what lies beside a run ---------------------------------------------------------------


def test_a_run_may_be_reached_through_links(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(run)
    (tmp_path / "parent").symlink_to(tmp_path)
    for directory in (tmp_path / "latest", tmp_path / "parent" / "run"):
        with Ledger.open(directory, write=True) as ledger:
            record_next(ledger)
    assert [
        finding for finding in fsck(tmp_path / "latest") if finding.fault and finding.where != "config.toml"
    ] == []


def test_a_link_named_like_a_half_made_run_is_left_alone(tmp_path: Path, theirs: Path) -> None:
    (theirs / "lock").write_text("mine")
    before = files_of(theirs)
    (tmp_path / ".run.new-0123abcd").symlink_to(theirs)
    (tmp_path / ".run.new-mine").mkdir()
    (tmp_path / ".run.new-89abcdef").mkdir()
    create(tmp_path / "run").close()
    assert files_of(theirs) == before
    assert (tmp_path / ".run.new-mine").is_dir()
    assert not (tmp_path / ".run.new-89abcdef").exists()


def test_a_link_named_like_the_remains_of_an_audit_is_left_alone(run: Path, theirs: Path) -> None:
    (theirs / "folder").mkdir()
    (theirs / "folder" / "lock").write_text("mine")
    before = files_of(theirs)
    work_folder(run, "audit").symlink_to(theirs)
    assert not remove_work_folder(run, "audit")
    assert files_of(theirs) == before


# -- modes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Nothing is taken from the modes that files are made with."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(run: Path) -> list[str]:
    return [str(path) for path in [run, *run.rglob("*")] if path.lstat().st_mode & 0o077]


@pytest.mark.usefixtures("no_umask")
def test_everything_in_a_run_is_its_owners_alone(tmp_path: Path) -> None:
    settings = toy_settings(rounds=3, mechanism={"name": "federaser", "interval": 1})
    (tmp_path / "run").mkdir(mode=0o777)  # one that is there, empty, becomes private too
    with start_toy(tmp_path / "run", settings) as toy:
        toy.train()
        assert leave(toy, "client-01")
        assert {path.name for path in (tmp_path / "run").iterdir()} == {*FOLDERS, *FILES}
        assert open_to_others(tmp_path / "run") == []
    copy_run(tmp_path / "run", tmp_path / "copy", keys=default_folder(), target_keys=tmp_path / "copied keys")
    assert open_to_others(tmp_path / "copied keys") == []
    assert open_to_others(tmp_path / "copy") == []
    assert fsck(tmp_path / "run") == []


@pytest.mark.usefixtures("no_umask")
def test_wider_modes_are_noted_by_fsck_kept_by_readers_and_ended_by_a_writer(run: Path) -> None:
    (run / "proofs").mkdir()
    (run / "proofs" / "request-1.json").touch()
    everything = [run, *run.rglob("*")]
    for path in everything:
        path.chmod(0o777 if path.is_dir() else 0o666)
    noted = [finding for finding in fsck(run) if "open to others" in finding.what]
    assert [finding.fault for finding in noted] == [False]
    Ledger.open(run).close()
    assert len(open_to_others(run)) >= len(everything)
    with Ledger.open(run, write=True):
        assert open_to_others(run) == []
    assert not [finding for finding in fsck(run) if "open to others" in finding.what]


def test_what_a_link_leads_to_keeps_its_mode(run: Path, theirs: Path) -> None:
    (theirs / "thesis.tex").chmod(0o644)
    (run / "models" / "link").symlink_to(theirs / "thesis.tex")
    Ledger.open(run, write=True).close()
    assert (theirs / "thesis.tex").stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc/locks")
def test_taking_rights_away_gives_up_no_lock_of_sqlite(run: Path) -> None:
    """A process loses all its locks on a file when it closes any descriptor of it: see `absent.files_with`."""
    with Ledger.open(run, write=True) as ledger, ledger._connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM run").scalar()
        (run / NAME).chmod(0o644)
        make_private(run)
        assert open_to_others(run) == []
        held = [line.split()[4:6] for line in Path("/proc/locks").read_text().splitlines()]
        inode = (run / NAME).stat().st_ino
        assert any(pid == str(os.getpid()) and place.endswith(f":{inode}") for pid, place in held)


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EIO])
def test_the_drive_is_flushed_where_the_system_can(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS; a file system that cannot is no error, and a drive that fails is."""
    flushed = []

    def refuse(descriptor: int, command: int) -> None:
        flushed.append(command)
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with pytest.raises(OSError, match="refused") if number == errno.EIO else nullcontext():
        sync_folder(tmp_path)
    assert flushed == [51]
