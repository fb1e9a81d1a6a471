"""The embedded data set: 1,797 real handwritten digits that ship inside scikit-learn. Nothing is downloaded.

E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository (1998).
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits

from disavow.data.dataset import Dataset

_INK = 16
"""The darkest value of a pixel."""


def digits() -> Dataset:
    """All images, 8x8, from 0 to 1."""
    loaded = load_digits()
    images = torch.from_numpy(loaded.images).float().unsqueeze(1) / _INK
    return Dataset(images, torch.from_numpy(loaded.target).long(), classes=10)
