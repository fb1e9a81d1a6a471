"""The benchmark's samples and initial model, in one file that every contestant reads. Nothing is downloaded.

MNIST where it is at hand; otherwise the handwritten digits of scikit-learn, enlarged and repeated to MNIST's size:
how long a round takes does not depend on what is in the pictures, only accuracies do.
"""

from __future__ import annotations

import importlib
import io
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from disavow.data.digits import digits
from disavow.engines.state import model_of
from disavow.errors import ConfigError, MissingExtra
from disavow.models import build

DATA_DIR = "DISAVOW_DATA_DIR"
"""The environment variable that names a folder with `mnist/train.parquet` and `mnist/test.parquet` in it."""

SIDE = 28
CLASSES = 10
TRAIN, TEST = 60_000, 10_000
SEED = 1

_FORMAT = 1
"""Part of the file's name; a new number when what is in the file changes."""
_HELD_OUT = 297
"""Of the 1,797 digits; they are never trained on."""

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Prepared:
    """A file with the workload, and in words what is in it."""

    path: Path
    source: str


def prepare(folder: Path, environment: Mapping[str, str] = os.environ) -> Prepared:
    """Write the workload into a folder, unless it is there already."""
    data_dir = environment.get(DATA_DIR)
    name, source = ("mnist", "MNIST") if data_dir else ("digits", "digits of scikit-learn, enlarged and repeated")
    path = folder / f"{name}-{_FORMAT}.npz"
    if not path.is_file():
        arrays = _mnist(Path(data_dir)) if data_dir else _digits()
        _write(path, {**_shuffled(arrays), **_scale(arrays), **_initial()})
    return Prepared(path, source)


def _mnist(data_dir: Path) -> Arrays:
    """MNIST from the parquet files of the Hugging Face data set `ylecun/mnist`."""
    arrays: Arrays = {}
    for part in ("train", "test"):
        path = data_dir / "mnist" / f"{part}.parquet"
        if not path.is_file():
            raise ConfigError(
                f"{DATA_DIR} is {data_dir}; allowed: a folder with {path.relative_to(data_dir)} in it"
            )
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = _parquet(path)
    return arrays


def _parquet(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
        image = importlib.import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"reading {path} needs {error.name}: pip install pyarrow pillow (without {DATA_DIR}, the benchmark "
            "takes the digits of scikit-learn)"
        ) from None
    table = parquet.read_table(path)
    pictures = [image.open(io.BytesIO(row["bytes"])) for row in table["image"].to_pylist()]
    images = np.stack([np.asarray(picture, dtype=np.uint8) for picture in pictures])
    return images, np.asarray(table["label"].to_pylist(), dtype=np.uint8)


def _digits() -> Arrays:
    whole = digits()
    larger = functional.interpolate(whole.images, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    images = larger.mul(255).round().to(torch.uint8).squeeze(1).numpy()
    labels = whole.labels.to(torch.uint8).numpy()
    train, test = np.arange(_HELD_OUT, len(whole)), np.arange(_HELD_OUT)
    return {
        "train_images": images[np.resize(train, TRAIN)],
        "train_labels": labels[np.resize(train, TRAIN)],
        "test_images": images[np.resize(test, TEST)],
        "test_labels": labels[np.resize(test, TEST)],
    }


def _shuffled(arrays: Arrays) -> Arrays:
    """Training samples in another order, so that whoever takes the next so many has some of every class."""
    order = np.random.default_rng(SEED).permutation(len(arrays["train_labels"]))
    return {name: array[order] if name.startswith("train_") else array for name, array in arrays.items()}


def _scale(arrays: Arrays) -> Arrays:
    """What makes pixels of mean 0 and deviation 1: without it, the first rounds would teach the model nothing."""
    pixels = arrays["train_images"]
    return {"mean": np.array(pixels.mean(), np.float32), "deviation": np.array(pixels.std(), np.float32)}


def _initial() -> Arrays:
    """The model that every contestant starts from, so that their accuracies can be compared."""
    model = model_of(build("lenet5", (1, SIDE, SIDE), CLASSES, seed=SEED))
    return {f"initial/{name}": tensor.numpy() for name, tensor in model.tensors().items()}


def _write(path: Path, arrays: Arrays) -> None:
    """All or nothing: a file that is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        part = Path(file.name)
        try:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.close()
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
