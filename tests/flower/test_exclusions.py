"""Records that were erased, out of a node's data: what the train message brings, and what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import ConfigRecord, Message, RecordDict
from torch.utils.data import TensorDataset

from disavow.domain import Exclusions
from disavow.errors import ConfigError
from disavow.flower.client import without_excluded
from disavow.flower.exclusions import to_record

pytestmark = pytest.mark.flower

EXCLUDED = Exclusions(bytes(range(32))).adding(["b", "d"])
KEYS = ["a", "b", "a", "b", "c"]


def train_message(excluded: Exclusions | None) -> Message:
    content = {"config": ConfigRecord({"lr": 0.1})}
    if excluded is not None:
        content["disavow-exclusions"] = to_record(excluded)
    return Message(RecordDict(content), 1, "train")


@pytest.mark.parametrize(
    ("dataset", "left"),
    [
        (list("vwxyz"), list("vxz")),
        (tuple("vwxyz"), tuple("vxz")),
        (np.arange(5), np.array([0, 2, 4])),
        (torch.arange(5), torch.tensor([0, 2, 4])),
    ],
)
def test_what_is_left_is_of_the_same_kind(dataset: Any, left: Any) -> None:
    found = without_excluded(train_message(EXCLUDED), dataset, KEYS)
    assert type(found) is type(left)
    assert list(found) == list(left)


def test_of_a_data_set_a_subset_is_left() -> None:
    found = without_excluded(train_message(EXCLUDED), TensorDataset(torch.arange(5)), KEYS)
    assert [int(example) for (example,) in found] == [0, 2, 4]


@pytest.mark.parametrize("excluded", [None, Exclusions(bytes(32)), Exclusions(bytes(32)).adding(["elsewhere"])])
def test_where_nothing_is_excluded_the_data_is_as_it_was(excluded: Exclusions | None) -> None:
    dataset = list("vwxyz")
    assert without_excluded(train_message(excluded), dataset, KEYS) is dataset


def test_every_example_needs_a_key() -> None:
    with pytest.raises(ConfigError):
        without_excluded(train_message(None), list("vw"), KEYS)


@pytest.mark.parametrize(
    "record", [ConfigRecord({"key": "text", "hashes": [b"x"]}), ConfigRecord({"key": bytes(32)}), ConfigRecord({})]
)
def test_exclusions_that_cannot_be_read_are_no_reason_to_train_on_everything(record: ConfigRecord) -> None:
    message = Message(RecordDict({"disavow-exclusions": record}), 1, "train")
    with pytest.raises(ConfigError):
        without_excluded(message, list("vwxyz"), KEYS)
