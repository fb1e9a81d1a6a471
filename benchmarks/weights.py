"""What size classes change: means of updates weighted by classes, beside those weighted by exact sample counts.

Digits, split by `quantity` (unequal shares) over 20 clients, LeNet5; plain averaging without clusters or noise, 20
rounds by exact shares and 20 by classes. `python -m benchmarks.weights`; about ten seconds.
"""

from __future__ import annotations

import json

import torch
from torch import Tensor

from disavow import config, runs
from disavow.domain import size_class
from disavow.engines.state import model_of
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model

ROUNDS = 20


def main() -> None:
    """Measure several partitions, from mildly to very unequal."""
    for alpha in (10.0, 2.0, 0.5):
        print(json.dumps(_measure(alpha)), flush=True)


def _measure(alpha: float) -> dict[str, object]:
    values = {"data": {"clients": 20, "partition": "quantity", "alpha": alpha}, "model": {"name": "lenet5"}}
    prepared = runs.prepare(config.from_values(values, source="benchmark"))
    clients, model = sorted(prepared.loaded.samples), model_of(prepared.network)
    updates = prepared.engine.train(model, clients, 1)
    exact, classes = _shares(updates.samples), _shares([size_class(samples) for samples in updates.samples])
    vectors = updates.vectors.double()
    moved = float(((classes - exact) @ vectors).norm())
    result: dict[str, object] = {
        "alpha": alpha,
        "smallest": min(updates.samples),
        "largest": max(updates.samples),
        "largest_factor_of_a_share": float((classes / exact).log().abs().max().exp()),
        "moved_of_the_mean_update": moved / float((exact @ vectors).norm()),
        "moved_of_the_largest_distance": moved / float(torch.cdist(vectors, vectors).max()),
        "accuracy_exact": _accuracy(prepared.engine, model, clients, exact),
        "accuracy_classes": _accuracy(prepared.engine, model, clients, classes),
    }
    prepared.engine.close()
    return result


def _shares(sizes: list[int] | tuple[int, ...]) -> Tensor:
    return torch.tensor([size / sum(sizes) for size in sizes], dtype=torch.float64)


def _accuracy(engine: Engine, model: Model, clients: list[str], shares: Tensor) -> float:
    """Of the model after all rounds."""
    for number in range(1, ROUNDS + 1):
        step = shares @ engine.train(model, clients, number).vectors.double()
        model = Model(model.layout, (model.vector.double() + step).float())
    evaluation = engine.evaluate(model)
    return evaluation.accuracy if evaluation is not None else float("nan")


if __name__ == "__main__":
    main()
