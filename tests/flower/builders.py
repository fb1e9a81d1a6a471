"""Small federations in this process: apps that learn nothing much, but return what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from disavow.flower import KIPFedAvg
from disavow.flower.client import answer, evidence_mod
from disavow.ledger import Ledger
from tests.flower.loopback import LoopbackGrid, Node
from tests.rounds.builders import MOMENT

SAMPLES = 10


def initial_arrays(value: float = 0.0) -> ArrayRecord:
    """A model of eleven floating numbers and one counter."""
    return ArrayRecord(
        {
            "weight": Array(np.full((5, 2), value, np.float32)),
            "count": Array(np.array(3, np.int64)),
            "bias": Array(np.full((1,), value, np.float32)),
        }
    )


def moved(arrays: ArrayRecord, by: Callable[[tuple[int, ...]], Any]) -> ArrayRecord:
    """The arrays with something added to the floating ones."""
    new = {}
    for name, array in arrays.items():
        values = array.numpy()
        if np.issubdtype(values.dtype, np.floating):
            values = (values + by(values.shape)).astype(np.float32)
        new[name] = Array(values)
    return ArrayRecord(new)


def learner(*, seeded: bool = True) -> ClientApp:
    """An app whose update is drawn at random: from the seed in its message, or from nowhere."""
    app = ClientApp(mods=[evidence_mod])
    app.query("disavow")(answer)

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        config = message.content["config"]
        stream = np.random.default_rng(config["disavow-seed"] if seeded else None)
        arrays = moved(message.content["arrays"], lambda shape: 0.1 * stream.standard_normal(shape))
        metrics = MetricRecord({"num-examples": SAMPLES, "train_loss": float(config["server-round"])})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()  # type: ignore[untyped-decorator]
    def evaluate(message: Message, context: Context) -> Message:
        loss = float(message.content["config"]["server-round"])
        metrics = MetricRecord({"num-examples": SAMPLES, "eval_loss": loss})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def make_grid(count: int, app: ClientApp | None = None) -> LoopbackGrid:
    """Nodes 1, 2, ... with the client ids c1, c2, ..."""
    return LoopbackGrid({i: Node(app or learner(), {"client-id": f"c{i}"}) for i in range(1, count + 1)})


def strategy(directory: Path | str, **more: Any) -> KIPFedAvg:
    """A strategy that keeps its run there; k = 3, x = 2."""
    values: dict[str, Any] = {"k": 3, "x": 2, "fraction_evaluate": 0.0, "identity": "client-id", "repeats": 0}
    return KIPFedAvg(**{"ledger": directory, **values, **more})


def rounds_received(node: Node) -> list[int]:
    """The rounds that a node was asked to train in."""
    return [m.content["config"]["server-round"] for m in node.received if m.metadata.message_type == "train"]


def place(directory: Path, clients: Iterable[str]) -> None:
    """Place erasure requests as `disavow erase` does beside the process that holds the run."""
    with Ledger.open(directory, shared=True) as ledger:
        ledger.place_requests(list(clients), at=MOMENT)


def placing(directory: Path, requests: dict[int, list[str]]) -> Callable[[int, ArrayRecord], MetricRecord]:
    """An `evaluate_fn` after which these clients ask to be forgotten, by the round; each asks once."""
    waiting = dict(requests)

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        if number in waiting:
            place(directory, waiting.pop(number))
        return MetricRecord({"accuracy": 0.5, "loss": 1.0})

    return evaluate
