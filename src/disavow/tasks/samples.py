"""What a client holds, in one form: a number of samples, any of which can be asked for as a batch.

Accepted are a pair or longer tuple of tensors or NumPy arrays, a map-style `torch.utils.data.Dataset`, and a
Hugging Face `Dataset`. Tensors and arrays are indexed directly, which is what makes them fast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate

from disavow.errors import TaskError

Positions = npt.NDArray[np.int64]
Collate = Callable[[list[Any]], Any]
Parts = dict[str, Positions]
"""Which rows each client holds."""

_ACCEPTED = (
    "allowed: a map-style torch Dataset, a tuple of tensors or NumPy arrays of one length, "
    "or a Hugging Face Dataset"
)


class Samples(Protocol):
    """Samples of one client, or the test samples."""

    def __len__(self) -> int:
        """Count the samples."""

    def batch(self, positions: Positions) -> Any:
        """Give the samples at these positions, collated.

        Args:
            positions: Which samples of the client.

        """

    def rows(self, positions: Positions) -> list[Any]:
        """Give the samples at these positions one by one, as they are before they are collated."""

    def digest(self) -> str | None:
        """Give the SHA-256 of all samples; None where reading them all would be needed for it."""


class TensorSamples:
    """Samples that are rows of tensors, or rows of them at some positions."""

    def __init__(self, tensors: Sequence[Tensor], positions: Tensor | None = None) -> None:
        self.tensors = tuple(tensors)
        self.positions = positions

    def __len__(self) -> int:
        return len(self.tensors[0]) if self.positions is None else len(self.positions)

    def batch(self, positions: Positions) -> tuple[Tensor, ...]:
        """See `Samples`."""
        chosen = torch.from_numpy(positions)
        if self.positions is not None:
            chosen = self.positions[chosen]
        return tuple(tensor[chosen] for tensor in self.tensors)

    def rows(self, positions: Positions) -> list[Any]:
        """See `Samples`."""
        return list(zip(*self.batch(positions), strict=True))

    def digest(self) -> str:
        """See `Samples`."""
        found = hashlib.sha256(b"disavow/samples/v1\x00")
        for tensor in self.batch(np.arange(len(self))):
            found.update(f"{tensor.dtype} {tuple(tensor.shape)}\x00".encode())
            found.update(tensor.contiguous().numpy().data)
        return found.hexdigest()


class DatasetSamples:
    """Samples of a map-style dataset, read one by one and collated."""

    def __init__(self, dataset: Dataset[Any], collate: Collate) -> None:
        self._dataset = dataset
        self._collate = collate
        self._read_many = getattr(dataset, "__getitems__", None)

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def batch(self, positions: Positions) -> Any:
        """See `Samples`."""
        return self._collate(self.rows(positions))

    def rows(self, positions: Positions) -> list[Any]:
        """See `Samples`."""
        if self._read_many is not None:
            return list(self._read_many(positions.tolist()))
        return [self._dataset[i] for i in positions.tolist()]

    def digest(self) -> None:
        """See `Samples`: a dataset of the user's own may read files, or draw at random."""
        return


class TableSamples:
    """Samples of a Hugging Face dataset: a batch is a mapping from column to tensor."""

    def __init__(self, dataset: Any, collate: Collate | None) -> None:
        self._dataset = dataset if dataset.format["type"] is not None else dataset.with_format("torch")
        self._collate = collate

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, positions: Positions) -> Any:
        """See `Samples`."""
        if self._collate is not None:
            return self._collate(self.rows(positions))
        return self._dataset[positions.tolist()]

    def rows(self, positions: Positions) -> list[Any]:
        """See `Samples`."""
        return [self._dataset[i] for i in positions.tolist()]

    def digest(self) -> None:
        """See `Samples`: its own fingerprint changes with the library's version."""
        return


