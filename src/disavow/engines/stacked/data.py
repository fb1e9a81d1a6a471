"""Samples on the device: each data set once, however many federations share it and however many calls use it."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

KEPT = 4
"""Placements that stay on the device: the training and the held-out samples of a run, and those of one more."""

Samples = tuple[Tensor, Tensor]
"""Images and their labels."""

_Key = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Placed:
    """Data sets one after the other on the device; `starts[i]` is the number of the first sample of set i."""

    images: Tensor
    labels: Tensor
    starts: tuple[int, ...]


class DeviceData:
    """What has been placed, for as long as the tensors it was placed from are alive and unchanged."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._placed: OrderedDict[_Key, Placed] = OrderedDict()
        self._watches: dict[_Key, list[weakref.ref[Tensor]]] = {}

    def __len__(self) -> int:
        return len(self._placed)

    def place(self, sets: Sequence[Samples]) -> Placed:
        """All these sets on the device; one that occurs twice is there once."""
        distinct = {_key(samples): samples for samples in sets}
        key = tuple(number for each in distinct for number in each)
        placed = self._placed.get(key) or self._copied(key, list(distinct.values()))
        if key in self._placed:
            self._placed.move_to_end(key)
        first = dict(zip(distinct, placed.starts, strict=True))
        return replace(placed, starts=tuple(first[_key(samples)] for samples in sets))

    def clear(self) -> None:
        """Let go of everything."""
        self._placed.clear()
        self._watches.clear()

    def _copied(self, key: _Key, sets: list[Samples]) -> Placed:
        while len(self._placed) >= KEPT:
            self._forget(next(iter(self._placed)))
        # straight from where they are: a copy of each on the device first would hold them there twice
        starts = [0]
        for _, labels in sets:
            starts.append(starts[-1] + len(labels))
        images, labels = (_joined([each[i] for each in sets], self._device) for i in (0, 1))
        placed = Placed(images, labels, tuple(starts[:-1]))
        if images is not sets[0][0]:
            # samples that live on the device already are nobody's copy, and cost nothing to place again
            self._placed[key] = placed
            self._watches[key] = [
                weakref.ref(tensor, lambda _: self._forget(key)) for each in sets for tensor in each
            ]
        return placed

    def _forget(self, key: _Key) -> None:
        self._placed.pop(key, None)
        self._watches.pop(key, None)


def _key(samples: Samples) -> _Key:
    """Which tensors they are, and how often they were written into."""
    images, labels = samples
    return id(images), images._version, id(labels), labels._version


def _joined(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    if len(tensors) == 1:
        return tensors[0].to(device)
    length = sum(map(len, tensors))
    joined = torch.empty(length, *tensors[0].shape[1:], dtype=tensors[0].dtype, device=device)
    for part, tensor in zip(joined.split([len(each) for each in tensors]), tensors, strict=True):
        part.copy_(tensor)
    return joined


def sent(numbers: npt.NDArray[np.int64], device: torch.device) -> Tensor:
    """Whole numbers on the device. From pinned memory they go without waiting for the work before them."""
    host = torch.from_numpy(numbers)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
