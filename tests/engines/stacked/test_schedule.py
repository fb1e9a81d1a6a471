from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.engines.stacked.schedule import PADDING, Ints, Launch, fixed_width, schedule
from tests.rounds.builders import PROPERTY


def batch_sizes(samples: int, *, batch: int, epochs: int) -> Ints:
    full, rest = divmod(samples, batch)
    return np.array(([batch] * full + [rest] * (rest > 0)) * epochs, dtype=np.int64)


def clients_of(samples: list[int], *, batch: int = 128, epochs: int = 3) -> list[Ints]:
    return [batch_sizes(each, batch=batch, epochs=epochs) for each in samples]


def quantity_skew(clients: int, samples: int, alpha: float = 1.0) -> list[int]:
    shares = np.random.default_rng(1).dirichlet(np.full(clients, alpha))
    return [max(1, int(share * samples)) for share in shares]


def added(launches: list[Launch], sizes: list[Ints]) -> float:
    return sum(launch.added for launch in launches) / sum(int(each.sum()) for each in sizes)


client = st.tuples(st.integers(0, 70), st.sampled_from([1, 3, 8, 16]), st.integers(1, 3))
"""Samples, batch size and epochs: federations of different settings share a schedule."""


@PROPERTY
@given(st.lists(client, max_size=25), st.booleans(), st.booleans())
def test_every_batch_is_taken_once_in_order_and_little_is_padding(
    clients: list[tuple[int, int, int]], coupled: bool, fixed_widths: bool
) -> None:
    sizes = [batch_sizes(samples, batch=batch, epochs=epochs) for samples, batch, epochs in clients]
    launches = schedule(sizes, coupled=coupled, fixed_widths=fixed_widths)
    taken: dict[int, list[int]] = {row: [] for row in range(len(sizes))}
    for launch in launches:
        assert len(launch.rows) == len(set(launch.rows.tolist())) > 0
        assert launch.width >= len(launch.rows)
        for row, batch, size in zip(launch.rows, launch.batches, launch.sizes, strict=True):
            assert size == sizes[row][batch] <= launch.size
            assert not coupled or size == launch.size
            taken[int(row)].append(int(batch))
    assert taken == {row: list(range(len(each))) for row, each in enumerate(sizes)}
    assert sum(launch.added for launch in launches) <= PADDING * sum(int(each.sum()) for each in sizes)
    if not fixed_widths:
        assert all(launch.width == len(launch.rows) for launch in launches)


@PROPERTY
@given(st.integers(1, 40), st.integers(1, 300), st.sampled_from([1, 7, 32]), st.integers(1, 3), st.booleans())
def test_equal_clients_take_one_launch_for_each_batch(
    clients: int, samples: int, batch: int, epochs: int, coupled: bool
) -> None:
    launches = schedule(clients_of([samples] * clients, batch=batch, epochs=epochs), coupled=coupled)
    assert len(launches) == epochs * -(-samples // batch)
    assert all(len(launch.rows) == clients and launch.added == 0 for launch in launches)


def test_nobody_and_clients_without_a_sample_take_no_launch() -> None:
    assert schedule([], coupled=False) == []
    assert schedule(clients_of([0, 0]), coupled=True) == []
    assert len(schedule(clients_of([0, 10]), coupled=True)) == 3


def test_full_batches_are_stacked_whatever_the_sizes_of_the_clients() -> None:
    # batch norm: short batches of 1 to 9 samples go alone, full ones together
    sizes = clients_of([129 + i + 128 * (i % 2) for i in range(9)], epochs=1)
    launches = schedule(sizes, coupled=True)
    assert sum(launch.size == 128 for launch in launches) == 2
    assert sum(launch.size < 128 for launch in launches) == 9


@pytest.mark.parametrize("alpha", [0.3, 1.0, 5.0])
def test_unequal_clients_take_hardly_more_launches_than_the_longest_of_them(alpha: float) -> None:
    sizes = clients_of(quantity_skew(50, 60_000, alpha))
    launches = schedule(sizes, coupled=False)
    assert len(launches) <= 1.1 * max(map(len, sizes))
    assert added(launches, sizes) <= PADDING


def test_with_batch_norm_there_is_a_launch_more_for_each_size_and_epoch_and_no_more() -> None:
    samples = quantity_skew(50, 60_000)
    sizes = clients_of(samples)
    full = 3 * (max(samples) // 128)
    short = 3 * len({each % 128 for each in samples} - {0})
    assert len(schedule(sizes, coupled=True)) <= 1.05 * (full + short)


def test_no_width_but_a_few_is_needed_for_unequal_clients() -> None:
    launches = schedule(clients_of(quantity_skew(50, 60_000)), coupled=False, fixed_widths=True)
    assert len({(launch.width, launch.size) for launch in launches}) <= 8


def test_clients_need_not_be_in_step_by_epoch() -> None:
    # one has a long epoch, the other ten short ones: side by side they take as long as the longer
    long, short = batch_sizes(80, batch=8, epochs=1), batch_sizes(8, batch=8, epochs=10)
    assert len(schedule([long, short], coupled=True)) == 10


def test_a_fixed_width_adds_less_than_a_tenth() -> None:
    for clients in range(1, 20_000):
        width = fixed_width(clients)
        assert clients <= width < 1.1 * clients
        assert fixed_width(width) == width


def test_losing_clients_changes_the_width_seldom() -> None:
    assert len({fixed_width(clients) for clients in range(20, 51)}) == 16
    assert len({fixed_width(clients) for clients in range(500, 1001)}) == 11
