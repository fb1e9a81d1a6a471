"""Images with labels, and how they are spread over clients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_BLOCK = 1024
"""Samples that are hashed at a time."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (n, channels, height, width) in float32, and what is to be said of each.

    `labels` are (n,) whole numbers, one class of `classes` an image; or (n, classes) in float32, 0 or 1 for each of
    so many attributes. `strata` are (n,) whole numbers that take the place of classes where images have attributes.
    """

    images: Tensor
    labels: Tensor
    classes: int
    strata: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def groups(self) -> Tensor:
        """One whole number an image, by which partitions tell images apart: its class, or its stratum."""
        return self.labels if self.strata is None else self.strata

    def select(self, indices: Indices) -> Dataset:
        """Take some of the samples, in the order given.

        Args:
            indices: Which.

        Returns:
            A data set of them.
        """
        chosen = torch.from_numpy(indices)
        strata = None if self.strata is None else self.strata[chosen]
        return Dataset(self.images[chosen], self.labels[chosen], self.classes, strata)


@dataclass(frozen=True, eq=False)
class Split:
    """Samples to train on, and samples held out.

    `notes` say what is not as it should be, such as images that are not at hand. `digest` tells one collection of
    files from another; None for what is embedded.
    """

    train: Dataset
    test: Dataset
    notes: tuple[str, ...] = ()
    digest: str | None = None


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Training samples with the indices that each client holds, and held-out samples; see `Split` for the rest."""

    train: Dataset
    test: Dataset
    parts: Mapping[str, Indices]
    notes: tuple[str, ...] = ()
    digest: str | None = None

    @cached_property
    def held(self) -> str:
        """SHA-256 over what the clients hold: every id with its samples, byte by byte, in order.

        By it a run knows its data again, wherever it comes from.
        """
        found = hashlib.sha256(b"disavow/held/v1\x00")
        for client in sorted(self.parts):
            part, name = torch.from_numpy(np.asarray(self.parts[client])), client.encode()
            kinds = [(str(each.dtype), *each.shape[1:]) for each in (self.train.images, self.train.labels)]
            found.update(f"{len(name)} {len(part)} {kinds}\x00".encode() + name)
            for block in part.split(_BLOCK):
                for samples in (self.train.images[block], self.train.labels[block]):
                    found.update(samples.contiguous().numpy().data)
        return found.hexdigest()
