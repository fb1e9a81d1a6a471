from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from disavow.data import client_ids
from disavow.federation.broadcast import participants
from disavow.federation.round import close_round
from tests.federation.builders import (
    CONDUCT,
    POLICY,
    PROPERTY,
    gaussian,
    layout_of_size,
    ledger_of,
    opened,
    updates_of,
)

fractions = st.floats(0.01, 1.0)
populations = st.integers(1, 60).map(client_ids)


def test_the_first_broadcast_is_the_initial_model_and_the_next_what_the_round_made(tmp_path: Path) -> None:
    updates = updates_of(gaussian(6, 4))
    initial = torch.arange(4.0)
    with ledger_of(tmp_path / "run", updates.clients, layout_of_size(4), POLICY, initial) as ledger:
        opening = opened(ledger)
        assert (opening.number, opening.attempt, opening.digest) == (1, 1, ledger.initial_model)
        assert torch.equal(opening.model.vector, initial)
        recorded = close_round(ledger, opening, updates, CONDUCT)
        following = opened(ledger)
        assert (following.number, following.attempt, following.digest) == (2, 1, recorded.after)
        assert torch.equal(following.model.vector, torch.from_numpy(ledger.model_after(1)))


@PROPERTY
@given(populations, fractions, st.integers(1, 20))
def test_a_fraction_of_the_clients_takes_part_sorted_by_id(
    clients: tuple[str, ...], fraction: float, number: int
) -> None:
    chosen = participants(clients, fraction=fraction, seed=1, round_number=number)
    assert len(chosen) == max(1, round(len(clients) * fraction))
    assert list(chosen) == sorted(set(chosen))
    assert set(chosen) <= set(clients)


@PROPERTY
@given(populations, fractions, st.randoms(use_true_random=False))
def test_the_order_of_the_clients_does_not_matter(
    clients: tuple[str, ...], fraction: float, random: Random
) -> None:
    shuffled = random.sample(clients, len(clients))
    assert participants(shuffled, fraction=fraction, seed=1, round_number=1) == participants(
        clients, fraction=fraction, seed=1, round_number=1
    )


@PROPERTY
@given(populations.filter(lambda clients: len(clients) > 1), fractions, st.data())
def test_when_a_client_leaves_at_most_one_other_enters(
    clients: tuple[str, ...], fraction: float, data: st.DataObject
) -> None:
    leaver = data.draw(st.sampled_from(clients))
    rest = [client for client in clients if client != leaver]
    before = set(participants(clients, fraction=fraction, seed=1, round_number=3))
    after = set(participants(rest, fraction=fraction, seed=1, round_number=3))
    assert len(after - before) <= (1 if leaver in before else 0)
    # one place fewer for fewer clients, never more
    assert len(before - after - {leaver}) <= (0 if leaver in before else 1)


def test_all_take_part_when_the_fraction_is_1() -> None:
    assert participants(client_ids(9), fraction=1.0, seed=1, round_number=1) == client_ids(9)


def test_who_takes_part_changes_with_round_and_seed() -> None:
    def drawn(seed: int, number: int) -> tuple[str, ...]:
        return participants(client_ids(30), fraction=0.3, seed=seed, round_number=number)

    assert len({drawn(1, 1), drawn(1, 2), drawn(2, 1)}) == 3
    assert drawn(1, 1) == drawn(1, 1)


def test_every_client_takes_part_about_as_often() -> None:
    counts = Counter(
        client
        for number in range(1, 401)
        for client in participants(client_ids(10), fraction=0.3, seed=5, round_number=number)
    )
    # 400 draws at 0.3: 120 each, with a standard deviation of 9
    assert set(counts) == set(client_ids(10))
    assert all(count == pytest.approx(120, abs=45) for count in counts.values())
