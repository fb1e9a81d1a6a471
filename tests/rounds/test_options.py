from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from disavow.data import client_ids
from disavow.domain import Evaluation, Policy
from disavow.errors import BudgetSpent
from disavow.ledger import Ledger, fsck
from disavow.privacy.budget import Budget
from disavow.rounds.clustering.fixed import settled
from disavow.rounds.options import Room, foreseen, room_for
from disavow.rounds.round import close_round, open_round, run_round
from disavow.rounds.training import train
from disavow.rounds.vectors import Model, Updates
from tests.refusals import refuses
from tests.rounds.builders import FRESH, POLICY, gaussian, layout_of_size, ledger_of, updates_of

CALIBRATED = replace(POLICY, noise="calibrated", clip=1.0, tau=4.0, sticky=False, draws="fresh")
FIXED = replace(CALIBRATED, clustering="fixed", tau=1.0)
CLIENTS = client_ids(11)


class Engine:
    """Trains nothing, and counts how often it was asked to. `samples` are what each client says it holds."""

    def __init__(self, samples: Sequence[int] = (1,) * 11) -> None:
        self.trained = 0
        self.samples = dict(zip(CLIENTS, samples, strict=True))

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        self.trained += 1
        held = [self.samples[client] for client in clients]
        return updates_of(gaussian(len(clients), 3, seed=round_number), held, clients)

    def evaluate(self, model: Model) -> Evaluation:
        return Evaluation(0.5, 1.0)

    def close(self) -> None:
        """See `Engine`."""


def ledger(directory: Path, policy: Policy) -> Ledger:
    return ledger_of(directory / "run", CLIENTS, layout_of_size(3), policy)


@pytest.mark.parametrize("samples", [(1,) * 11, tuple(range(1, 12))], ids=["equal", "unequal"])
@pytest.mark.parametrize("policy", [CALIBRATED, FIXED], ids=["mdav", "fixed"])
def test_training_stops_before_the_round_that_would_exceed_the_budget(
    tmp_path: Path, policy: Policy, samples: Sequence[int]
) -> None:
    budget, engine = Budget(6.0, 1e-5), Engine(samples)
    options = replace(FRESH, budget=budget)
    with ledger(tmp_path, policy) as book:
        with refuses(BudgetSpent, "of 6", "1e-05") as refused:
            train(book, engine, options, rounds=100)
        events = book.events()
        assert 1 < len(events) < 100
        assert engine.trained == len(events)  # nobody trained in vain
        assert budget.spent(events) <= 6.0 < budget.spent([*events, events[-1]])
        claim = "sampled" if policy is FIXED else "unconditional"
        assert claim in str(refused.value)
        assert f"round {len(events) + 1} " in str(refused.value)
        with pytest.raises(BudgetSpent):
            open_round(book, options)
        assert book.events() == events
    assert fsck(tmp_path / "run") == []


def test_what_is_foreseen_is_what_is_then_recorded(tmp_path: Path) -> None:
    engine = Engine(tuple(range(1, 12)))
    with ledger(tmp_path, FIXED) as book:
        run_round(book, engine, FRESH)
        anchors = book.anchors()
        assert anchors is not None
        expected = foreseen(FIXED, 2, FRESH.clusters(anchors, 2))
        run_round(book, engine, FRESH)
        assert book.events()[-1] == expected
        assert expected.weight > 1 / 3


def test_weights_that_were_not_foreseen_are_refused_before_anything_is_drawn_or_recorded(tmp_path: Path) -> None:
    """Before the first round nobody knows who holds how much: equal shares would fit, these do not."""
    anchors = settled(CLIENTS, FIXED.k, FRESH.position, FRESH.secrets.stream(0, 1, "borders"))
    equal = foreseen(FIXED, 1, FRESH.clusters(anchors, 1))
    budget = Budget(Budget(1.0, 1e-5).spent([equal]) * 1.01, 1e-5)
    options = replace(FRESH, budget=budget)
    heavy = (1000, *(1,) * 10)
    with ledger(tmp_path, FIXED) as book:
        opening, clients = open_round(book, options)
        updates = Engine(heavy).train(opening.model, clients, 1)
        with pytest.raises(BudgetSpent):
            close_round(book, opening, updates, options)
        assert book.events() == ()
        assert book.next_round() == (1, 1)
        run_round(book, Engine(), options)
        assert len(book.events()) == 1


def test_room_is_told_round_by_round_with_the_reason_for_the_end(tmp_path: Path) -> None:
    budget = Budget(6.0, 1e-5)
    options = replace(FRESH, budget=budget)
    with ledger(tmp_path, CALIBRATED) as book:
        room = room_for(book, options, 1, 100)
        assert room.obstacle is not None
        assert f"and round {room.rounds + 1} would make it" in room.obstacle
        assert room_for(book, options, 1, room.rounds) == Room(room.rounds)
        run_round(book, Engine(), options)
        assert room_for(book, options, 2, 100).rounds == room.rounds - 1
        assert room_for(book, options, 1, 100).rounds == room.rounds - 1  # a superseded round was released too
        assert room_for(book, FRESH, 1, 100) == Room(100)


def test_what_a_round_costs_does_not_depend_on_how_many_have_left(tmp_path: Path) -> None:
    options = replace(FRESH, budget=Budget(4.0, 1e-5))
    with ledger(tmp_path, FIXED) as book:
        run_round(book, Engine(), options)
        before = room_for(book, options, 2, 200)
        assert 1 < before.rounds < 200
        assert room_for(book, options, 2, 200, CLIENTS[:5]) == before


@pytest.mark.parametrize("budget", [None, Budget(1e5, 1e-5)], ids=["no budget", "budget"])
def test_there_is_no_room_for_a_round_whose_clusters_are_all_empty(tmp_path: Path, budget: Budget | None) -> None:
    """One cluster of three takes part in each round."""
    options = replace(FRESH, budget=budget, fraction=0.3)
    with ledger(tmp_path, FIXED) as book:
        run_round(book, Engine(), options)
        anchors = book.anchors()
        assert anchors is not None
        numbers = [options.clusters(anchors, number).numbers for number in range(1, 13)]
        last = next(i for i, each in enumerate(numbers) if list(each) != list(numbers[0]))
        gone = [client for client, at in anchors.assignments.items() if at.cluster in numbers[last]]
        assert room_for(book, options, 1, 12).obstacle is None
        room = room_for(book, options, 1, 12, gone)
        assert room.rounds == last
        assert room.obstacle is not None


def test_without_a_budget_nothing_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger(tmp_path, CALIBRATED) as book:
        monkeypatch.setattr(Ledger, "events", lambda self: pytest.fail("not needed"))
        run_round(book, Engine(), FRESH)


def test_clipped_updates_are_what_the_account_is_about() -> None:
    """Nothing longer than C reaches the aggregate, to the last bit."""
    from disavow.rounds.clustering.distances import norms_of
    from disavow.rounds.perturb import clip

    updates = updates_of(torch.cat([gaussian(50, 7, scale=10.0**power) for power in range(-3, 6)]))
    assert float(norms_of(clip(updates, CALIBRATED).vectors).max()) <= 1.0
