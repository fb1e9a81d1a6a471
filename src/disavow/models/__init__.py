"""The networks: ConvNet, LeNet5 and ResNet-mini of the paper, for images of any shape."""

from __future__ import annotations

import torch
from torch import nn

from disavow.models.convnet import ConvNet
from disavow.models.lenet5 import LeNet5
from disavow.models.resnet_mini import ResNetMini
from disavow.rounds.randomness import training_stream

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""

NETWORKS: dict[str, type[ConvNet | LeNet5 | ResNetMini]] = {
    "convnet": ConvNet,
    "lenet5": LeNet5,
    "resnet-mini": ResNetMini,
}


def build(name: str, shape: Shape, outputs: int, *, seed: int) -> nn.Module:
    """Build a network with its initial weights, a training draw: the same seed gives the same bits.

    Args:
        name: One of `NETWORKS`.
        shape: Channels, height and width of its images.
        outputs: Classes or attributes.
        seed: That of the run.

    Returns:
        The network.
    """
    stream = training_stream(seed, "initial model")
    # nn.Module draws from torch's global generator; inside the fork that is ours, and it is put back after
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream.below(1 << 63))
        return NETWORKS[name](shape, outputs)


__all__ = ["NETWORKS", "ConvNet", "LeNet5", "ResNetMini", "Shape", "build"]
