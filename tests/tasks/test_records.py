"""Record keys of tasks, and loaded tasks without records that were erased."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Subset, TensorDataset

import disavow
from disavow.config import TrainingSettings
from disavow.domain import Exclusions
from disavow.errors import TaskError
from disavow.tasks import image_task
from disavow.tasks.loading import LoadedTask, load
from disavow.tasks.samples import samples_of, subset_of
from tests.refusals import refuses
from tests.tasks.recorded import EXCLUSIONS, KINDS, keys_of, loaded, never_held
from tests.tasks.zoo import CLIENTS


def made(keys: Any, samples: int = 4) -> LoadedTask:
    """A task of one client with these record keys."""
    data = torch.arange(samples).float().view(-1, 1), torch.zeros(samples, dtype=torch.long)
    task = disavow.task(model=lambda: nn.Linear(1, 2), clients={"ada": data}, record_keys=keys)
    return load(task, training=TrainingSettings(), seed=1)


def excluding(*records: str) -> dict[str, Exclusions]:
    return {"ada": Exclusions(bytes(32)).adding(records)}


def first_column(task: LoadedTask, client: str = "ada") -> list[float]:
    samples = task.samples[client]
    return [float(value) for value in samples.batch(np.arange(len(samples)))[0].flatten()]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_without_records_a_task_is_the_one_that_never_held_them(kind: str) -> None:
    left, other = loaded(kind).without(EXCLUSIONS), never_held(kind)
    assert left.digests == other.digests
    assert list(left.samples) == list(other.samples) == list(CLIENTS)
    for client in CLIENTS:
        assert left.record_keys(client) == other.record_keys(client)
        assert type(left.data[client]) in {type(other.data[client]), Subset}
        assert len(left.samples[client]) == len(other.samples[client])
        ours, theirs = left.samples[client], other.samples[client]
        torch.manual_seed(1)
        mine = ours.batch(np.arange(len(ours)))
        torch.manual_seed(1)
        torch.testing.assert_close(mine, theirs.batch(np.arange(len(theirs))), rtol=0, atol=0)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_it_makes_no_difference_whether_the_data_still_holds_the_records(kind: str) -> None:
    gone = never_held(kind)
    assert gone.without(EXCLUSIONS) is gone
    assert loaded(kind).without(EXCLUSIONS).digests == gone.digests


def test_without_anything_a_task_is_itself() -> None:
    task = loaded("arrays")
    assert task.without({}) is task
    assert task.without({"ada": Exclusions(bytes(32)), "nobody": Exclusions(bytes(32)).adding(["ada-1"])}) is task
    assert task.without({"ada": Exclusions(bytes(32)).adding(["unknown"])}) is task


def test_records_that_go_one_after_the_other_are_those_that_go_at_once() -> None:
    task, key = loaded("datasets"), bytes(32)
    first = {"ada": Exclusions(key).adding(["ada-1"])}
    both = {"ada": Exclusions(key).adding(["ada-1", "ada-3"])}
    twice, once = task.without(first).without(both), task.without(both)
    assert twice.digests == once.digests
    assert twice.exclusions == once.exclusions
    only_second = task.without(first).without({"ada": Exclusions(key).adding(["ada-3"])})
    assert only_second.exclusions == once.exclusions


def test_what_is_left_out_stays_with_the_task_that_was_loaded_first() -> None:
    task = loaded("arrays")
    before = dict(task.digests)
    task.without(EXCLUSIONS)
    assert task.digests == before
    assert task.record_keys("ada") == tuple(keys_of("ada"))


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), st.sets(st.sampled_from("abcde")))
@settings(max_examples=60, deadline=None)
def test_a_record_is_all_examples_of_one_key(keys: list[str], erased: set[str]) -> None:
    task = made({"ada": keys}, len(keys))
    kept = [i for i, key in enumerate(keys) if key not in erased]
    if not kept:
        with refuses(TaskError, "ada"):
            task.without(excluding(*erased))
        return
    left = task.without(excluding(*erased))
    assert first_column(left) == kept
    assert left.record_keys("ada") == tuple(keys[i] for i in kept)


def test_a_function_names_records_too() -> None:
    assert made(lambda client: [f"{client}/{i}" for i in range(4)]).record_keys("ada") == (
        "ada/0",
        "ada/1",
        "ada/2",
        "ada/3",
    )


def test_a_task_names_no_records_by_itself() -> None:
    assert made(None).record_keys("ada") is None
    assert made({"bob": ["1"]}).record_keys("ada") is None
    with refuses(TaskError, "ada", "record_keys"):
        made(None).without(excluding("1"))


@pytest.mark.parametrize(
    "keys", [["a", "b", "c"], ["a", "b", "c", "d", "e"], [1, 2, 3, 4], ["a", "b", "", "d"], "abcd", 7]
)
def test_keys_are_one_text_for_each_example(keys: Any) -> None:
    task = made(lambda client: keys)
    with refuses(TaskError, "ada", "record_keys"):
        task.record_keys("ada")
    with refuses(TaskError, "ada", "record_keys"):
        task.digests  # noqa: B018


def test_nobody_has_the_records_of_an_unknown_client() -> None:
    with refuses(TaskError, "zoe"):
        made(None).record_keys("zoe")


def test_a_loop_of_its_own_beside_record_keys() -> None:
    disavow.task(
        model=lambda: nn.Linear(1, 2),
        clients={"ada": (torch.zeros(1, 1), torch.zeros(1))},
        train_client=lambda model, data, seed: None,
        record_keys={"ada": ["1"]},
    )


class Pair(NamedTuple):
    inputs: Any
    labels: Any


class _OwnTensors(TensorDataset):
    pass


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (Pair(np.arange(5.0), np.arange(5)), Pair),
        ((np.arange(5.0), torch.arange(5)), tuple),
        ([torch.arange(5.0), torch.arange(5)], list),
        (tuple((float(i), i) for i in range(5)), tuple),
        (_OwnTensors(torch.arange(5.0), torch.arange(5)), Subset),
    ],
)
def test_data_keeps_its_form(data: Any, kind: type) -> None:
    taken = subset_of(data, np.array([1, 4]))
    assert type(taken) is kind
    samples = samples_of(taken, owner="ada")
    assert [float(row[0]) for row in samples.rows(np.arange(2))] == [1.0, 4.0]


def images(clients: int = 3) -> LoadedTask:
    task = image_task("digits", model="convnet", clients=clients, test_fraction=0.9).read(2, lambda *_: None)
    return load(task, training=TrainingSettings(), seed=2)


def test_the_records_of_images_are_their_numbers_in_the_training_set() -> None:
    task = images()
    keys = {client: task.record_keys(client) for client in task.samples}
    numbers = sorted(int(key) for each in keys.values() for key in each or ())
    assert numbers == list(range(len(task.task.data.train)))  # type: ignore[attr-defined]
    client = "client-02"
    erased = (keys[client] or ())[3]
    left = task.without({client: Exclusions(bytes(32)).adding([erased])})
    assert left.record_keys(client) == tuple(key for key in keys[client] or () if key != erased)
    assert len(left.samples[client]) == len(task.samples[client]) - 1
    assert int(erased) not in left.task.data.parts[client]  # type: ignore[attr-defined]
    assert left.record_keys("client-01") == keys["client-01"]