def join(held: Mapping[str, TensorSamples], device: torch.device | None = None) -> tuple[tuple[Tensor, ...], Parts]:
    """Put the samples of all clients into the same tensors.

    Args:
        held: Each client's samples.
        device: Where the tensors are to be; None for where they are.

    Returns:
        The tensors, and which rows are whose. Clients that hold rows of the same tensors already go on doing so.

    Raises:
        ValueError: Their samples have several shapes or types.

    """
    first = next(iter(held.values()))
    if all(each.positions is not None and each.tensors[0] is first.tensors[0] for each in held.values()):
        shared = {client: each.positions.numpy() for client, each in held.items() if each.positions is not None}
        return tuple(tensor.to(device) for tensor in first.tensors), shared
    rows = {client: each.batch(np.arange(len(each))) for client, each in held.items()}
    if len({tuple((tensor.shape[1:], tensor.dtype) for tensor in each) for each in rows.values()}) > 1:
        raise ValueError("clients hold samples of several shapes or types")
    parts, start = {}, 0
    for client, samples in held.items():
        parts[client] = np.arange(start, start + len(samples))
        start += len(samples)
    return tuple(
        torch.cat([tensor.to(device) for tensor in each]) for each in zip(*rows.values(), strict=True)
    ), parts


class JoinedSamples:
    """Samples of several holders, one behind the other, or those of them at some positions."""

    def __init__(self, parts: Sequence[Samples], collate: Collate, positions: Positions | None = None) -> None:
        self._parts = tuple(parts)
        self._collate = collate
        self._starts = np.cumsum([0, *(len(part) for part in self._parts)])
        self._positions = np.arange(self._starts[-1]) if positions is None else positions

    def __len__(self) -> int:
        return len(self._positions)

    def select(self, positions: Positions) -> JoinedSamples:
        """Give the samples at these positions alone."""
        return JoinedSamples(self._parts, self._collate, self._positions[positions])

    def batch(self, positions: Positions) -> Any:
        """See `Samples`."""
        chosen = self._positions[positions]
        holders = np.searchsorted(self._starts, chosen, side="right") - 1
        if len(chosen) and (holders == holders[0]).all():  # one holder's own way, where it is one
            return self._parts[holders[0]].batch(chosen - self._starts[holders[0]])
        return self._collate(self.rows(positions))

    def rows(self, positions: Positions) -> list[Any]:
        """See `Samples`."""
        chosen = self._positions[positions]
        holders = np.searchsorted(self._starts, chosen, side="right") - 1
        return [
            self._parts[holder].rows(np.array([position - self._starts[holder]]))[0]
            for holder, position in zip(holders, chosen, strict=True)
        ]

    def digest(self) -> None:
        """See `Samples`: each holder has its own."""
        return


def samples_of(data: Any, *, owner: str, collate: Collate | None = None) -> Samples:
    """Read what a user gave as a client's data.

    Args:
        data: A tuple or list of tensors or arrays, a map-style dataset, or a Hugging Face dataset.
        owner: Whose it is, for errors.
        collate: What makes a batch of a list of samples; None for what PyTorch's loaders do.

    Returns:
        The same samples, by position.

    Raises:
        TaskError: It is none of these, or empty.

    """
    samples = _read(data, owner, collate)
    try:
        number = len(samples)
    except Exception as error:  # a dataset of the user's own
        raise TaskError(f"{owner}: its samples cannot be counted: {type(error).__name__}: {error}") from error
    if number == 0:
        raise TaskError(f"{owner} holds no samples; allowed: at least one")
    return samples


def selected(samples: Samples, positions: Positions) -> Samples:
    """Give some of the samples, in the same form.

    Args:
        samples: All of them.
        positions: Which, in order.

    """
    if isinstance(samples, TensorSamples):
        chosen = torch.from_numpy(positions)
        return type(samples)(samples.tensors, chosen if samples.positions is None else samples.positions[chosen])
    if isinstance(samples, JoinedSamples):
        return samples.select(positions)
    return JoinedSamples([samples], default_collate, positions)


