"""`disavow.data.load`: a data set, split and spread over clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from disavow.config import DataSettings
from disavow.data import client_ids, load
from disavow.errors import ConfigError
from tests.refusals import refuses


@pytest.mark.parametrize("partition", ["iid", "quantity", "dirichlet"])
def test_training_data_is_spread_over_the_clients_and_the_rest_is_held_out(partition: str) -> None:
    data = load(DataSettings(clients=7, partition=partition, test_fraction=0.25), seed=1)  # type: ignore[arg-type]
    assert (len(data.train), len(data.test)) == (1348, 449)
    assert tuple(data.parts) == client_ids(7)
    assert sorted(np.concatenate(list(data.parts.values())).tolist()) == list(range(1348))
    # nobody trains on what is held out
    together = torch.cat([data.train.images, data.test.images]).flatten(1)
    assert len(together.unique(dim=0)) == 1797


def test_the_seed_settles_who_holds_what() -> None:
    def drawn(seed: int) -> list[list[int]]:
        data = load(DataSettings(), seed=seed)
        return [part.tolist() for part in data.parts.values()] + [data.test.labels.tolist()]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_what_is_held_out_does_not_depend_on_how_the_rest_is_spread() -> None:
    one = load(DataSettings(clients=5), seed=1)
    other = load(DataSettings(clients=50, partition="dirichlet"), seed=1)
    assert torch.equal(one.test.images, other.test.images)


def test_validation_data_is_taken_from_the_training_data_and_the_test_data_is_not_seen() -> None:
    plain = load(DataSettings(clients=5), seed=1)
    data = load(DataSettings(clients=5, validation=0.1), seed=1)
    assert (len(data.train), len(data.test)) == (1294, 144)
    assert sorted(np.concatenate(list(data.parts.values())).tolist()) == list(range(1294))
    together = torch.cat([data.train.images, data.test.images]).flatten(1)
    assert torch.equal(together.unique(dim=0), plain.train.images.flatten(1).unique(dim=0))
    other = load(DataSettings(clients=7, partition="dirichlet", validation=0.1), seed=1)
    assert torch.equal(other.test.images, data.test.images)


def test_more_clients_than_samples_are_refused_by_name() -> None:
    with refuses(ConfigError, "data.clients is 1439", 1438) as caught:
        load(DataSettings(clients=1439), seed=1)
    assert caught.value.code == "DSV-101"
    assert len(load(DataSettings(clients=1438), seed=1).parts) == 1438


@pytest.mark.parametrize("count", [1, 9, 99, 100, 1000])
def test_client_ids_have_one_width_and_sort_in_order(count: int) -> None:
    ids = client_ids(count)
    assert len(set(ids)) == count
    assert list(ids) == sorted(ids)
    assert len({len(each) for each in ids}) == 1
