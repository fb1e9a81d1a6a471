"""What clients may hold, and that it is read the same whatever form it comes in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from disavow.errors import TaskError
from disavow.tasks.samples import samples_of, shapes_of

INPUTS = torch.arange(12, dtype=torch.float32).reshape(6, 2)
TARGETS = torch.arange(6)
POSITIONS = np.array([4, 0, 2])


class Pairs(Dataset[tuple[Tensor, Tensor]]):
    """A dataset of the user's own."""

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return INPUTS[index], TARGETS[index]


class Stream(IterableDataset[Tensor]):
    """A dataset without positions."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter(INPUTS)


@pytest.mark.parametrize(
    "data",
    [
        (INPUTS, TARGETS),
        [INPUTS.numpy(), TARGETS.numpy()],
        (INPUTS.double().numpy(), TARGETS),
        TensorDataset(INPUTS, TARGETS),
        Subset(TensorDataset(torch.cat([INPUTS - 1, INPUTS]), torch.cat([TARGETS, TARGETS])), range(6, 12)),
        Subset(Pairs(), range(6)),
        Pairs(),
    ],
    ids=["tensors", "arrays", "float64", "TensorDataset", "Subset", "Subset of a dataset", "dataset"],
)
def test_every_form_gives_the_same_batch(data: object) -> None:
    samples = samples_of(data, owner="client a")
    inputs, targets = samples.batch(POSITIONS)
    assert len(samples) == 6
    assert inputs.dtype == torch.float32
    assert torch.equal(inputs, INPUTS[POSITIONS])
    assert torch.equal(targets, TARGETS[POSITIONS])


def test_a_table_of_hugging_face_gives_columns() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"text": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 0]})
    batch = samples_of(table, owner="client a").batch(np.array([2, 0]))
    assert batch["text"].tolist() == [[5, 6], [1, 2]]
    assert batch["label"].tolist() == [0, 0]


def test_collate_makes_the_batches_of_any_form() -> None:
    samples = samples_of(Pairs(), owner="client a", collate=len)
    assert samples.batch(POSITIONS) == 3


@pytest.mark.parametrize(
    "data",
    [
        (),
        (INPUTS, TARGETS[:3]),
        (INPUTS[:0], TARGETS[:0]),
        (torch.tensor(1.0), TARGETS),
        Stream(),
        {"inputs": INPUTS},
        "a path",
        7,
        None,
    ],
    ids=["nothing", "two lengths", "empty", "scalar", "iterable", "mapping", "text", "number", "None"],
)
def test_what_cannot_be_read_by_position_is_refused_with_its_owner(data: object) -> None:
    with pytest.raises(TaskError) as refused:
        samples_of(data, owner="client a")
    assert "client a" in str(refused.value)


def test_a_digest_is_of_the_samples_and_not_of_their_form() -> None:
    subset = Subset(TensorDataset(INPUTS.repeat(2, 1), TARGETS.repeat(2)), range(6, 12))
    digests = {samples_of(data, owner="client a").digest() for data in ((INPUTS, TARGETS), subset)}
    assert len(digests) == 1
    assert samples_of((INPUTS + 1, TARGETS), owner="client a").digest() not in digests
    assert samples_of(Pairs(), owner="client a").digest() is None


def test_shapes_are_named_for_errors() -> None:
    assert shapes_of((INPUTS, {"labels": TARGETS}, ["x", 1])) == "(float32(6, 2), {labels: int64(6,)}, (str, int))"
