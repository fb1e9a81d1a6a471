"""The embedded data set: 1,797 real handwritten digits that ship inside scikit-learn. Nothing is downloaded.

E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository (1998).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from disavow.data.dataset import Dataset

_INK = 16
"""The darkest value of a pixel."""

_SIDE = 8


def digits() -> Dataset:
    """All images, 8x8, from 0 to 1."""
    rows = _rows()
    images = torch.from_numpy(rows[:, :-1]).float().reshape(-1, 1, _SIDE, _SIDE) / _INK
    return Dataset(images, torch.from_numpy(rows[:, -1]).long(), classes=10)


@cache
def _rows() -> npt.NDArray[np.float64]:
    """One row an image, its label last. The file is read by hand: importing scikit-learn takes a second or more.

    It is read once for a process: everybody gets copies of the same rows.
    """
    spec = find_spec("sklearn")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits

    loaded = load_digits()
    return np.column_stack([loaded.data, loaded.target]).astype(np.float64)
