"""A federation of nodes with keys, records and folders of evidence, in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result

from disavow.domain import ErasureRequest
from disavow.flower.client import answer, evidence_mod, without_excluded
from disavow.flower.node_keys import NodeSigner, fingerprint
from disavow.ledger import Ledger
from disavow.proof.keys import generate
from tests.flower.builders import SAMPLES, initial_arrays, moved, strategy
from tests.flower.loopback import LoopbackGrid, Node
from tests.flower.network import make_node_key


def record_learner(*, leaves_out: bool = True) -> ClientApp:
    """An app whose update is drawn from the seed in its message and from the keys of the records it trains on."""
    app = ClientApp(mods=[evidence_mod])
    app.query("disavow")(answer)

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        config, held = message.content["config"], str(context.node_config.get("records", "")).split()
        records = without_excluded(message, held, held) if leaves_out else held
        digest = hashlib.sha256(" ".join(records).encode()).digest()
        stream = np.random.default_rng([config["disavow-seed"], *digest])
        arrays = moved(message.content["arrays"], lambda shape: 0.1 * stream.standard_normal(shape))
        metrics = MetricRecord({"num-examples": SAMPLES, "train_loss": 1.0})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


class Hospitals:
    """Six nodes, or so many, each with a key, three records and a folder of evidence."""

    def __init__(self, folder: Path, *, nodes: int = 6, keys: Mapping[int, Path] | None = None) -> None:
        self.folder, self.run = folder, folder / "run"
        folder.mkdir(exist_ok=True)
        generate(folder / "keys", name="server", passphrase=None, at="2026-01-01T00:00:00.000000+00:00")
        self.keys = keys or {i: make_node_key(folder / f"node-{i}") for i in range(1, nodes + 1)}
        self.grid = LoopbackGrid({i: self.node(i) for i in self.keys})

    def node(self, i: int, app: ClientApp | None = None, **config: str) -> Node:
        """Node i, as it starts."""
        known = {"evidence-dir": str(self.evidence(i)), "node-key": str(self.keys[i]), "client-id": f"c{i}"}
        records = " ".join(f"record-{i}-{j}" for j in range(3))
        values = {**known, "records": records, **config}
        return Node(app or record_learner(), values, NodeSigner.load(self.keys[i]).public_key)

    def evidence(self, i: int) -> Path:
        """The folder that node i is told to keep evidence in."""
        return self.folder / f"evidence-{i}"

    def kept(self, i: int) -> Path:
        """What node i keeps of the run."""
        [found] = self.evidence(i).iterdir()
        return found

    def client(self, i: int) -> str:
        """The id of node i: the fingerprint of its key."""
        known = fingerprint(NodeSigner.load(self.keys[i]).public_key)
        assert known is not None
        return known

    def train(self, rounds: int, after: Mapping[int, Callable[[], Any]] | None = None, **more: Any) -> Result:
        """Train; after some rounds something happens, once."""
        waiting = dict(after or {})

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
            if number in waiting:
                waiting.pop(number)()
            return MetricRecord({"accuracy": 0.5, "loss": 1.0})

        made = strategy(self.run, **{"identity": "key", "keys": self.folder / "keys", **more})
        return made.start(
            grid=self.grid,
            initial_arrays=initial_arrays(),
            num_rounds=rounds,
            timeout=0.5,
            evaluate_fn=evaluate,
        )

    def requests(self) -> tuple[ErasureRequest, ...]:
        """The requests of the run."""
        with Ledger.open(self.run, keys=self.folder / "keys") as ledger:
            return ledger.requests()

    def exclusions_sent(self, i: int) -> list[tuple[int, int]]:
        """The rounds that node i was asked to train, each with the number of records to leave out."""
        sent = []
        for message in self.grid.nodes[i].received:
            if message.metadata.message_type == "train":
                record = message.content.get("disavow-exclusions")
                hashes: Sequence[bytes] = [] if record is None else record["hashes"]
                sent.append((message.content["config"]["server-round"], len(hashes)))
        return sent
