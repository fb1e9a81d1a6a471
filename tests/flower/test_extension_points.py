"""What a subclass of FedAvg may override or pass is called, in every round, also in those that are retrained."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

from disavow.errors import ConfigError
from disavow.flower import KIPFedAvg
from disavow.ledger import Ledger
from tests.flower.builders import initial_arrays, make_grid, placing, rounds_received, strategy
from tests.flower.test_strategy import leave_together, members, start, vector_of

pytestmark = pytest.mark.flower

Train = tuple[ArrayRecord | None, MetricRecord | None]


class Recording(KIPFedAvg):
    """Overrides all that FedAvg lets one override, and notes each call."""

    def __init__(self, directory: Path, **more: Any) -> None:
        named = {"k": 3, "identity": "auto", "repeats": 0}
        super().__init__(
            ledger=directory,
            train_metrics_aggr_fn=self.aggregate_train_metrics,
            evaluate_metrics_aggr_fn=self.aggregate_evaluate_metrics,
            **{**named, **more},
        )
        self.calls: list[tuple[str, int]] = []
        self.nodes: dict[int, set[int]] = {}
        self.models: dict[int, np.ndarray[Any, Any]] = {}
        self.senders: dict[int, set[int]] = {}

    def summary(self) -> None:
        self.calls.append(("summary", 0))
        super().summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.calls.append(("configure_train", server_round))
        self.nodes[server_round] = set(grid.get_node_ids())
        config["lr"] = 0.1 / server_round
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Train:
        self.calls.append(("aggregate_train", server_round))
        replies = list(replies)
        self.senders[server_round] = {reply.metadata.src_node_id for reply in replies}
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        self.models[server_round] = vector_of(arrays)
        return arrays, MetricRecord({**(metrics or {}), "mine": server_round})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.calls.append(("configure_evaluate", server_round))
        assert np.array_equal(vector_of(arrays), self.models[server_round])
        return super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        self.calls.append(("aggregate_evaluate", server_round))
        metrics = super().aggregate_evaluate(server_round, replies)
        return MetricRecord({**(metrics or {}), "mine": server_round})

    def aggregate_train_metrics(self, contents: list[RecordDict], key: str) -> MetricRecord:
        self.calls.append(("train_metrics_aggr_fn", len(contents)))
        return MetricRecord({"train_metrics": len(contents)})

    def aggregate_evaluate_metrics(self, contents: list[RecordDict], key: str) -> MetricRecord:
        self.calls.append(("evaluate_metrics_aggr_fn", len(contents)))
        return MetricRecord({"evaluate_metrics": len(contents)})


def test_all_of_them_are_called_in_flowers_order(tmp_path: Path) -> None:
    made, grid = Recording(tmp_path / "run"), make_grid(6)
    result = start(made, grid, 2)
    a_round = [
        ("configure_train", 0),
        ("aggregate_train", 0),
        ("train_metrics_aggr_fn", 6),
        ("configure_evaluate", 0),
        ("aggregate_evaluate", 0),
        ("evaluate_metrics_aggr_fn", 6),
    ]
    expected = [(name, value or number) for number in (1, 2) for name, value in a_round]
    assert made.calls == [("summary", 0), *expected]
    with Ledger.open(tmp_path / "run") as ledger:
        assert all(np.array_equal(made.models[number], ledger.model_after(number)) for number in (1, 2))
    # what they return is what the app sees
    for number in (1, 2):
        assert dict(result.train_metrics_clientapp[number]) == {"train_metrics": 6, "mine": number}
        assert dict(result.evaluate_metrics_clientapp[number]) == {"evaluate_metrics": 6, "mine": number}
    sent = [m.content["config"] for m in grid.nodes[1].received if m.metadata.message_type == "train"]
    assert [(config["lr"], config["disavow-client"]) for config in sent] == [(0.1, "c1"), (0.05, "c1")]


def test_they_are_called_again_in_rounds_that_are_retrained_and_see_no_leaver(tmp_path: Path) -> None:
    grid, run = make_grid(9), tmp_path / "run"
    leavers = leave_together(run, grid, Recording(run))
    made = Recording(run)
    start(made, grid, 4, evaluate_fn=placing(run, {3: leavers}))
    rounds = [3, 1, 2, 3, 4]
    assert [number for name, number in made.calls if name == "configure_train"] == rounds
    assert [number for name, number in made.calls if name == "aggregate_train"] == rounds
    # the models between a rollback and its end are served to nobody
    assert [number for name, number in made.calls if name == "configure_evaluate"] == [3, 4]
    left = {node for node, each in grid.nodes.items() if each.config["client-id"] in leavers}
    assert made.nodes[1] == made.senders[1] == set(grid.nodes) - left
    with Ledger.open(run) as ledger:
        assert all(np.array_equal(made.models[number], ledger.model_after(number)) for number in (1, 2, 3, 4))


def test_messages_that_a_subclass_makes_by_itself_reach_the_clients_of_the_round_alone(tmp_path: Path) -> None:
    class Own(KIPFedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            config["server-round"] = server_round
            everybody = range(1, 9)  # also who has left
            return [Message(RecordDict({"arrays": arrays, "config": config}), node, "train") for node in everybody]

    grid, run = make_grid(8), tmp_path / "run"
    made = Own(ledger=run, k=3, fraction_evaluate=0.0, identity="client-id")
    start(made, grid, 3, evaluate_fn=placing(run, {1: ["c5"]}))
    assert rounds_received(grid.nodes[5]) == [1]
    assert rounds_received(grid.nodes[6]) == [1, 2, 3]
    sent = [m.content["config"]["disavow-client"] for m in grid.nodes[6].received if "config" in m.content]
    assert sent == ["c6"] * 3
    with Ledger.open(run) as ledger:
        assert members(ledger, 3) == {f"c{i}" for i in range(1, 9) if i != 5}


def test_a_subclass_cannot_put_another_model_in_the_place_of_the_recorded_one(tmp_path: Path) -> None:
    class Averaging(KIPFedAvg):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Train:
            return initial_arrays(1.0), None

    made = Averaging(ledger=tmp_path / "run", k=3, fraction_evaluate=0.0, identity="client-id")
    with pytest.raises(ConfigError):
        start(made, make_grid(4), 2)
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.last_round == 1
        assert not np.array_equal(ledger.model_after(1), vector_of(initial_arrays(1.0)))


def test_it_does_not_average_for_another_strategy(tmp_path: Path) -> None:
    made = strategy(tmp_path / "run")
    with pytest.raises(ConfigError):
        made.aggregate_train(1, [])
    with pytest.raises(ConfigError):
        made.configure_train(1, initial_arrays(), ConfigRecord(), make_grid(1))
    wrapper = DifferentialPrivacyServerSideFixedClipping(made, 1.0, 1.0, 4)
    with pytest.raises(ConfigError):
        wrapper.start(grid=make_grid(4), initial_arrays=initial_arrays(), num_rounds=1, timeout=1.0)
    assert not (tmp_path / "run").exists()
