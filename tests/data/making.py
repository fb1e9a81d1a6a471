"""Small data sets in the schema of the real ones, and the real ones where they are at hand."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from disavow.data.catalogue import SPECS, Spec

SHARED = Path(os.environ.get("DISAVOW_DATA_DIR") or Path(__file__).parents[2].parent / "shared" / "data")
"""Where the real data sets are, if they are anywhere."""

needs_shared = pytest.mark.skipif(
    not (SHARED / "mnist" / "train.parquet").is_file(),
    reason=f"the real data sets are not in {SHARED}; set DISAVOW_DATA_DIR to a folder that has them",
)

COLUMN = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def pixels(spec: Spec, count: int, seed: int = 1, size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
    """Images (n, height, width, channels) that are dark or bright by their number, with some noise."""
    channels, height, width = spec.shape
    height, width = size or (height, width)
    generator = np.random.default_rng(seed)
    levels = (20 * (np.arange(count) % 10))[:, None, None, None]
    return (levels + generator.integers(0, 40, (count, height, width, channels))).astype(np.uint8)


def encoded(image: npt.NDArray[np.uint8], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, kind)
    return file.getvalue()


def column(images: Sequence[bytes | None]) -> pyarrow.Array:
    return pyarrow.array([{"bytes": each, "path": None} for each in images], COLUMN)


def table(spec: Spec, count: int, seed: int = 1, **instead: Any) -> pyarrow.Table:
    """Rows of a split; `instead` replaces columns by name."""
    columns = {spec.image: column([encoded(each) for each in pixels(spec, count, seed)])}
    if spec.attributes:
        drawn = np.random.default_rng(seed).random((count, len(spec.labels))) < 0.5
        columns["celeb_id"] = pyarrow.array(np.arange(count))
        columns |= {name: pyarrow.array(drawn[:, i]) for i, name in enumerate(spec.labels)}
    else:
        columns["label"] = pyarrow.array(np.arange(count) % spec.classes)
    columns |= instead
    return pyarrow.table({name: value for name, value in columns.items() if value is not None})


def write(folder: Path, name: str = "mnist", train: int = 60, test: int = 20) -> Path:
    """A folder with a small data set in it."""
    spec, place = SPECS[name], folder / name
    place.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table(spec, train, 1), place / "train.parquet", row_group_size=25)
    parquet.write_table(table(spec, test, 2), place / "test.parquet")
    return folder
