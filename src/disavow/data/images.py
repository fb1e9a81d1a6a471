"""The data sets of the paper as tensors: from a folder or the hub, through the cache."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from disavow.config import DataSettings
from disavow.data import cache
from disavow.data.cache import Decoded
from disavow.data.catalogue import SPECS, SPLITS, Spec
from disavow.data.dataset import Dataset, Split
from disavow.data.decode import Pixels
from disavow.data.folder import FolderSource, folder_of
from disavow.data.hub import HubSource
from disavow.data.progress import OnProgress
from disavow.errors import ConfigError

_BLOCK = 1024
"""Images that are converted at a time."""

_WHITE = 255

_log = logging.getLogger(__name__)


def official(settings: DataSettings, on_progress: OnProgress) -> Split:
    """Load the data set that the settings name, split as its authors did, wherever it comes from.

    Args:
        settings: The section `data` of the configuration.
        on_progress: Called with how far it is.

    Returns:
        Training and test samples.

    Raises:
        ConfigError: It is not to be had, or cannot be used.
    """
    spec = SPECS[settings.name]
    found = _decoded(spec, settings, on_progress)
    if settings.digest is not None and found.digest != settings.digest:
        raise ConfigError(
            f"data.digest is {settings.digest[:16]}..., but the files of {spec.name} at hand are "
            f"{found.digest[:16]}...; set data.dir to the files that the run was started with"
        )
    notes = tuple(_notes(spec, found))
    for note in notes:
        _log.info("%s", note)
    train, test = (_dataset(spec, found, split) for split in SPLITS)
    return Split(train, test, notes, found.digest)


def at_hand(settings: DataSettings, on_progress: OnProgress) -> None:
    """Find the data set and decode it, where that was not done before.

    Args:
        settings: The section `data` of the configuration.
        on_progress: Called with how far it is.

    Raises:
        ConfigError: It is not to be had, or cannot be used.
    """
    _decoded(SPECS[settings.name], settings, on_progress)


def _decoded(spec: Spec, settings: DataSettings, on_progress: OnProgress) -> Decoded:
    named = folder_of(settings.dir)
    if named is not None:
        return cache.decoded(spec, FolderSource(spec, *named), on_progress)
    return cache.from_hub(spec, settings.digest) or cache.decoded(
        spec, HubSource(spec, on_progress), on_progress, kind=cache.HUB
    )


def _notes(spec: Spec, found: Decoded) -> list[str]:
    """What is used, where that is less than it should be."""
    wanted = [min(pair) for pair in zip(spec.official, spec.most, strict=True)]
    used = [len(found.arrays[f"{split}-labels"]) for split in SPLITS]
    if all(have >= want for have, want in zip(used, wanted, strict=True)):
        return []
    return [
        f"{spec.name} is not all at hand: {used[0]:,} of {wanted[0]:,} training images and {used[1]:,} of "
        f"{wanted[1]:,} test images are used"
    ]


def _dataset(spec: Spec, found: Decoded, split: str) -> Dataset:
    images, labels = _scaled(found.arrays[f"{split}-images"]), torch.tensor(found.arrays[f"{split}-labels"])
    if not spec.attributes:
        return Dataset(images, labels.long(), spec.classes)
    return Dataset(images, labels.float(), spec.classes, _strata(spec, labels))


def _strata(spec: Spec, labels: Tensor) -> Tensor:
    """Which of some attributes an image has, as the bits of a number."""
    bits = [labels[:, spec.labels.index(name)].long() << i for i, name in enumerate(spec.strata)]
    return torch.stack(bits).sum(dim=0)


def _scaled(pixels: Pixels) -> Tensor:
    """From 0 to 1 in float32, a block at a time, so that there is never a second copy of all."""
    images = torch.empty(pixels.shape, dtype=torch.float32)
    for start in range(0, len(pixels), _BLOCK):
        block = torch.tensor(pixels[start : start + _BLOCK])
        torch.div(block, _WHITE, out=images[start : start + _BLOCK])
    return images
