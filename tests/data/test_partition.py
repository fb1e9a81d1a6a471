from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.config import DataSettings
from disavow.data.digits import digits
from disavow.data.partition import PARTITIONS, Labels, Partition, dirichlet, held_out, iid, quantity
from disavow.rounds.randomness import Stream, derive
from tests.rounds.builders import PROPERTY

LARGEST = min(
    (bound.le for bound in DataSettings.model_fields["alpha"].metadata if hasattr(bound, "le")),
    default=sys.float_info.max,
)
"""The largest concentration that the settings allow."""

DIGITS: Labels = digits().labels.numpy()


def stream(seed: int = 1) -> Stream:
    return Stream(derive("partition", seed))


def sizes(parts: list[Labels]) -> list[int]:
    return [len(part) for part in parts]


def classes_held(parts: list[Labels]) -> float:
    """In how many classes a client has at least 2 % of its samples, on average."""
    shares = [np.bincount(DIGITS[part], minlength=10) / len(part) for part in parts]
    return float(np.mean([np.count_nonzero(share >= 0.02) for share in shares]))


@PROPERTY
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=80),
    st.data(),
    st.floats(1e-6, 1e6),
    st.integers(0, 1000),
)
@pytest.mark.parametrize("name", PARTITIONS)
def test_every_sample_is_held_once_and_nobody_is_empty(
    name: str, classes: list[int], data: st.DataObject, alpha: float, seed: int
) -> None:
    labels = np.array(classes, dtype=np.int64)
    clients = data.draw(st.integers(1, len(labels)))
    parts = PARTITIONS[name](labels, clients, alpha, stream(seed))
    assert len(parts) == clients
    assert min(sizes(parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all(part.dtype == np.int64 and part.tolist() == sorted(part.tolist()) for part in parts)


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e6, LARGEST])
@pytest.mark.parametrize("name", ["quantity", "dirichlet"])
def test_any_concentration_that_the_settings_allow_is_as_unequal_as_it_says(name: str, alpha: float) -> None:
    parts = PARTITIONS[name](DIGITS, 10, alpha, stream())
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(DIGITS)))
    if alpha > 1:
        assert max(sizes(parts)) < 1.2 * min(sizes(parts))
    else:
        assert max(sizes(parts)) > 2 * min(sizes(parts))


@PROPERTY
@given(st.integers(1, 200), st.data())
def test_iid_sizes_differ_by_at_most_one(count: int, data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, count))
    parts = iid(np.zeros(count, dtype=np.int64), clients, 0.5, stream())
    assert max(sizes(parts)) - min(sizes(parts)) <= 1


def test_iid_clients_hold_every_class() -> None:
    assert classes_held(iid(DIGITS, 20, 0.5, stream())) > 9


def test_quantity_makes_unequal_sizes_and_even_labels() -> None:
    parts = quantity(DIGITS, 20, 0.5, stream())
    assert max(sizes(parts)) > 10 * min(sizes(parts))
    large = [part for part in parts if len(part) > 100]
    assert large
    assert classes_held(large) > 9


def test_dirichlet_makes_unequal_labels() -> None:
    parts = dirichlet(DIGITS, 20, 0.1, stream())
    assert classes_held(parts) < 5
    assert max(sizes(parts)) > 3 * min(sizes(parts))


@pytest.mark.parametrize("partition", [quantity, dirichlet])
def test_a_smaller_concentration_is_more_unequal(partition: Partition) -> None:
    def inequality(alpha: float) -> float:
        return float(np.mean([np.std(sizes(partition(DIGITS, 20, alpha, stream(seed)))) for seed in range(5)]))

    assert inequality(0.1) > 1.5 * inequality(1.0) > 1.5 * inequality(100.0)


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition_is_settled_by_its_seed(name: str) -> None:
    def drawn(seed: int) -> list[list[int]]:
        return [part.tolist() for part in PARTITIONS[name](DIGITS, 20, 0.5, stream(seed))]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@PROPERTY
@given(st.integers(2, 500), st.floats(1e-6, 1 - 1e-6))
def test_held_out_samples_and_the_others_are_all_there_is_and_neither_is_empty(count: int, fraction: float) -> None:
    train, test = held_out(count, fraction, stream())
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(count))
    assert len(test) == min(max(1, round(count * fraction)), count - 1)
    assert train.tolist() == sorted(train.tolist())
    assert test.tolist() == sorted(test.tolist())
