"""What a round costs over Flower's own FedAvg: the same client code, 50 clients of LeNet5, in one simulation.

Both strategies take turns in one server app, over the same nodes and the same Ray actors, so that whatever else
the machine does meets both. A round is timed from one evaluation of the global model to the next. Images are
random: how long a step takes does not depend on what is in them. Needs the extra `flower`.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import statistics
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from disavow.models import build

CLIENTS, SAMPLES, EPOCHS, BATCH, LEARNING_RATE = 50, 1200, 3, 128, 0.02
TURNS, ROUNDS = 3, 3
"""Each strategy has so many turns of so many timed rounds; one more begins each turn, untimed."""


def main() -> None:
    """Run the simulation and print both numbers."""
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    seconds: dict[str, list[float]] = {"FedAvg": [], "KIPFedAvg": []}
    server, client = ServerApp(), ClientApp()

    # functions of the program that is run travel to the actors by value with every message; a module's by name
    me = import_module("benchmarks.flower")
    client.train()(me.train)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["DISAVOW_KEYS"] = str(Path(folder) / "keys")
        _make_key(Path(folder) / "keys")

        @server.main()  # type: ignore[untyped-decorator]
        def serve(grid: Any, context: Any) -> None:  # noqa: ARG001
            for turn in range(TURNS):
                seconds["FedAvg"] += lead(grid, None)
                seconds["KIPFedAvg"] += lead(grid, Path(folder) / f"run-{turn}")

        cores = os.cpu_count() or 1
        run_simulation(
            server_app=server,
            client_app=client,
            num_supernodes=CLIENTS,
            backend_config={
                "init_args": {"num_cpus": cores, "log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
    report(seconds)


def report(seconds: dict[str, list[float]]) -> None:
    """Both medians, and the overhead."""
    medians = {name: statistics.median(measured) for name, measured in seconds.items()}
    for name, measured in seconds.items():
        document = {"strategy": name, "clients": CLIENTS, "rounds": len(measured), "seconds_a_round": medians[name]}
        print(json.dumps({**document, "fastest": min(measured), "slowest": max(measured)}))
    print(json.dumps({"overhead": medians["KIPFedAvg"] / medians["FedAvg"] - 1}))


def lead(grid: Any, run: Path | None) -> list[float]:
    """One turn of a strategy: FedAvg, or ours with its run in this folder; the seconds of its timed rounds."""
    from flwr.app import ArrayRecord, MetricRecord
    from flwr.serverapp.strategy import FedAvg

    from disavow.flower import KIPFedAvg

    stamps: list[float] = []

    def evaluate(number: int, arrays: Any) -> Any:  # noqa: ARG001
        stamps.append(time.perf_counter())
        return MetricRecord({"accuracy": 0.0, "loss": 0.0})

    strategy = FedAvg(fraction_evaluate=0.0)
    if run is not None:
        strategy = KIPFedAvg(fraction_evaluate=0.0, ledger=run, k=4, x=2)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(network().state_dict()),
        num_rounds=1 + ROUNDS,
        evaluate_fn=evaluate,
    )
    # the first stamp is of the initial model, and the round after it begins the turn
    return [after - before for before, after in itertools.pairwise(stamps[1:])]


def network() -> nn.Module:
    """LeNet5 for 28x28."""
    return build("lenet5", (1, 28, 28), 10, seed=1)


@functools.cache
def held(client: int) -> tuple[Tensor, Tensor]:
    """A client's samples, once in the life of an actor."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(client)
    return torch.rand(SAMPLES, 1, 28, 28, generator=generator), torch.randint(10, (SAMPLES,), generator=generator)


def train(message: Any, context: Any) -> Any:
    """A client's part of a round: plain PyTorch."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    images, labels = held(int(context.node_config["partition-id"]))
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for _ in range(EPOCHS):
        for batch in torch.randperm(SAMPLES).split(BATCH):
            optimiser.zero_grad()
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": SAMPLES})}
    return Message(RecordDict(content), reply_to=message)


def _make_key(folder: Path) -> None:
    """A run with everything: its log is signed, and every message brings a receipt."""
    from disavow.proof.keys import generate

    generate(folder, name="benchmark", passphrase=None, at="2026-01-31T12:00:00.000000+00:00")


if __name__ == "__main__":
    main()
