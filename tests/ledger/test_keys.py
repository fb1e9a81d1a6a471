"""The operator's key: outside every run, made once, never guessed."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.errors import ConfigError
from disavow.ledger.keys import default_folder, fingerprint, tombstone, tombstone_key
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY


def test_the_folder_is_the_one_that_the_environment_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "elsewhere"))
    assert default_folder() == tmp_path / "elsewhere"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DISAVOW_KEYS", "")
    assert default_folder() == tmp_path / "home" / ".disavow" / "keys"
    monkeypatch.delenv("DISAVOW_KEYS")
    assert default_folder() == tmp_path / "home" / ".disavow" / "keys"


def test_it_is_made_on_first_use_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "keys"
    first = tombstone_key(folder, run=tmp_path / "run")
    assert len(first) == 32
    assert tombstone_key(folder, run=tmp_path / "another run") == first
    assert tombstone_key(tmp_path / "other keys", run=tmp_path / "run") != first
    assert [path.name for path in folder.iterdir()] == ["tombstone.key"]


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    tombstone_key(tmp_path / "keys", run=tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "keys" / "tombstone.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


@pytest.mark.parametrize("where", ["run", "run/keys", "run/deep/er", "other/../run/keys"])
def test_it_never_lies_inside_a_run(tmp_path: Path, where: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "other").mkdir()
    with refuses(ConfigError, "DISAVOW_KEYS", "outside"):
        tombstone_key(tmp_path / where, run=tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_nor_behind_a_link_that_leads_into_one(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "innocent").symlink_to(tmp_path / "run", target_is_directory=True)
    with refuses(ConfigError, "DISAVOW_KEYS", "outside"):
        tombstone_key(tmp_path / "innocent", run=tmp_path / "run")
    with refuses(ConfigError, "DISAVOW_KEYS", "outside"):
        tombstone_key(tmp_path / "run" / "keys", run=tmp_path / "innocent")


def test_a_run_with_a_name_that_begins_alike_is_another_folder(tmp_path: Path) -> None:
    assert tombstone_key(tmp_path / "run-keys", run=tmp_path / "run")


@pytest.mark.parametrize("content", [b"", b"k" * 31, b"k" * 33])
def test_a_damaged_key_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tombstone.key"
    path.write_bytes(content)
    with refuses(ConfigError, path, f"{len(content)} bytes", 32):
        tombstone_key(tmp_path, run=tmp_path / "run")
    assert path.read_bytes() == content


def _make(folder: str, start: multiprocessing.synchronize.Barrier, told: multiprocessing.Queue[bytes]) -> None:
    start.wait()
    told.put(tombstone_key(Path(folder), run=Path(folder).with_name("run")))


def test_processes_that_make_it_at_once_agree(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for attempt in range(5):
        start, told = fork.Barrier(4), fork.Queue()
        folder = tmp_path / str(attempt) / "keys"
        folder.mkdir(parents=True)
        processes = [fork.Process(target=_make, args=(str(folder), start, told)) for _ in range(4)]
        for process in processes:
            process.start()
        keys = {told.get(timeout=60) for _ in processes}
        for process in processes:
            process.join()
        assert len(keys) == 1
        assert [path.name for path in folder.iterdir()] == ["tombstone.key"]


@PROPERTY
@given(st.lists(st.tuples(st.binary(min_size=32, max_size=32), st.text(), st.text()), min_size=2, unique=True))
def test_a_tombstone_tells_key_run_and_client_apart(told: list[tuple[bytes, str, str]]) -> None:
    # a run id is hexadecimal and an id has no zero byte in front of anything, so no two triples share one
    told = [(key, run.encode().hex(), client) for key, run, client in told]
    assert len({tombstone(*one) for one in told}) == len(set(told))
    assert all(len(tombstone(*one)) == 32 for one in told)


def test_a_tombstone_says_nothing_without_the_key() -> None:
    stone = tombstone(b"k" * 32, "run", "client-07")
    assert b"client-07" not in stone
    assert stone != tombstone(b"j" * 32, "run", "client-07")
    assert stone == tombstone(b"k" * 32, "run", "client-07")


def test_a_fingerprint_knows_the_key_and_does_not_hold_it() -> None:
    assert fingerprint(b"k" * 32) != fingerprint(b"j" * 32)
    assert (b"k" * 32).hex() not in fingerprint(b"k" * 32)
