"""How far the updates of the fast engine, of the reference and of a float64 computation are apart.

LeNet5, random images of 28x28, on which rounding decides a ReLU or a maximum more often than on real ones.

python -m benchmarks.agreement
"""

from __future__ import annotations

import copy
import json

import torch
from torch import Tensor

from benchmarks.growth import workload_of
from disavow.config import EngineSettings
from disavow.engines import build
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of
from disavow.engines.workload import Workload

CLIENTS, SAMPLES, ROUNDS = 4, 300, 3
APART = 1e-5


def relative(one: Tensor, other: Tensor) -> Tensor:
    """Distance of each pair of updates, relative to the second."""
    distances: Tensor = (one.double() - other).norm(dim=1) / other.norm(dim=1)
    return distances


def update_in_float64(workload: Workload, client: str, round_number: int) -> Tensor:
    """The reference's arithmetic, written out, without rounding to float32 on the way."""
    network = copy.deepcopy(workload.network).double()
    parameters, rate = list(network.parameters()), workload.settings.learning_rate
    start = torch.cat([parameter.detach().flatten() for parameter in parameters])
    part = workload.parts[client]
    for batch in workload.batches_of(client, round_number):
        chosen = torch.from_numpy(part[batch])
        scores = network(workload.images[chosen].double())
        loss = torch.nn.functional.cross_entropy(scores, workload.labels[chosen])
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.sub_(gradient, alpha=rate)
    return torch.cat([parameter.detach().flatten() for parameter in parameters]) - start


def main() -> None:
    """One line an update, and how many are farther apart than they should be."""
    workload = workload_of(CLIENTS, SAMPLES)
    model, names = model_of(workload.network), tuple(workload.parts)
    engines = SequentialEngine(workload), build(workload, EngineSettings())
    apart = 0
    for number in range(1, ROUNDS + 1):
        exact = torch.stack([update_in_float64(workload, client, number) for client in names])
        reference, fast = (engine.train(model, names, number).vectors.cpu() for engine in engines)
        columns = relative(fast, reference.double()), relative(reference, exact), relative(fast, exact)
        for client, *distances in zip(names, *(column.tolist() for column in columns), strict=True):
            apart += distances[0] > APART
            keys = ("fast_reference", "reference_float64", "fast_float64")
            print(json.dumps({"round": number, "client": client, **dict(zip(keys, distances, strict=True))}))
    print(json.dumps({"updates": ROUNDS * CLIENTS, f"farther apart than {APART:g}": apart}))
    engines[1].close()


if __name__ == "__main__":
    main()
