"""The workload as every peer does it: what is asked, the data, the network, one client's epochs, the test.

The peers' LeNet5 is written for speed, with results that are the same: pooling before ReLU (both are monotone, so
they may change places, and ReLU then sees a quarter of the numbers), weights in channels-last order, an epoch's
samples gathered at once, the fused form of SGD. On two CPU cores that makes the plain loop a quarter faster.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

EPOCHS = 3
BATCH = 128
LEARNING_RATE = 0.02
TEST_BATCH = 1000

_INITIAL = "initial/"


class LeNet5(nn.Module):
    """51,902 parameters for images of 28x28 and ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Scores, one row an image."""
        hidden = functional.max_pool2d(self.conv1(images), 2).relu()
        hidden = functional.max_pool2d(self.conv2(hidden), 2).relu()
        scores: Tensor = self.fc2(self.fc1(hidden.flatten(1)).relu())
        return scores


@dataclass(frozen=True, eq=False)
class Data:
    """Training and test samples on the device where they are used, and the model every contestant starts from."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    initial: dict[str, Tensor]

    def of_client(self, client: int, samples: int) -> tuple[Tensor, Tensor]:
        """What a client holds: the rows after those of the client before; after the last row comes the first."""
        rows = torch.arange(client * samples, (client + 1) * samples) % len(self.labels)
        rows = rows.to(self.labels.device)
        return self.images[rows], self.labels[rows]


def parser() -> argparse.ArgumentParser:
    """What can be asked of a contestant."""
    contestant = argparse.ArgumentParser()
    contestant.add_argument("--data", type=Path, required=True)
    contestant.add_argument("--clients", type=int, required=True)
    contestant.add_argument("--samples", type=int, required=True)
    contestant.add_argument("--rounds", type=int, required=True)
    contestant.add_argument("--warmup", type=int, required=True)
    contestant.add_argument("--device", choices=["cpu", "cuda"], required=True)
    return contestant


def arguments() -> argparse.Namespace:
    """What is asked of a peer: as of every contestant, and how many processes it shall use."""
    peer = parser()
    peer.add_argument("--workers", type=int, required=True)
    return peer.parse_args()


def load(path: Path, device: str) -> Data:
    """The workload that `benchmarks.engines.workload` wrote."""
    with np.load(path, allow_pickle=False) as held:
        arrays = {name: torch.from_numpy(held[name]) for name in held.files}
    images, test_images = (
        arrays[f"{part}_images"].float().sub_(arrays["mean"]).div_(arrays["deviation"]).unsqueeze(1)
        for part in ("train", "test")
    )
    return Data(
        images=images.to(device),
        labels=arrays["train_labels"].long().to(device),
        test_images=test_images.to(device),
        test_labels=arrays["test_labels"].long().to(device),
        initial={n.removeprefix(_INITIAL): a for n, a in arrays.items() if n.startswith(_INITIAL)},
    )


def ready(network: nn.Module, data: Data) -> None:
    """Put the initial model into a network, where the data is, in the order of memory that is fastest."""
    network.load_state_dict(data.initial)
    network.to(device=data.labels.device, memory_format=torch.channels_last)  # type: ignore[call-overload]


def train(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    """A client's local epochs, each in an order of its own, the last short batch included."""
    optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, fused=True)
    for _ in range(EPOCHS):
        order = torch.randperm(len(labels), device=labels.device)
        for batch, truth in zip(images[order].split(BATCH), labels[order].split(BATCH), strict=True):
            functional.cross_entropy(network(batch), truth).backward()
            optimiser.step()
            optimiser.zero_grad()


@torch.no_grad()
def count_right(network: nn.Module, images: Tensor, labels: Tensor) -> int:
    """How many of the images the network reads rightly."""
    parts = zip(images.split(TEST_BATCH), labels.split(TEST_BATCH), strict=True)
    return int(sum((network(some).argmax(dim=1) == truth).sum() for some, truth in parts))


def answer(options: argparse.Namespace, seconds: list[float], accuracy: float, versions: dict[str, str]) -> None:
    """Print the one line that a contestant is run for: how long each round took that is not warming up."""
    document = {"seconds": seconds[options.warmup :], "accuracy": accuracy, "versions": versions}
    print(json.dumps(document), flush=True)
