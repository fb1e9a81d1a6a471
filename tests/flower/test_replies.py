"""Stragglers, failures, poison: a round closes with those who answered, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

from disavow.domain import Policy
from disavow.errors import RoundRefused
from disavow.flower import training
from disavow.flower.replies import MOST_SAMPLES, Reply, outliers
from disavow.ledger import Ledger
from tests.flower.builders import SAMPLES, initial_arrays, make_grid, moved, rounds_received, strategy
from tests.flower.loopback import LoopbackGrid, Tamper
from tests.rounds.builders import POLICY

pytestmark = pytest.mark.flower


def start(grid: LoopbackGrid, directory: Path, **more: Any) -> None:
    made = strategy(directory, **more)
    made.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=1, timeout=0.5)


def participants(directory: Path) -> set[str]:
    with Ledger.open(directory) as ledger:
        return {client for cluster in ledger.membership(1) for client in cluster}


def with_content(change: Callable[[RecordDict], None]) -> Tamper:
    """A reply whose content is changed on its way."""

    def tamper(reply: Message) -> Message | None:
        if reply.has_content() and "arrays" in reply.content:
            change(reply.content)
        return reply

    return tamper


def with_arrays(by: Callable[[tuple[int, ...]], Any]) -> Tamper:
    """A reply whose model is moved."""
    return with_content(lambda content: content.update(arrays=moved(content["arrays"], by)))


def silent(reply: Message) -> Message | None:
    return None if not reply.has_content() or "arrays" in reply.content else reply


def failing(reply: Message) -> Message | None:
    if reply.has_content() and "arrays" not in reply.content:
        return reply
    failed = Message(Error(code=2, reason="out of memory"), reply_to=reply)
    failed.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return failed


def metric(value: Any) -> Tamper:
    return with_content(lambda content: content.update(metrics=MetricRecord({"num-examples": value})))


def reshaped(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({**content["arrays"], "weight": Array(np.zeros((2, 5), np.float32))})


def renamed(content: RecordDict) -> None:
    arrays = dict(content["arrays"])
    arrays["other"] = arrays.pop("bias")
    content["arrays"] = ArrayRecord(arrays)


def integral(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({**content["arrays"], "bias": Array(np.zeros(1, np.int64))})


def garbled(content: RecordDict) -> None:
    broken = Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=b"not an array")
    content["arrays"] = ArrayRecord({**content["arrays"], "bias": broken})


def twofold(content: RecordDict) -> None:
    content["more"] = content["arrays"]


GOOD = 6
BAD: dict[str, tuple[Tamper, str]] = {
    "silent": (silent, "did not answer within 0.5 s"),
    "failed": (failing, "its app failed: out of memory"),
    "NaN": (with_arrays(lambda shape: np.nan), "NaN or infinity"),
    "infinite": (with_arrays(lambda shape: np.inf), "NaN or infinity"),
    "huge": (with_arrays(lambda shape: 1e6), "more than 100 times the round's median"),
    "beyond float32": (with_arrays(lambda shape: 3e38), "more than 100 times the round's median"),
    "wrong shape": (with_content(reshaped), "'weight' has shape (2, 5), not (5, 2)"),
    "wrong name": (with_content(renamed), "'bias' is missing"),
    "wrong type": (with_content(integral), "'bias' holds int64"),
    "no array": (with_content(garbled), "'bias' cannot be read"),
    "two models": (with_content(twofold), "2 array records"),
    "no samples": (metric(0), "'num-examples' is 0"),
    "half a sample": (metric(2.5), "'num-examples' is 2.5"),
    "many counts": (metric([1.0, 2.0]), "'num-examples' is [1.0, 2.0]"),
    "samples beyond belief": (metric(float("inf")), "'num-examples' is inf"),
    "samples beyond the others'": (metric(2**29), "more than 100 times the round's median of 10"),
    "NaN samples": (metric(float("nan")), "'num-examples' is nan"),
    "no count": (with_content(lambda content: content.update(metrics=MetricRecord({"x": 1}))), "is missing"),
}


def grid_with_bad_replies() -> tuple[LoopbackGrid, dict[str, str]]:
    """Six good clients, and one for each kind of bad reply; the clients by the kind."""
    grid = make_grid(GOOD + len(BAD))
    clients = {kind: f"c{number}" for number, kind in enumerate(BAD, start=GOOD + 1)}
    for number, (tamper, _) in enumerate(BAD.values(), start=GOOD + 1):
        grid.nodes[number].tamper = tamper
    return grid, clients


def test_every_bad_reply_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_MOST_NAMED", len(BAD))
    grid, clients = grid_with_bad_replies()
    start(grid, tmp_path / "run")
    assert participants(tmp_path / "run") == {f"c{i}" for i in range(1, GOOD + 1)}
    [line] = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert line.startswith("disavow: round 1: left out c")
    reasons = dict(part.split(": ", 1) for part in line.removeprefix("disavow: round 1: left out ").split("; "))
    for kind, (_, reason) in BAD.items():
        assert reason in reasons[clients[kind]], kind


def test_an_error_names_only_some_of_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = make_grid(16)
    for number in range(1, 13):
        grid.nodes[number].tamper = failing
    start(grid, tmp_path / "run")
    assert "; and 2 more" in caplog.text


def test_a_longer_update_is_no_poison(tmp_path: Path) -> None:
    grid = make_grid(6)
    grid.nodes[2].tamper = with_arrays(lambda shape: 2.0)  # some twenty times the others
    start(grid, tmp_path / "run")
    assert len(participants(tmp_path / "run")) == 6


def test_more_samples_are_no_poison(tmp_path: Path) -> None:
    grid = make_grid(6)
    grid.nodes[2].tamper = metric(100 * SAMPLES)
    start(grid, tmp_path / "run")
    assert len(participants(tmp_path / "run")) == 6


def unmoved(reply: Message) -> Message | None:
    return with_content(lambda content: content.update(arrays=initial_arrays()))(reply)


@pytest.mark.parametrize("still", [4, 5, 6])
def test_where_most_updates_are_zero_poison_is_measured_by_the_others_or_by_the_model(
    still: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = make_grid(7)
    for number in range(1, still + 1):
        grid.nodes[number].tamper = unmoved
    grid.nodes[7].tamper = with_arrays(lambda shape: 1e30)
    start(grid, tmp_path / "run")
    assert participants(tmp_path / "run") == {f"c{i}" for i in range(1, 7)}
    assert "left out c7: its update has length" in caplog.text


def test_one_update_among_zeros_is_no_poison_where_it_is_no_longer_than_models_are(tmp_path: Path) -> None:
    def still(reply: Message) -> Message | None:
        return with_content(lambda content: content.update(arrays=initial_arrays(1.0)))(reply)

    grid = make_grid(5)
    for number in range(1, 5):
        grid.nodes[number].tamper = still
    made = strategy(tmp_path / "run")
    made.start(grid=grid, initial_arrays=initial_arrays(1.0), num_rounds=1, timeout=0.5)
    assert len(participants(tmp_path / "run")) == 5


def test_updates_that_are_all_zero_are_no_poison(tmp_path: Path) -> None:
    grid = make_grid(4)
    for node in grid.nodes.values():
        node.tamper = unmoved
    start(grid, tmp_path / "run")
    assert len(participants(tmp_path / "run")) == 4


def test_fewer_than_k_are_refused_with_the_reason_after_they_were_asked_again(tmp_path: Path) -> None:
    grid = make_grid(4)
    grid.nodes[1].tamper, grid.nodes[2].tamper = failing, silent
    with pytest.raises(RoundRefused) as refusal:
        start(grid, tmp_path / "run", repeats=2)
    text = str(refusal.value)
    assert text.startswith("round 1 refused: 2 of 4 clients returned an update, fewer than k = 3 (")
    assert "c1: its app failed: out of memory; c2: it did not answer" in text
    assert rounds_received(grid.nodes[1]) == rounds_received(grid.nodes[2]) == [1, 1, 1]
    assert rounds_received(grid.nodes[3]) == [1]  # its answer would be the same
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.next_round() == (1, 1)


def test_a_failure_that_passes_costs_no_round(tmp_path: Path) -> None:
    grid = make_grid(3)
    answers = iter([False, True])

    def flaky(reply: Message) -> Message | None:
        if reply.has_content() and "arrays" not in reply.content:
            return reply
        return reply if next(answers) else None

    grid.nodes[3].tamper = flaky
    start(grid, tmp_path / "run", repeats=1)
    assert participants(tmp_path / "run") == {"c1", "c2", "c3"}


def test_too_few_nodes_are_waited_for_and_then_refused(tmp_path: Path) -> None:
    with pytest.raises(RoundRefused):
        start(make_grid(2), tmp_path / "run")


def test_the_weight_of_a_client_is_the_class_of_its_number_of_samples(tmp_path: Path) -> None:
    grid = make_grid(6)
    grid.nodes[2].tamper = metric(SAMPLES * 4)  # two doublings: exactly four times the class of the others
    start(grid, tmp_path / "run", noise="none")
    with Ledger.open(tmp_path / "run") as ledger:
        weights = {c: cluster.weight for cluster in ledger.round(1).clusters for c in cluster.clients}
    others = sum(weight == pytest.approx(weights["c2"]) for weight in weights.values())
    assert weights["c2"] == pytest.approx((4 + others - 1) / 9)


# -- where the sampled figure is claimed, a reply is in a round or not by itself ---------------------------------


CALIBRATED = replace(POLICY, noise="calibrated", clip=1.0, tau=1.0, sticky=False)
SAMPLED = replace(CALIBRATED, clustering="fixed")
BROADCAST = np.array([5.0], dtype=np.float32)
FIXED: dict[str, Any] = {
    "noise": "calibrated",
    "settings": {"clustering": {"method": "fixed"}, "noise": {"clip": 1.0, "tau": 0.5}},
}
ABOUT_OTHERS = {"huge", "beyond float32", "samples beyond the others'"}


def reply_of(value: float, samples: int = 10) -> Reply:
    return Reply(np.array([value], dtype=np.float32), samples, Message(RecordDict(), 1, "train"))


LENGTHS = {f"a{i}": reply_of(150.0) for i in range(5)} | {f"b{i}": reply_of(-1.0) for i in range(5)}
COUNTS = {f"a{i}": reply_of(1.0, 1500) for i in range(5)} | {f"b{i}": reply_of(1.0, 1) for i in range(5)}


@pytest.mark.parametrize("roster", [LENGTHS, COUNTS], ids=["lengths", "samples"])
@pytest.mark.parametrize("policy", [CALIBRATED, replace(POLICY, clustering="fixed", sticky=False), SAMPLED])
def test_a_removal_decides_who_else_is_in_only_where_no_sampled_figure_is_claimed(
    roster: dict[str, Reply], policy: Policy
) -> None:
    fewer = {client: each for client, each in roster.items() if client != "a0"}
    others = set(outliers(roster, policy, 100.0, BROADCAST)) - {"a0"}
    assert (others == set(outliers(fewer, policy, 100.0, BROADCAST))) == (policy is SAMPLED)
    assert others == set()  # the median lies between the two halves


def test_a_bad_reply_is_left_out_of_fixed_clusters_for_what_it_is_alone(tmp_path: Path) -> None:
    grid, clients = grid_with_bad_replies()
    start(grid, tmp_path / "run", **FIXED)
    good = {f"c{i}" for i in range(1, GOOD + 1)}
    assert participants(tmp_path / "run") == good | {clients[kind] for kind in ABOUT_OTHERS}
    with Ledger.open(tmp_path / "run") as ledger:
        assert np.linalg.norm(ledger.model_before(2)) < 100  # clipped, whatever was returned


@pytest.mark.parametrize(("samples", "counts"), [(MOST_SAMPLES, True), (MOST_SAMPLES + 1, False)])
def test_no_reply_counts_more_samples_than_an_absolute_number(samples: int, counts: bool, tmp_path: Path) -> None:
    grid = make_grid(6)
    grid.nodes[2].tamper = metric(samples)
    start(grid, tmp_path / "run", **FIXED)
    assert ("c2" in participants(tmp_path / "run")) == counts


@pytest.mark.parametrize("removed", [False, True])
def test_who_else_is_in_a_round_does_not_depend_on_a_client_that_left(removed: bool, tmp_path: Path) -> None:
    """Half of the replies are long; and with the client gone, fewer than k are good."""
    grid = make_grid(6)
    for number in (1, 2, 3):
        grid.nodes[number].tamper = with_arrays(lambda shape: 1e3)
    for number in (4, 5, 6):
        grid.nodes[number].tamper = silent
    if removed:
        grid.nodes[1].tamper = silent
    start(grid, tmp_path / "run", repeats=2, **FIXED)
    assert participants(tmp_path / "run") - {"c1"} == {"c2", "c3"}
    assert rounds_received(grid.nodes[6]) == [1]


def test_a_round_that_nobody_answers_is_refused(tmp_path: Path) -> None:
    grid = make_grid(6)
    for node in grid.nodes.values():
        node.tamper = silent
    with pytest.raises(RoundRefused):
        start(grid, tmp_path / "run", **FIXED)
