"""Shared training: the same updates, with the time they took, and no more of them than there is room for."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
import torch

from disavow.domain import Evaluation, Layout, TensorSpec
from disavow.rounds.vectors import Model, Updates
from reproduction.sharing import SharedEngine, room_for
from tests.engines.contract import evaluated

LAYOUT = Layout((TensorSpec("w", (4,)),))
CLIENTS = ("a", "b")
ROOM = 1 << 20


class Counting:
    """An engine whose updates say what was asked, and which counts how often."""

    def __init__(self) -> None:
        self.calls = 0
        self.closed = 0

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        self.calls += 1
        value = float(model.vector.sum()) + round_number + (epochs or 0)
        return Updates(tuple(clients), (1,) * len(clients), torch.full((len(clients), LAYOUT.size), value))

    def evaluate(self, model: Model) -> Evaluation:
        return Evaluation(float(model.vector[0]), 0.0)

    def close(self) -> None:
        self.closed += 1


def model(value: float) -> Model:
    return Model(LAYOUT, torch.full((LAYOUT.size,), value))


def test_what_is_asked_twice_is_trained_once() -> None:
    inner = Counting()
    shared = SharedEngine(inner, epochs=3, room=ROOM)
    first = shared.train(model(1.0), CLIENTS, 1)
    again = shared.train(model(1.0), CLIENTS, 1)
    assert torch.equal(first.vectors, again.vectors)
    assert (inner.calls, shared.trained, shared.shared) == (1, 1, 1)
    assert shared.saved_seconds > 0
    assert shared.client_epochs == 2 * 2 * 3


@pytest.mark.parametrize(
    "other", [(model(1.5), CLIENTS, 1, None), (model(1.0), ("a",), 1, None), (model(1.0), CLIENTS, 2, None)]
)
def test_another_model_other_clients_or_another_round_is_trained(
    other: tuple[Model, tuple[str, ...], int, int | None],
) -> None:
    inner = Counting()
    shared = SharedEngine(inner, epochs=3, room=ROOM)
    shared.train(model(1.0), CLIENTS, 1)
    shared.train(*other[:3], epochs=other[3])
    assert (inner.calls, shared.shared) == (2, 0)


def test_fewer_epochs_are_another_training_and_counted_as_such() -> None:
    inner = Counting()
    shared = SharedEngine(inner, epochs=3, room=ROOM)
    whole, some = shared.train(model(1.0), CLIENTS, 1), shared.train(model(1.0), CLIENTS, 1, epochs=2)
    assert not torch.equal(whole.vectors, some.vectors)
    assert shared.client_epochs == 2 * 3 + 2 * 2


def test_what_was_used_least_recently_makes_room() -> None:
    inner = Counting()
    shared = SharedEngine(inner, epochs=1, room=2 * 2 * LAYOUT.size * 4)
    for number in (1, 2, 1, 3, 1, 2):
        shared.train(model(1.0), CLIENTS, number)
    assert inner.calls == 4  # 1, 2, 3, and 2 again: round 1 was used in between
    assert shared.shared == 2


def test_processes_on_one_machine_share_its_memory() -> None:
    cpu = torch.device("cpu")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 12 * room_for(cpu, processes=12) <= room_for(cpu) < memory / 2


def test_closing_a_run_leaves_it_to_the_others() -> None:
    inner = Counting()
    shared = SharedEngine(inner, epochs=1, room=ROOM)
    shared.close()
    assert inner.closed == 0
    shared.end()
    assert inner.closed == 1
    assert evaluated(shared, model(0.25)).accuracy == 0.25
