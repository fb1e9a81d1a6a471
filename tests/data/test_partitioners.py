"""Partitions by flwr-datasets: what is promised of every partition, and what each of them means."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.config import DataSettings
from disavow.data.dataset import Indices
from disavow.data.digits import digits
from disavow.data.partition import Labels
from disavow.data.partitioners import partitioned
from disavow.errors import ConfigError
from disavow.rounds.randomness import Stream, derive
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY

NAMES = ["iid", "dirichlet", "shards", "pathological"]
DIGITS: Labels = digits().labels.numpy()


def parts_of(labels: Labels, seed: int = 1, **values: Any) -> list[Indices]:
    return partitioned(DataSettings.model_validate(values), labels, Stream(derive("partition", seed)))


@settings(PROPERTY, max_examples=25)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.data(),
    st.floats(1e-6, 1e6),
    st.integers(1, 4),
    st.integers(0, 1000),
)
@pytest.mark.parametrize("name", NAMES)
def test_every_sample_is_held_once_and_nobody_is_empty_or_it_is_refused(
    name: str, classes: list[int], data: st.DataObject, alpha: float, each: int, seed: int
) -> None:
    labels = np.array(classes, dtype=np.int64)
    clients = data.draw(st.integers(1, len(labels)))
    values = {"clients": clients, "partition": name, "alpha": alpha, "labels_per_client": each}
    try:
        parts = parts_of(labels, seed, **values)
    except ConfigError:
        assert name in ("shards", "pathological")
        return
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all(part.dtype == np.int64 and part.tolist() == sorted(part.tolist()) for part in parts)


@pytest.mark.parametrize("name", NAMES)
def test_a_partition_is_settled_by_its_seed_and_says_nothing(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = [part.tolist() for part in parts_of(DIGITS, 1, clients=20, partition=name)]
        assert [part.tolist() for part in parts_of(DIGITS, 1, clients=20, partition=name)] == first
        assert [part.tolist() for part in parts_of(DIGITS, 2, clients=20, partition=name)] != first
    assert capfd.readouterr() == ("", "")


def test_iid_clients_hold_as_many_and_every_class() -> None:
    parts = parts_of(DIGITS, clients=20, partition="iid")
    assert {len(part) for part in parts} <= {89, 90}
    assert np.mean([len(np.unique(DIGITS[part])) for part in parts]) > 9.5


def test_a_smaller_concentration_is_more_unequal() -> None:
    def inequality(alpha: float) -> float:
        sizes = [
            [len(p) for p in parts_of(DIGITS, s, clients=20, partition="dirichlet", alpha=alpha)] for s in (1, 2)
        ]
        return float(np.mean([np.std(each) for each in sizes]))

    assert inequality(0.1) > 1.5 * inequality(1.0) > 1.5 * inequality(100.0)


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e6])
def test_any_concentration_that_the_settings_allow_is_drawn(alpha: float) -> None:
    parts = parts_of(DIGITS, clients=10, partition="dirichlet", alpha=alpha)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(DIGITS)))


@pytest.mark.parametrize("each", [1, 2, 3, 10])
def test_pathological_clients_hold_so_many_labels_exactly(each: int) -> None:
    parts = parts_of(DIGITS, clients=20, partition="pathological", labels_per_client=each)
    assert {len(np.unique(DIGITS[part])) for part in parts} == {each}


@pytest.mark.parametrize(("clients", "each"), [(20, 1), (20, 2), (7, 3), (50, 2), (100, 5)])
def test_shards_are_pieces_of_the_samples_sorted_by_label(clients: int, each: int) -> None:
    parts = parts_of(DIGITS, clients=clients, partition="shards", labels_per_client=each)
    size = math.ceil(len(DIGITS) / (clients * each))
    assert max(map(len, parts)) <= each * size
    # a piece has one label, or two where one ends and the next begins; small ones seldom more than one
    assert max(len(np.unique(DIGITS[part])) for part in parts) <= each * (2 if size < 170 else 3)
    assert np.mean([len(np.unique(DIGITS[part])) for part in parts]) <= each * (1 + 10 / (clients * each) + 0.3)


def test_which_samples_of_a_label_a_client_holds_is_drawn_too() -> None:
    labels = np.arange(400) % 10
    held = [parts_of(labels, seed, clients=10, partition="pathological", labels_per_client=10) for seed in (1, 2)]
    assert all(len(part) == 40 for parts in held for part in parts)
    assert held[0][0].tolist() != held[1][0].tolist()


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (
            {"partition": "pathological", "labels_per_client": 11},
            ["data.labels_per_client is 11", "allowed: up to 10"],
        ),
        (
            {"partition": "pathological", "clients": 9},
            ["data.clients is 9", 'data.partition "pathological"', "allowed: at least 10"],
        ),
        (
            {"partition": "pathological", "clients": 1500, "labels_per_client": 2},
            ["data.clients is 1500", "data.labels_per_client 2"],
        ),
        (
            {"partition": "shards", "clients": 500, "labels_per_client": 4},
            ["data.labels_per_client is 4", "data.clients 500", "allowed: up to 3", "2,000", "1,797"],
        ),
    ],
)
def test_what_cannot_be_spread_is_refused_by_name(values: dict[str, Any], named: list[str]) -> None:
    with refuses(ConfigError, *named):
        parts_of(DIGITS, **values)


def test_few_clients_may_hold_every_label() -> None:
    parts = parts_of(DIGITS, clients=3, partition="pathological", labels_per_client=10)
    assert {len(np.unique(DIGITS[part])) for part in parts} == {10}
