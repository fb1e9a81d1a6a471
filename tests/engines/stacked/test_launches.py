from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.engines.stacked.trainer import Ints, padded_width, plan_launches
from tests.rounds.builders import PROPERTY

SPARE = 77


def batches_of(first: int, samples: int, *, batch: int = 128, epochs: int = 3) -> list[Ints]:
    numbers = np.arange(first, first + samples)
    return [numbers[start : start + batch] for _ in range(epochs) for start in range(0, samples, batch)]


def clients_of(samples: list[int], *, batch: int = 128, epochs: int = 3) -> list[list[Ints]]:
    return [batches_of(1000 * i, each, batch=batch, epochs=epochs) for i, each in enumerate(samples)]


def quantity_skew(clients: int, samples: int, alpha: float = 1.0) -> list[int]:
    shares = np.random.default_rng(1).dirichlet(np.full(clients, alpha))
    return [max(1, int(share * samples)) for share in shares]


client = st.tuples(st.integers(0, 70), st.sampled_from([1, 3, 8, 16]), st.integers(1, 3))
"""Samples, batch size and epochs: federations of different settings share a stack."""


@PROPERTY
@given(st.lists(client, max_size=25), st.booleans())
def test_every_batch_is_taken_once_in_order_and_padded_with_its_own_samples(
    clients: list[tuple[int, int, int]], equal_sizes: bool
) -> None:
    batches = [
        batches_of(1000 * i, samples, batch=batch, epochs=epochs)
        for i, (samples, batch, epochs) in enumerate(clients)
    ]
    taken = dict.fromkeys(range(len(batches)), 0)
    for launch in plan_launches(batches, equal_sizes=equal_sizes):
        width, size = launch.shape
        block = launch.block(batches, SPARE)
        numbers, table = block[: width * size].reshape(width, size), block[width * size :].reshape(2, width)
        assert len(launch.clients) <= width < 1.1 * len(launch.clients)
        for samples, row, count in zip(numbers, *table.tolist(), strict=True):
            if row == SPARE:
                assert count == size
                continue
            batch = batches[row][taken[row]]
            taken[row] += 1
            assert samples[:count].tolist() == batch.tolist()
            assert set(samples[count:].tolist()) <= {batch[-1]}
            assert not equal_sizes or count == size
    assert taken == {row: len(each) for row, each in enumerate(batches)}


@pytest.mark.parametrize("equal_sizes", [False, True])
def test_equal_clients_take_one_launch_for_each_batch(equal_sizes: bool) -> None:
    launches = list(plan_launches(clients_of([300] * 20), equal_sizes=equal_sizes))
    assert [launch.shape for launch in launches] == 3 * [(20, 128), (20, 128), (20, 44)]


def test_nobody_and_clients_without_a_sample_take_no_launch() -> None:
    assert list(plan_launches([], equal_sizes=False)) == []
    assert list(plan_launches(clients_of([0, 0]), equal_sizes=True)) == []
    assert len(list(plan_launches(clients_of([0, 10]), equal_sizes=True))) == 3


@pytest.mark.parametrize("alpha", [0.3, 1.0, 5.0])
def test_unequal_clients_take_no_more_launches_than_the_longest_of_them(alpha: float) -> None:
    batches = clients_of(quantity_skew(50, 60_000, alpha))
    assert len(list(plan_launches(batches, equal_sizes=False))) == max(map(len, batches))


def test_with_batch_norm_there_is_at_most_a_launch_more_for_each_short_batch() -> None:
    batches = clients_of(quantity_skew(50, 60_000))
    launches = list(plan_launches(batches, equal_sizes=True))
    short = sum(len(batch) < 128 for each in batches for batch in each)
    assert len(launches) <= max(map(len, batches)) + short
    assert sum(launch.shape.samples == 128 for launch in launches) <= max(map(len, batches))


def test_a_padded_width_adds_less_than_a_tenth() -> None:
    for clients in range(1, 20_000):
        width = padded_width(clients)
        assert clients <= width < 1.1 * clients
        assert padded_width(width) == width


def test_losing_clients_changes_the_width_seldom() -> None:
    assert len({padded_width(clients) for clients in range(20, 51)}) == 16
    assert len({padded_width(clients) for clients in range(500, 1001)}) == 11
