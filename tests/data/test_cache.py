"""The cache of decoded images: made once, whole or not at all, and made again when it is damaged."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disavow.data import cache
from disavow.data.cache import Decoded
from disavow.data.catalogue import SPECS
from disavow.data.folder import FolderSource
from disavow.data.progress import nothing
from disavow.errors import ConfigError, StorageFull
from tests.cli.process import environment
from tests.data.making import pixels, write
from tests.refusals import refuses

MNIST = SPECS["mnist"]


def make(folder: Path, on_progress: Callable[[str, int, int | None], None] = nothing) -> Decoded:
    return cache.decoded(MNIST, FolderSource(MNIST, "data.dir", folder), on_progress)


class Heard(list[tuple[str, int, int | None]]):
    def __call__(self, what: str, done: int, total: int | None) -> None:
        self.append((what, done, total))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "data", train=60, test=20)


def left_in(root: Path) -> list[str]:
    """What is in the cache but for locks."""
    return sorted(path.name for path in root.iterdir() if path.suffix != ".lock")


def test_it_holds_what_was_decoded_mapped_for_reading(folder: Path, cache_root: Path) -> None:
    found = make(folder)
    assert np.array_equal(found.arrays["train-images"], pixels(MNIST, 60, 1).transpose(0, 3, 1, 2))
    assert np.array_equal(found.arrays["test-images"], pixels(MNIST, 20, 2).transpose(0, 3, 1, 2))
    assert found.arrays["train-labels"].tolist() == [i % 10 for i in range(60)]
    assert found.at_hand == (60, 20)
    assert found.folder.parent == cache_root
    for array in found.arrays.values():
        assert isinstance(array, np.memmap)
        assert array.dtype == np.uint8
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert left_in(cache_root) == [found.folder.name]
    assert sorted(path.name for path in found.folder.iterdir()) == [
        "contents.json",
        "test-images.npy",
        "test-labels.npy",
        "train-images.npy",
        "train-labels.npy",
    ]


def test_what_was_decoded_once_is_not_decoded_again_and_progress_goes_from_nothing_to_all(folder: Path) -> None:
    heard = Heard()
    made = make(folder, heard)
    assert heard[0] == ("decoding mnist", 0, 80)
    assert heard[-1] == ("decoding mnist", 80, 80)
    assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)
    times = {path: path.stat().st_mtime_ns for path in made.folder.iterdir()}
    again = Heard()
    assert make(folder, again).digest == made.digest
    assert again == []
    assert {path: path.stat().st_mtime_ns for path in made.folder.iterdir()} == times


def test_other_files_have_a_folder_of_their_own(folder: Path, tmp_path: Path, cache_root: Path) -> None:
    first, other = make(folder), make(write(tmp_path / "other", train=50, test=20))
    assert first.folder != other.folder
    assert len(left_in(cache_root)) == 2
    assert len(make(folder).arrays["train-labels"]) == 60


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        byte = file.read(1)
        file.seek(-3, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def claim(**changed: Any) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        contents = path.with_name("contents.json")
        contents.write_text(json.dumps(json.loads(contents.read_text()) | changed))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        cut,
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: np.save(path, np.zeros(3)),
        lambda path: cut(path.with_name("contents.json")),
        lambda path: path.with_name("contents.json").unlink(),
        lambda path: path.with_name("contents.json").write_text("[1]"),
        claim(format=99),
        claim(digest="0" * 64),
        claim(arrays={"train-images": 3}),
    ],
    ids=[
        *("a bit", "cut", "gone", "emptied", "another array", "contents cut", "contents gone", "contents a list"),
        *("another format", "another digest", "other arrays"),
    ],
)
@pytest.mark.parametrize("name", ["train-images", "test-labels"])
def test_damage_is_noticed_and_made_good(
    folder: Path, cache_root: Path, damage: Callable[[Path], None], name: str
) -> None:
    made = make(folder)
    whole = {key: np.array(array) for key, array in made.arrays.items()}
    damage(made.folder / f"{name}.npy")
    heard = Heard()
    again = make(folder, heard)
    assert heard
    assert all(np.array_equal(again.arrays[key], array) for key, array in whole.items())
    assert left_in(cache_root) == [made.folder.name]


def test_what_cannot_be_decoded_leaves_nothing_behind(folder: Path, cache_root: Path) -> None:
    path = folder / "mnist" / "test.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with refuses(ConfigError, "test.parquet") as caught:
        make(folder)
    assert caught.value.code == "DSV-101"
    assert left_in(cache_root) == []


def test_a_full_disk_is_said_with_what_to_do(
    folder: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, block: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache._Array, "add", full)
    with refuses(StorageFull, "DISAVOW_CACHE") as caught:
        make(folder)
    assert caught.value.code == "DSV-702"
    assert left_in(cache_root) == []


def test_a_cache_that_cannot_be_made_is_said_with_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DISAVOW_CACHE", str(tmp_path / "file" / "cache"))
    with refuses(ConfigError, "DISAVOW_CACHE", "/file/cache") as caught:
        make(folder)
    assert caught.value.code == "DSV-101"


def test_without_the_variable_the_cache_is_in_the_home_folder() -> None:
    assert cache.root({}) == Path.home() / ".cache" / "disavow" / "data"
    assert cache.root({"DISAVOW_CACHE": "~/elsewhere"}) == Path.home() / "elsewhere"


# -- several processes ---------------------------------------------------------------------------------------------

PROGRAM = """
import sys, time
from pathlib import Path
from disavow.data import cache
from disavow.data.catalogue import SPECS
from disavow.data.folder import FolderSource

spec = SPECS["mnist"]
heard = []

def on_progress(what, done, total):
    heard.append(what)
    if done > 0 and len(sys.argv) > 2:
        Path(sys.argv[2]).touch()
        time.sleep(float(sys.argv[3]))

found = cache.decoded(spec, FolderSource(spec, "data.dir", Path(sys.argv[1])), on_progress)
print(len(found.arrays["train-labels"]), int(found.arrays["train-images"].astype(int).sum()), sorted(set(heard)))
"""


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.kill
def test_of_two_processes_one_decodes_and_the_other_waits_for_it(folder: Path, tmp_path: Path) -> None:
    first = started(folder, tmp_path / "begun", "1.5")
    wait_for(tmp_path / "begun")
    second = started(folder)
    outputs = [process.communicate(timeout=60) for process in (first, second)]
    assert [error for _, error in outputs] == ["", ""]
    total = int(pixels(MNIST, 60, 1).astype(int).sum())
    assert outputs[0][0] == f"60 {total} ['decoding mnist']\n"
    # the second waited, or came when all was done; either way it decoded nothing
    assert outputs[1][0] in (
        f"60 {total} ['waiting for another process that decodes mnist']\n",
        f"60 {total} []\n",
    )


@pytest.mark.kill
def test_killed_in_the_middle_nothing_half_made_is_taken_and_the_next_one_cleans_up(
    folder: Path, tmp_path: Path, cache_root: Path
) -> None:
    process = started(folder, tmp_path / "begun", "60")
    wait_for(tmp_path / "begun")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    [half] = left_in(cache_root)
    assert half.startswith(".mnist-")
    found = make(folder)
    assert np.array_equal(found.arrays["train-images"], pixels(MNIST, 60, 1).transpose(0, 3, 1, 2))
    assert left_in(cache_root) == [found.folder.name]
