"""`disavow train` on image folders, as a person runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from disavow.cli import main
from disavow.data.catalogue import SPECS
from disavow.errors import ConfigError
from disavow.ledger import fsck
from tests.cli.process import COMMAND, assert_refused, disavow, environment, write_config
from tests.data.making import table, write

VALUES: dict[str, Any] = {
    "rounds": 2,
    "data": {"name": "mnist", "clients": 10},
    "training": {"epochs": 1, "batch_size": 32, "learning_rate": 0.05},
    "clustering": {"k": 3},
}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISAVOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DISAVOW_DATA_DIR", raising=False)


def here(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in this process, which has imported by now what takes seconds to import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["disavow", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    captured = capfd.readouterr()
    return subprocess.CompletedProcess(sys.argv, int(ended.value.code or 0), captured.out, captured.err)


def config_in(folder: Path, **data: Any) -> Path:
    return write_config(folder / "config.toml", {**VALUES, "data": {**VALUES["data"], **data}})


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 images in the schema of MNIST."""
    return write(tmp_path_factory.mktemp("images"), train=500, test=100)


def test_a_run_on_a_folder_trains_says_what_is_not_at_hand_and_goes_on(
    images: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    result = disavow("train", config_in(tmp_path, dir=str(images), partition="pathological"), "--run", run)
    assert result.returncode == 0, result.stderr
    note = "note: mnist is not all at hand: 500 of 60,000 training images and 100 of 10,000 test images are used"
    assert result.stderr.splitlines()[0].startswith("engine: ")
    assert result.stderr.splitlines()[1] == note
    assert result.stdout.startswith("2 rounds, accuracy ")
    assert fsck(run) == []
    # on another machine the data is elsewhere; what it is may not change
    settings = run / "config.toml"
    text = settings.read_text().replace("rounds = 2", "rounds = 3")
    moved = Path(shutil.copytree(images, tmp_path / "moved"))
    settings.write_text(text.replace(str(images), str(moved)))
    result = here(capfd, "resume", run)
    assert result.returncode == 0, result.stderr
    assert "holds 2 of 3 rounds" in result.stderr
    settings.write_text(text.replace(str(images), str(write(tmp_path / "other", train=501, test=100))))
    assert_refused(here(capfd, "resume", run), ConfigError, "data.digest", "data.dir")


def test_a_path_is_taken_from_where_the_command_is_run_and_kept_in_full(
    images: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images.parent)
    config = config_in(tmp_path, dir=images.name)
    assert here(capfd, "train", config, "--run", tmp_path / "run").returncode == 0
    assert f'dir = "{images}"' in (tmp_path / "run" / "config.toml").read_text()
    monkeypatch.chdir(tmp_path)
    assert here(capfd, "resume", tmp_path / "run").returncode == 0


def test_faces_with_attributes_train(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "data", "celeba", train=120, test=30)
    config = config_in(tmp_path, name="celeba", dir=str(folder), partition="dirichlet")
    result = here(capfd, "train", config, "--run", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert "note: celeba is not all at hand" in result.stderr


def damaged(folder: Path) -> None:
    path = folder / "mnist" / "train.parquet"
    path.write_bytes(path.read_bytes()[:999])


def without_labels(folder: Path) -> None:
    parquet.write_table(table(SPECS["mnist"], 9, label=None), folder / "mnist" / "train.parquet")


def with_words(folder: Path) -> None:
    words = table(SPECS["mnist"], 2, label=pyarrow.array(["one", "two"]))
    parquet.write_table(words, folder / "mnist" / "train.parquet")


@pytest.mark.parametrize(
    ("data", "damage", "named"),
    [
        (
            {"dir": "/nowhere"},
            None,
            ["data.dir is /nowhere", "mnist/train.parquet", "mnist/test"],
        ),
        (
            {"name": "cifar10"},
            None,
            ["data.dir is {folder}", "cifar10/train.parquet"],
        ),
        ({}, damaged, ["{folder}/mnist/train.parquet: ", "parquet"]),
        (
            {},
            without_labels,
            ["{folder}/mnist/train.parquet: ", "column label", "ylecun/mnist"],
        ),
        (
            {},
            with_words,
            ["{folder}/mnist/train.parquet: ", "column label", "string", "int64"],
        ),
        ({"clients": 41}, None, ["data.clients is 41", "allowed: up to 40"]),
        (
            {"partition": "shards", "labels_per_client": 5},
            None,
            ["data.labels_per_client is 5", "data.clients 10", "allowed: up to 4"],
        ),
        (
            {"clients": 9, "partition": "pathological"},
            None,
            ["data.clients is 9", 'data.partition "pathological"'],
        ),
    ],
)
def test_what_cannot_be_used_is_one_line_and_nothing_is_written(
    data: dict[str, Any], damage: Any, named: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "data", train=40, test=10)
    if damage is not None:
        damage(folder)
    config = config_in(tmp_path, **{"dir": str(folder), **data})
    result = here(capfd, "train", config, "--run", tmp_path / "run")
    assert_refused(result, ConfigError, *(each.format(folder=folder) for each in named))
    assert not (tmp_path / "run").exists()


def test_without_a_folder_and_without_the_hub_the_line_says_what_to_set(tmp_path: Path) -> None:
    result = subprocess.run(
        [*COMMAND, "train", str(config_in(tmp_path)), "--run", str(tmp_path / "run")],
        env=environment(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hf")),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert_refused(result, ConfigError, "DISAVOW_DATA_DIR", "data.dir", "mnist/train.parquet")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
def test_on_a_terminal_a_bar_shows_how_far_decoding_is(images: Path, tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "train", str(config_in(tmp_path, dir=str(images))), "--run", str(tmp_path / "run")],
        env=environment(TERM="xterm"),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"decoding mnist" in seen
    assert b"600/600" in seen