def subset_of(data: Any, positions: Positions) -> Any:
    """Take some of what a user gave as a client's data, in the same form wherever that has one.

    Args:
        data: What `samples_of` takes.
        positions: Which samples of it, in order.

    Returns:
        Tensors, arrays, lists and tables of the samples; of a dataset of the user's own a torch `Subset`.

    """
    if isinstance(data, TensorSamples):
        return selected(data, positions)
    if type(data) is TensorDataset:
        return TensorDataset(*(tensor[torch.from_numpy(positions)] for tensor in data.tensors))
    if type(data) is Subset:
        return Subset(data.dataset, [data.indices[i] for i in positions.tolist()])
    if isinstance(data, tuple | list):
        are_columns = all(isinstance(each, Tensor | np.ndarray) for each in data)
        taken = (each[positions] for each in data) if are_columns else (data[i] for i in positions.tolist())
        return data._make(taken) if hasattr(data, "_make") else type(data)(taken)  # a named tuple has its own way
    if hasattr(data, "with_format") and hasattr(data, "column_names"):
        return data.select(positions)
    return Subset(data, positions.tolist())


def _read(data: Any, owner: str, collate: Collate | None) -> Samples:
    if isinstance(data, TensorSamples):
        return data
    if isinstance(data, IterableDataset):
        raise TaskError(f"{owner} is an IterableDataset, which cannot be read by position; {_ACCEPTED}")
    if collate is None and isinstance(data, TensorDataset):
        return TensorSamples(data.tensors)
    if collate is None and isinstance(data, Subset) and isinstance(data.dataset, TensorDataset):
        return TensorSamples(data.dataset.tensors, torch.as_tensor(data.indices))
    if isinstance(data, tuple | list) and data and all(isinstance(each, Tensor | np.ndarray) for each in data):
        return _tensors(data, owner)
    if isinstance(data, Dataset) or (
        not isinstance(data, Mapping | str) and hasattr(data, "__getitem__") and hasattr(data, "__len__")
    ):
        if hasattr(data, "with_format") and hasattr(data, "column_names"):
            return TableSamples(data, collate)
        if not hasattr(data, "__len__"):
            raise TaskError(f"{owner} is a {type(data).__name__} without a length; {_ACCEPTED}")
        return DatasetSamples(data, collate or default_collate)
    raise TaskError(f"{owner} is a {type(data).__name__}; {_ACCEPTED}")


def _tensors(data: Sequence[Tensor | npt.NDArray[Any]], owner: str) -> TensorSamples:
    tensors = []
    for each in data:
        try:
            tensor = each if isinstance(each, Tensor) else torch.as_tensor(np.asarray(each))
        except TypeError:
            raise TaskError(
                f"{owner} holds an array of {getattr(each, 'dtype', None)}; allowed: numbers or truth values"
            ) from None
        # what NumPy counts in is twice what networks compute in
        tensors.append(tensor.float() if tensor.dtype == torch.float64 else tensor)
    lengths = {len(tensor) if tensor.dim() else -1 for tensor in tensors}
    if len(lengths) != 1 or -1 in lengths:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise TaskError(f"{owner} holds arrays of shapes {shapes}; allowed: one length")
    return TensorSamples(tensors)


def moved(batch: Any, device: torch.device | None) -> Any:
    """Move all tensors of a batch to a device.

    Args:
        batch: A tensor, or tuples, lists and mappings of tensors and of anything else.
        device: Where to; None, or a CPU, leaves the batch as it is.

    Returns:
        The batch in the same form.

    """
    if device is None or device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return type(batch)(moved(each, device) for each in batch)
    return batch


def shapes_of(batch: Any) -> str:
    """Describe a batch by its shapes, for errors."""
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')}{tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{key}: {shapes_of(value)}" for key, value in batch.items()) + "}"
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        return "(" + ", ".join(shapes_of(each) for each in batch) + ")"
    return type(batch).__name__
