"""A copy of a run, taken while nobody or somebody is at work on it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from disavow.errors import IntegrityError, LedgerError, RunExists, RunMissing
from disavow.ledger import Ledger, fsck
from disavow.ledger.copying import copy_run
from disavow.ledger.database import NAME
from disavow.ledger.files import Folder
from disavow.ledger.keys import default_folder
from tests.ledger.making import by_hand, create, files_of, record_next, vector
from tests.refusals import refuses


def copy(run: Path, target: Path) -> None:
    copy_run(run, target, keys=default_folder(), target_keys=keys_of(target))


def keys_of(copied: Path) -> Path:
    return copied.with_name(copied.name + ".keys")


def same_run(one: Path, other: Path, rounds: int) -> None:
    """Two directories that tell the same story."""
    with Ledger.open(one) as here, Ledger.open(other, keys=keys_of(other)) as there:
        assert (here.run_id, here.policy, here.layout) == (there.run_id, there.policy, there.layout)
        assert here.clients() == there.clients()
        assert here.requests() == there.requests()
        assert here.next_round() == there.next_round() == (rounds + 1, 1)
        for number in range(1, rounds + 1):
            assert here.round(number) == there.round(number)
            assert np.array_equal(here.model_before(number), there.model_before(number))
            assert np.array_equal(here.model_after(number), there.model_after(number))


def test_a_copy_is_the_run(run_dir: Path, tmp_path: Path) -> None:
    before = files_of(run_dir)
    copy(run_dir, tmp_path / "copy")
    assert files_of(run_dir) == before
    same_run(run_dir, tmp_path / "copy", 3)
    assert fsck(tmp_path / "copy", keys=keys_of(tmp_path / "copy")) == []
    assert files_of(tmp_path / "copy" / "models") == files_of(run_dir / "models")
    assert (tmp_path / "copy" / "config.toml").read_bytes() == (run_dir / "config.toml").read_bytes()


def test_a_copy_goes_its_own_way(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
    before = files_of(tmp_path / "run")
    copy(tmp_path / "run", tmp_path / "copy")
    with Ledger.open(tmp_path / "copy", write=True, keys=keys_of(tmp_path / "copy")) as copied:
        record_next(copied, vector(50))
        assert copied.next_round() == (3, 1)
    assert files_of(tmp_path / "run") == before
    assert fsck(tmp_path / "copy", keys=keys_of(tmp_path / "copy")) == []


def test_proofs_stay_behind(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "proofs").mkdir()
    (run_dir / "proofs" / "request-1.json").write_text("somebody's")
    copy(run_dir, tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} >= {NAME, "models", "config.toml"}
    assert not (tmp_path / "copy" / "proofs").exists()


@pytest.mark.sqlite
def test_a_copy_is_taken_while_a_writer_is_at_work(tmp_path: Path) -> None:
    """Everything recorded is in the copy, though it lies in the write-ahead log only; nothing unfinished is."""
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        record_next(ledger)
        assert (tmp_path / "run" / f"{NAME}-wal").stat().st_size > 0
        # a transaction under way, and a model nobody names yet
        with suppress(ZeroDivisionError), ledger._begin() as connection:
            connection.exec_driver_sql("UPDATE rounds SET delta = 99")
            ledger.store.write(ledger.layout, vector(77))
            copy(tmp_path / "run", tmp_path / "copy")
            raise ZeroDivisionError
        same_run(tmp_path / "run", tmp_path / "copy", 2)
        assert fsck(tmp_path / "copy", keys=keys_of(tmp_path / "copy")) == []
        assert len(list((tmp_path / "copy" / "models").iterdir())) == 3  # the initial one and two rounds'
        assert record_next(ledger).number == 3  # the writer has not noticed


WRITER = """
import sys
from pathlib import Path
from disavow.ledger import Ledger
from tests.ledger.making import record_next
with Ledger.open(Path(sys.argv[1]), write=True) as ledger:
    print("ready", flush=True)
    for _ in range(int(sys.argv[2])):
        record_next(ledger)
