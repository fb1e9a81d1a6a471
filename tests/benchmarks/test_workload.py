"""The file that all contestants read: real pictures of the right number and size, and a model to start from."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.engines.contestants.task import LeNet5
from benchmarks.engines.workload import DATA_DIR, prepare
from disavow.errors import ConfigError, MissingExtra
from tests.refusals import refuses


@dataclass(frozen=True)
class Column:
    values: list[Any]

    def to_pylist(self) -> list[Any]:
        return self.values


def png(shade: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((28, 28), shade, np.uint8)).save(file, format="PNG")
    return file.getvalue()


def pretend_pyarrow(monkeypatch: pytest.MonkeyPatch, stand_in: ModuleType | SimpleNamespace | None) -> None:
    """Whatever is installed: pyarrow is `stand_in`, or not there."""
    real = importlib.import_module

    def found(name: str, package: str | None = None) -> Any:
        if name.partition(".")[0] != "pyarrow":
            return real(name, package)
        if stand_in is None:
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return stand_in

    monkeypatch.setattr(importlib, "import_module", found)


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "mnist").mkdir(parents=True)
    for part in ("train", "test"):
        (folder / "mnist" / f"{part}.parquet").touch()
    return folder


def test_without_a_data_folder_it_is_the_digits_of_scikit_learn_at_the_size_of_mnist(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, {})
    assert "scikit-learn" in prepared.source
    assert [path.name for path in tmp_path.iterdir()] == [prepared.path.name]
    with np.load(prepared.path, allow_pickle=False) as held:
        assert held["train_images"].shape == (60_000, 28, 28)
        assert held["test_images"].shape == (10_000, 28, 28)
        assert held["train_images"].dtype == np.uint8
        assert held["train_images"].max() > 200
        assert held["mean"] == pytest.approx(held["train_images"].mean(), rel=1e-4)
        assert held["deviation"] == pytest.approx(held["train_images"].std(), rel=1e-4)
        # whoever takes the next so many rows has some of every class, about as many of each
        assert np.bincount(held["train_labels"][:1200], minlength=10).min() > 60
        trained = {image.tobytes() for image in held["train_images"][:5000]}
        assert not trained & {image.tobytes() for image in held["test_images"][:297]}
        initial = {name.removeprefix("initial/") for name in held.files if name.startswith("initial/")}
    assert initial == LeNet5().state_dict().keys()


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "digits-1.npz").write_bytes(b"there")
    assert prepare(tmp_path, {}).path.read_bytes() == b"there"


def test_mnist_is_read_where_the_environment_says(
    tmp_path: Path, mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"train": [10, 20, 30], "test": [40, 50]}

    def read_table(path: Path) -> dict[str, Column]:
        shades = rows[path.stem]
        return {"image": Column([{"bytes": png(s)} for s in shades]), "label": Column([s // 10 for s in shades])}

    pretend_pyarrow(monkeypatch, SimpleNamespace(read_table=read_table))
    prepared = prepare(tmp_path, {DATA_DIR: str(mnist)})
    assert prepared.source == "MNIST"
    with np.load(prepared.path, allow_pickle=False) as held:
        assert sorted(held["train_labels"]) == [1, 2, 3]
        # images and labels are shuffled together
        assert (held["train_images"][:, 0, 0] == 10 * held["train_labels"]).all()
        assert held["test_labels"].tolist() == [4, 5]


def test_without_pyarrow_it_says_what_to_install(
    tmp_path: Path, mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_pyarrow(monkeypatch, None)
    with refuses(MissingExtra, "pyarrow", "pip install pyarrow pillow"):
        prepare(tmp_path, {DATA_DIR: str(mnist)})
    assert list(tmp_path.glob("*.npz")) == []


def test_a_folder_without_mnist_is_refused(tmp_path: Path) -> None:
    with refuses(ConfigError, "DISAVOW_DATA_DIR", "mnist/train.parquet"):
        prepare(tmp_path, {DATA_DIR: str(tmp_path)})
