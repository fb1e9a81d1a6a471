"""The Flower engine owes what every engine owes: its clients train through real messages and real ClientApps."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from disavow.config import from_values
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of, put_model
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.errors import RoundRefused
from disavow.flower.arrays import frame_of
from disavow.flower.client import answer, train_reproducibly
from disavow.flower.engine import FlowerEngine, Rules
from disavow.flower.message_config import MessageConfigs
from disavow.flower.protocol import EPOCHS
from disavow.flower.roster import Roster
from disavow.flower.session import Session
from disavow.ledger.keys import default_folder, tombstone_key
from disavow.rounds.conduct import Conduct
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model
from tests.engines.contract import AttributesContract, Case, EngineContract, evaluated
from tests.flower.loopback import LoopbackGrid, Node
from tests.rounds.builders import ledger_of

pytestmark = pytest.mark.flower

ALONE = {"clustering": {"k": 1}, "deniability": {"x": 1}}
"""Rounds of a single client: the engine itself refuses fewer than k."""


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


def flower(case: Case, directory: Path, stack: ExitStack) -> FlowerEngine:
    """The engine with one node for each client of the case."""
    initial = copy.deepcopy(case.network)
    put_model(initial, case.model)
    frame = frame_of(ArrayRecord(initial.state_dict()))
    assert frame.layout == case.model.layout
    policy = from_values(ALONE, source="tests").policy
    ledger = stack.enter_context(ledger_of(directory, [], frame.layout, policy))
    grid = LoopbackGrid(
        {i: Node(app_of(case, client), {"client-id": client}) for i, client in enumerate(case.parts, start=1)}
    )
    key = tombstone_key(default_folder(), run=directory)
    roster = Roster(grid, ledger, key=key, identity="client-id")
    roster.look()
    configs, judge = MessageConfigs(ledger, seed=case.seed), SequentialEngine(case)
    conduct, keys = Conduct(seed=case.seed), ("arrays", "config")
    session = Session(grid, ledger, frame, roster, configs, conduct, Retrain(), directory.parent / "openings", 5.0)

    def score(number: int, arrays: ArrayRecord) -> MetricRecord:
        found = evaluated(judge, Model(frame.layout, torch.from_numpy(frame.vector(arrays))))
        return MetricRecord({"accuracy": found.accuracy, "loss": found.loss})

    return FlowerEngine(
        grid=grid,
        ledger=ledger,
        frame=frame,
        roster=roster,
        rules=Rules(timeout=5.0, repeats=0, too_large=1e6, weighted_by_key="num-examples"),
        compose=lambda question, clients: session.train_messages(
            question.number,
            question.arrays,
            ConfigRecord({} if question.epochs is None else {EPOCHS: question.epochs}),
            clients,
            keys,
        ),
        score=score,
    )


class TestFlower(EngineContract, AttributesContract):
    """Equal to the reference to the last bit, because the clients draw from the key in their message."""

    stranger = RoundRefused

    @pytest.fixture(autouse=True)
    def _runs(self, tmp_path: Path) -> Iterator[None]:
        self._folder, self._made = tmp_path, 0
        with ExitStack() as self._stack:
            yield

    def make(self, case: Case) -> Engine:
        self._made += 1
        return flower(case, self._folder / f"run-{self._made}", self._stack)

    def test_every_bit_is_that_of_the_sequential_engine(self, case: Case) -> None:
        ours = self.make(case).train(case.model, list(case.parts), 2)
        theirs = SequentialEngine(case).train(case.model, list(case.parts), 2)
        assert (ours.clients, ours.samples) == (theirs.clients, theirs.samples)
        assert torch.equal(ours.vectors, theirs.vectors)


def test_a_network_is_put_together_again_from_its_arrays() -> None:
    from disavow.models import build

    network = build("resnet-mini", (1, 8, 8), 10, seed=1)
    record = ArrayRecord(network.state_dict())
    frame = frame_of(record)
    assert torch.equal(torch.from_numpy(frame.vector(record)), model_of(network).vector)
    again = frame.record(model_of(network)).to_torch_state_dict()
    assert list(again) == list(network.state_dict())
    assert all(torch.equal(again[name], tensor) for name, tensor in network.state_dict().items())
    assert all(again[name].dtype == tensor.dtype for name, tensor in network.state_dict().items())
