"""What the generic path of a task costs over a hand-written PyTorch loop for the same training.

    python -m benchmarks tasks

Four clients of 400 samples train one epoch each in batches of 16, one client after the other, with one thread: by
the reference engine through `disavow.task`, and by a loop written for this model alone. An MLP by Adam, a CNN with
batch norm by SGD with Nesterov momentum, a small transformer by AdamW. Both run in turn, eleven times; seconds are
of the processor, the least of all times, because what else runs on a machine only ever adds to them.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import disavow
from disavow.config import EngineSettings, TrainingSettings
from disavow.engines.state import model_of
from disavow.engines.task_engine import build_for_task
from disavow.rounds.threads import one_thread
from disavow.tasks.loading import load

TIMES = 11
CLIENTS = 4
SAMPLES = 400
BATCH = 16


class Transformer(nn.Module):
    """Two layers of attention over 16 words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 4)

    def forward(self, words: Tensor) -> Tensor:
        """Score each sentence."""
        scores: Tensor = self.head(self.layers(self.embedding(words)).mean(dim=1))
        return scores


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def _cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 11 * 11, 4)),
    )


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], Callable[[Any], torch.optim.Optimizer]]] = {
    "mlp": (_mlp, lambda: torch.randn(SAMPLES, 30), lambda p: torch.optim.Adam(p, lr=1e-3)),
    "cnn": (
        _cnn,
        lambda: torch.randn(SAMPLES, 1, 28, 28),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    ),
    "transformer": (
        Transformer,
        lambda: torch.randint(0, 1000, (SAMPLES, 16)),
        lambda p: torch.optim.AdamW(p, lr=1e-3),
    ),
}


def main() -> None:
    """Print one line of JSON for each kind of model."""
    for name in KINDS:
        print(json.dumps(measured(name)), flush=True)


def measured(name: str) -> dict[str, Any]:
    """Time both loops on one kind of model."""
    build, inputs, optimizer = KINDS[name]
    torch.manual_seed(1)
    data = {f"client-{i}": (inputs(), torch.randint(0, 4, (SAMPLES,))) for i in range(CLIENTS)}
    training = TrainingSettings(epochs=1, batch_size=BATCH)
    task = disavow.task(model=build, clients=data, optimizer=optimizer)
    loaded = load(task, training=training, seed=1)
    engine = build_for_task(loaded, training, 1, EngineSettings(name="sequential", device="cpu"))
    model = model_of(loaded.network)
    network = copy.deepcopy(loaded.network)

    def generic() -> None:
        engine.train(model, tuple(data), 1)

    initial = copy.deepcopy(network.state_dict())
    start = torch.cat([each.flatten() for each in initial.values()])

    def by_hand() -> None:
        updates = []
        with one_thread():
            for samples, labels in data.values():
                network.load_state_dict(initial)
                network.train()
                trained = optimizer(network.parameters())
                for chosen in torch.randperm(SAMPLES).split(BATCH):
                    trained.zero_grad()
                    functional.cross_entropy(network(samples[chosen]), labels[chosen]).backward()
                    trained.step()
                updates.append(torch.cat([each.flatten() for each in network.state_dict().values()]) - start)

    seconds: dict[str, list[float]] = {"generic": [], "by hand": []}
    for _ in range(TIMES):
        for label, run in (("generic", generic), ("by hand", by_hand)):
            begun = time.process_time()
            run()
            seconds[label].append(time.process_time() - begun)
    least = {label: min(times) for label, times in seconds.items()}
    return {
        "model": name,
        "generic_seconds": least["generic"],
        "by_hand_seconds": least["by hand"],
        "ratio": least["generic"] / least["by hand"],
    }


if __name__ == "__main__":
    main()
