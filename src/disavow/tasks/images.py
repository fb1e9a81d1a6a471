"""The built-in images and networks as a task: what `[data]` and `[model]` of the settings are short for."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from disavow import config
from disavow.config import DataSettings, ModelSettings, Settings
from disavow.models import NETWORKS
from disavow.tasks.samples import Parts, TensorSamples
from disavow.tasks.task import Task, outputs_and_targets

if TYPE_CHECKING:
    from disavow.data import FederatedData, OnProgress


class ImageTask(Task):
    """Images with classes or attributes, spread over clients, and one of the paper's networks.

    Attributes:
        data: The samples and who holds which of them, once they are read.

    """

    def __init__(self, data: DataSettings, model: ModelSettings, samples: FederatedData | None = None) -> None:
        """Describe images and a network; the images are read by `read`.

        Args:
            data: Which images, and how they are spread over how many clients.
            model: Which network.
            samples: Images that are read already.

        """
        self._data_settings = data
        self._model_settings = model
        self._samples = samples

    @property
    def data(self) -> FederatedData:
        """The samples and who holds which of them.

        Raises:
            RuntimeError: Nobody has read them yet.

        """
        if self._samples is None:
            raise RuntimeError("the images are read once a run's seed is known, by ImageTask.read")
        return self._samples

    def read(self, seed: int, on_progress: OnProgress) -> ImageTask:
        """Read the images and spread them over the clients; where that is done already, keep them.

        Args:
            seed: That of the run: it holds images out, and deals the others to clients.
            on_progress: Hears how far it is.

        Returns:
            The same task, with its samples.

        Raises:
            ConfigError: The images are not to be had, or too few for so many clients.

        """
        from disavow.data import load

        if self._samples is not None:
            return self
        found = copy.copy(self)
        found._samples = load(self._data_settings, seed=seed, on_progress=on_progress)
        return found

    def settings_with(self, settings: Settings) -> Settings:
        """Write these images and this network into settings, as their sections `data` and `model`.

        Args:
            settings: The settings; everything else of them stays.

        Raises:
            ConfigError: They do not fit together, such as k and the number of clients.

        """
        update = {"data": self._data_settings, "model": self._model_settings}
        values = settings.model_copy(update=update).model_dump()
        return config.from_values(values, source="image_task")

    def model(self) -> nn.Module:
        """See `Task`."""
        train = self.data.train
        return NETWORKS[self._model_settings.name](train.shape, train.classes)

    def clients(self) -> Mapping[str, TensorSamples]:
        """See `Task`."""
        held, tensors = self.data.parts, (self.data.train.images, self.data.train.labels)
        return {client: TensorSamples(tensors, torch.from_numpy(np.asarray(part))) for client, part in held.items()}

    def record_keys(self, client: str) -> tuple[str, ...]:
        """See `Task`: the number of each image in the training set, from 0 on."""
        return tuple(str(number) for number in np.asarray(self.data.parts[client]).tolist())

    def holding(self, parts: Parts) -> ImageTask:
        """Give the same images and network, with clients who hold other images.

        Args:
            parts: The numbers of each client's images in the training set.

        """
        found = copy.copy(self)
        found._samples = replace(self.data, parts=parts)
        return found

    def test_data(self) -> tuple[Tensor, Tensor]:
        """See `Task`."""
        return self.data.test.images, self.data.test.labels

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """See `Task`: cross entropy of classes, or the mean binary cross entropy of attributes."""
        scores, labels = outputs_and_targets(model, batch)
        return _loss(scores, labels)

    def log_likelihoods(self, model: nn.Module, batch: Any) -> Tensor:
        """See `Task`: of attributes, the product over all of them."""
        scores, labels = outputs_and_targets(model, batch)
        if labels.is_floating_point():
            losses = functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="none")
            return -losses.flatten(1).sum(1)
        return -functional.cross_entropy(scores, labels, reduction="none")

    def evaluate(self, model: nn.Module, data: Any) -> Mapping[str, float]:
        """See `Task`: of attributes, the accuracy is the mean over all of them."""
        scores, labels = self.outputs(model, data)
        right = (scores > 0) == (labels > 0) if labels.is_floating_point() else scores.argmax(1) == labels
        return {"accuracy": float(right.double().mean()), "loss": float(_loss(scores.double(), labels))}


def _loss(scores: Tensor, labels: Tensor) -> Tensor:
    if labels.is_floating_point():
        return functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype))
    return functional.cross_entropy(scores, labels)


def image_task(name: str = "digits", *, model: str = "lenet5", **data: Any) -> ImageTask:
    """Make a task of built-in images: the same run as settings with these sections `data` and `model` give.

    Args:
        name: The images: `digits`, which need no files, or one of those of `data.name`.
        model: The network: `convnet`, `lenet5` or `resnet-mini`.
        data: The other settings of the section `data`, such as `clients=20` and `partition="dirichlet"`.

    Returns:
        The task, for `Federation.create`.

    Raises:
        ConfigError: There is no such setting, or it cannot have that value.

    """
    # k and x that fit any number of clients: the run's own are checked when it is created
    values = {"data": {"name": name, **data}, "model": {"name": model}}
    checked = config.from_values({**values, "clustering": {"k": 1}, "deniability": {"x": 1}}, source="image_task")
    return ImageTask(checked.data, checked.model)