"""


def test_copies_taken_beside_a_process_that_writes_are_whole(tmp_path: Path) -> None:
    """A file half written has vanished by the time it would be copied: it is in nobody's way."""
    create(tmp_path / "run").close()
    command = [sys.executable, "-c", WRITER, str(tmp_path / "run"), "150"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        taken = 0
        while writer.poll() is None:
            copy(tmp_path / "run", tmp_path / "copy")
            assert fsck(tmp_path / "copy", keys=keys_of(tmp_path / "copy")) == []
            shutil.rmtree(tmp_path / "copy")
            shutil.rmtree(keys_of(tmp_path / "copy"))
            taken += 1
    assert writer.returncode == 0
    assert taken > 0


def test_an_existing_target_is_refused(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "something").write_text("mine")
    with pytest.raises(RunExists):
        copy(run_dir, tmp_path / "copy")
    assert files_of(tmp_path / "copy") == {"something": b"mine"}
    with pytest.raises(RunExists):
        copy(run_dir, run_dir)


def test_where_there_is_no_run_there_is_no_copy(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for source in ("run", "nowhere"):
        with pytest.raises(RunMissing):
            copy(tmp_path / source, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "run" / NAME).exists()


def damaged(directory: Path, how: str) -> None:
    path = directory / NAME
    data = bytearray(path.read_bytes())
    if how == "not a database":
        data[:100] = bytes(100)
    elif how == "truncated":
        del data[len(data) // 2 :]
    else:
        for start in range(4096, len(data), 4096):
            data[start : start + 200] = bytes(200)
    path.write_bytes(data)


@pytest.mark.sqlite
@pytest.mark.parametrize("how", ["not a database", "truncated", "pages"])
def test_a_damaged_ledger_gives_an_error_that_says_so(run_dir: Path, tmp_path: Path, how: str) -> None:
    """When it is copied; or when the copy is looked through, because SQLite copies pages without reading them."""
    damaged(run_dir, how)
    assert any(
        "damaged" in word or "not a disavow ledger" in word for word in words_about(run_dir, tmp_path / "copy")
    )


def words_about(directory: Path, target: Path) -> list[str]:
    """What is said about a run when it is copied, and about the copy."""
    try:
        copy(directory, target)
    except (LedgerError, RunMissing) as error:
        return [str(error)]
    return [str(finding) for finding in fsck(target)]


def test_a_missing_model_gives_an_error_that_names_it(run_dir: Path, tmp_path: Path) -> None:
    gone = sorted((run_dir / "models").iterdir())[0]
    gone.unlink()
    with refuses(IntegrityError, gone.name):
        copy(run_dir, tmp_path / "copy")


def test_a_run_without_models_at_all_gives_an_error(run_dir: Path, tmp_path: Path) -> None:
    shutil.rmtree(run_dir / "models")
    with pytest.raises(IntegrityError):
        copy(run_dir, tmp_path / "copy")


def test_models_that_a_rollback_deletes_meanwhile_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the copy of the rows and that of the files, the run gives up a model: rows are taken once more."""
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        gone = ledger.store.path(ledger.round(1).after)

        def at_work(folder: Folder, name: str) -> bytes:
            if folder.path / name == gone and gone.exists():
                with by_hand(tmp_path / "run") as connection:
                    connection.execute("UPDATE models SET present = 0 WHERE digest = ?", [gone.name[:64]])
                gone.unlink()
            return read(folder, name)

        read = Folder.read
        monkeypatch.setattr(Folder, "read", at_work)
        copy(tmp_path / "run", tmp_path / "copy")
    assert not (tmp_path / "copy" / "models" / gone.name).exists()
    assert len(list((tmp_path / "copy" / "models").iterdir())) == 1
