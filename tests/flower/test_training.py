"""Training on nodes owes what every engine owes: its clients train through real messages and real ClientApps."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of, put_model
from disavow.errors import RoundRefused
from disavow.federation import Federation
from disavow.flower import KIPFedAvg
from disavow.flower.client import answer, train_reproducibly
from disavow.flower.messages import MessageConfigs
from disavow.flower.opened_requests import OpenedRequests
from disavow.flower.placement import NodeRequests
from disavow.flower.removal_words import RemovalWords
from disavow.flower.replies import ArrayFormat
from disavow.flower.roster import Roster
from disavow.flower.training import NodeTraining
from disavow.rounds.local_training import Engine
from tests.engines.contract import AttributesContract, Case, EngineContract, evaluated
from tests.flower.loopback import LoopbackGrid, Node

pytestmark = pytest.mark.flower


def app_of(case: Case, client: str) -> ClientApp:
    """An app that trains this client from the key in the train message."""
    app = ClientApp()
    app.query("disavow")(answer)
    indices = torch.from_numpy(case.parts[client])
    images, labels = case.images[indices], case.labels[indices]

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        network = copy.deepcopy(case.network)
        network.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=True)
        train_reproducibly(network, images, labels, message.content["config"], case.settings)
        metrics = MetricRecord({"num-examples": len(labels)})
        content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def training_on_nodes(case: Case, directory: Path, stack: ExitStack) -> NodeTraining:
    """What trains with one node for each client of the case."""
    initial = copy.deepcopy(case.network)
    put_model(initial, case.model)
    arrays = ArrayFormat.of(ArrayRecord(initial.state_dict()))
    assert arrays.layout == case.model.layout
    strategy = KIPFedAvg(ledger=directory, k=1, x=1, seed=case.seed, repeats=0, too_large=1e6)
    federation = stack.enter_context(Federation.on_nodes(directory, strategy.settings, case.model))
    grid = LoopbackGrid(
        {i: Node(app_of(case, client), {"client-id": client}) for i, client in enumerate(case.parts, start=1)}
    )
    roster = Roster(grid, federation.ledger, identity="client-id")
    roster.refresh()
    reference = SequentialEngine(case)

    def evaluate(number: int, record: ArrayRecord) -> MetricRecord:
        found = evaluated(reference, arrays.to_model(record))
        return MetricRecord({"accuracy": found.accuracy, "loss": found.loss})

    openings = directory.with_suffix(".openings")
    requests = NodeRequests(federation, openings, "signed")
    words = RemovalWords(federation, OpenedRequests(federation.ledger, openings), openings)
    return NodeTraining(
        strategy=strategy,
        grid=grid,
        ledger=federation.ledger,
        arrays=arrays,
        roster=roster,
        configs=MessageConfigs(federation.ledger, requests, words, seed=case.seed),
        requests=requests,
        words=words,
        timeout=5.0,
        evaluate_fn=evaluate,
    )


class TestNodeTraining(EngineContract, AttributesContract):
    """Equal to the reference to the last bit, because the clients draw from the key in their message."""

    stranger = RoundRefused

    @pytest.fixture(autouse=True)
    def _runs(self, tmp_path: Path) -> Iterator[None]:
        self._folder, self._made = tmp_path, 0
        with ExitStack() as self._stack:
            yield

    def make(self, case: Case) -> Engine:
        self._made += 1
        return training_on_nodes(case, self._folder / f"run-{self._made}", self._stack)

    def test_every_bit_is_that_of_the_sequential_engine(self, case: Case) -> None:
        ours = self.make(case).train(case.model, list(case.parts), 2)
        theirs = SequentialEngine(case).train(case.model, list(case.parts), 2)
        assert (ours.clients, ours.samples) == (theirs.clients, theirs.samples)
        assert torch.equal(ours.vectors, theirs.vectors)


def test_a_network_is_put_together_again_from_its_arrays() -> None:
    from disavow.models import build

    network = build("resnet-mini", (1, 8, 8), 10, seed=1)
    record = ArrayRecord(network.state_dict())
    arrays = ArrayFormat.of(record)
    assert torch.equal(torch.from_numpy(arrays.to_vector(record)), model_of(network).vector)
    again = arrays.to_record(model_of(network)).to_torch_state_dict()
    assert list(again) == list(network.state_dict())
    assert all(torch.equal(again[name], tensor) for name, tensor in network.state_dict().items())
    assert all(again[name].dtype == tensor.dtype for name, tensor in network.state_dict().items())
