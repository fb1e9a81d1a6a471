"""Images with labels, and how they are spread over clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (n, channels, height, width) in float32 and their labels (n,) as whole numbers."""

    images: Tensor
    labels: Tensor
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def select(self, indices: Indices) -> Dataset:
        """Some of the samples, in the order given."""
        chosen = torch.from_numpy(indices)
        return Dataset(self.images[chosen], self.labels[chosen], self.classes)


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Training samples with the indices that each client holds, and held-out samples."""

    train: Dataset
    test: Dataset
    parts: Mapping[str, Indices]
