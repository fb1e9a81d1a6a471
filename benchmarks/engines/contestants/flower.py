# mypy: ignore-errors
"""Flower's simulation engine with its FedAvg, in the message API.

One Ray actor a core; data and network are loaded once an actor; no evaluation on clients; the server tests.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import tempfile
import time
from pathlib import Path

import torch

from . import task


def main() -> None:
    """Time the rounds that were asked for."""
    import flwr
    import ray
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    options = task.arguments()
    stamps, accuracies = [], []
    server, client = ServerApp(), ClientApp()

    @server.main()
    def serve(grid, context):  # noqa: ARG001
        lead(grid, options, stamps, accuracies)

    # Functions of the program that is run travel to the actors by value with every message, and come without what
    # was loaded before; those of a module travel as a name.
    client.train()(importlib.import_module(__spec__.name).train)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        shares = {"num_cpus": 1, "num_gpus": 1 / options.workers if options.device == "cuda" else 0.0}
        run_simulation(
            server_app=server,
            client_app=client,
            num_supernodes=options.clients,
            backend_config={
                "init_args": {"num_cpus": options.workers, "log_to_driver": False, "_temp_dir": folder},
                "client_resources": shares,
            },
        )
    seconds = [after - before for before, after in itertools.pairwise(stamps)]
    versions = {"flwr": flwr.__version__, "ray": ray.__version__, "torch": torch.__version__}
    task.answer(options, seconds, accuracies[-1], versions)


def lead(grid, options, stamps, accuracies) -> None:
    """The server's part: all rounds, each tested, and the moment at which each was over."""
    from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
    from flwr.serverapp.strategy import FedAvg

    torch.set_num_threads(options.workers)  # while the server tests, the actors wait
    data = task.load(options.data, options.device)
    network = task.LeNet5()
    task.ready(network, data)

    def test(number, arrays):  # noqa: ARG001
        network.load_state_dict(arrays.to_torch_state_dict())
        right = task.count_right(network, data.test_images, data.test_labels)
        accuracies.append(right / len(data.test_labels))
        stamps.append(time.perf_counter())
        return MetricRecord({"accuracy": accuracies[-1]})

    def all_of_them(replies, weight):  # noqa: ARG001
        """Flower goes on without the clients that failed; a benchmark must not."""
        if len(replies) != options.clients:
            raise RuntimeError(f"{len(replies)} of {options.clients} clients answered")
        return MetricRecord()

    FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=all_of_them).start(
        grid=grid,
        initial_arrays=ArrayRecord(data.initial),
        num_rounds=options.warmup + options.rounds,
        train_config=ConfigRecord(
            {"data": str(options.data), "samples": options.samples, "device": options.device}
        ),
        evaluate_fn=test,
    )


def train(message, context):
    """A client's part of a round."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    config, client = message.content["config"], context.node_config["partition-id"]
    _, network = loaded(config["data"], config["device"])
    images, labels = held(config["data"], config["device"], client, config["samples"])
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    task.train(network, images, labels)
    records = {
        "arrays": ArrayRecord(network.state_dict()),
        "metrics": MetricRecord({"num-examples": len(labels)}),
    }
    return Message(content=RecordDict(records), reply_to=message)


@functools.cache
def loaded(path: str, device: str):
    """Data and network, once in the life of an actor."""
    torch.set_num_threads(1)
    data = task.load(Path(path), device)
    network = task.LeNet5()
    task.ready(network, data)
    return data, network


@functools.cache
def held(path: str, device: str, client: int, samples: int):
    """What a client holds, once in the life of an actor."""
    data, _ = loaded(path, device)
    return data.of_client(client, samples)


if __name__ == "__main__":
    main()
