"""Read the replies of a round: between Flower's ArrayRecord and our flat vector, and which replies may enter.

Floating arrays are the model. Others (counters such as `num_batches_tracked`) are not in the vector: they go out as
they came in with the initial arrays, and what clients return for them is ignored. A reply that may not enter is
left out, and the client is named with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord

from disavow.domain import Layout, Policy, TensorSpec
from disavow.errors import ConfigError
from disavow.rounds.vectors import Model, Updates, require_layout

Vector = npt.NDArray[np.float32]

MOST_SAMPLES = 10**9
"""The most samples that a reply may count, whatever the others do: beyond the training set of any single client,
and so a mistake or an attempt to take all of the weight.
"""


class InvalidReply(Exception):
    """A reply that cannot enter a round; the message says why."""


@dataclass(frozen=True, eq=False)
class ArrayFormat:
    """What every ArrayRecord of a run looks like: names in order, the layout of the floating ones, the others."""

    layout: Layout
    names: tuple[str, ...]
    types: Mapping[str, np.dtype[np.generic]]
    others: Mapping[str, Array]

    @classmethod
    def of(cls, initial: ArrayRecord) -> ArrayFormat:
        """Take the format from the initial arrays of a run; `ConfigError` where none of them is floating."""
        arrays = {name: array.numpy() for name, array in initial.items()}
        floating = {name: array for name, array in arrays.items() if np.issubdtype(array.dtype, np.floating)}
        if not floating:
            raise ConfigError("the initial arrays hold no floating numbers, so there is nothing to train")
        return cls(
            layout=Layout(tuple(TensorSpec(name, array.shape) for name, array in floating.items())),
            names=tuple(arrays),
            types={name: array.dtype for name, array in floating.items()},
            others={name: array for name, array in initial.items() if name not in floating},
        )

    def to_record(self, model: Model) -> ArrayRecord:
        """Convert a model to what Flower sends, in the types and the order of the initial arrays."""
        require_layout([model], self.layout)
        tensors = model.tensors()
        arrays = {
            name: self.others[name]
            if name in self.others
            else Array(tensors[name].numpy().astype(self.types[name], copy=False))
            for name in self.names
        }
        return ArrayRecord(arrays)

    def to_vector(self, record: ArrayRecord) -> Vector:
        """Convert the floating arrays to one vector; `InvalidReply` where names or shapes are not the model's."""
        missing = [spec.name for spec in self.layout.tensors if spec.name not in record]
        if missing:
            raise InvalidReply(f"the array {missing[0]!r} is missing")
        parts = []
        for spec in self.layout.tensors:
            array = _numbers(record, spec.name)
            if array.shape != spec.shape:
                raise InvalidReply(f"the array {spec.name!r} has shape {array.shape}, not {spec.shape}")
            parts.append(array.astype(np.float32, copy=False).reshape(-1))
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def to_model(self, record: ArrayRecord) -> Model:
        """Convert the floating arrays to a model."""
        return Model(self.layout, torch.from_numpy(self.to_vector(record)))


def _numbers(record: ArrayRecord, name: str) -> npt.NDArray[np.floating]:
    try:
        array = record[name].numpy()
    except Exception as error:  # whatever a stranger's bytes do to a parser
        raise InvalidReply(f"the array {name!r} cannot be read ({type(error).__name__})") from None
    if not np.issubdtype(array.dtype, np.floating):
        raise InvalidReply(f"the array {name!r} holds {array.dtype}, not floating numbers")
    numbers: npt.NDArray[np.floating] = array
    return numbers


@dataclass(frozen=True, eq=False)
class Reply:
    """A client's valid reply: its update, how many samples it is from, and the message it came in."""

    update: Vector
    samples: int
    message: Message


def read_reply(message: Message, arrays: ArrayFormat, broadcast: Vector, weighted_by_key: str) -> Reply:
    """Read the update in a reply; `InvalidReply` where there is none that could enter a round."""
    if message.has_error():
        raise InvalidReply(f"its app failed: {message.error.reason}")
    models = [record for record in message.content.values() if isinstance(record, ArrayRecord)]
    metrics = [record for record in message.content.values() if isinstance(record, MetricRecord)]
    if len(models) != 1 or len(metrics) != 1:
        raise InvalidReply(
            f"it holds {len(models)} array records and {len(metrics)} metric records, not one of each"
        )
    samples = _samples(metrics[0], weighted_by_key)
    with np.errstate(all="ignore"):  # what is not finite is refused below, by name
        update = arrays.to_vector(models[0]) - broadcast
    if not np.isfinite(update).all():
        raise InvalidReply("its update holds NaN or infinity")
    return Reply(update, samples, message)


def _samples(metrics: MetricRecord, key: str) -> int:
    value = metrics.get(key)
    if value is None:
        raise InvalidReply(f"the metric {key!r} is missing")
    if isinstance(value, list) or not 1 <= value <= MOST_SAMPLES or value != int(value):  # NaN is not in between
        raise InvalidReply(f"the metric {key!r} is {value}, not a whole number from 1 to {MOST_SAMPLES:,}")
    return int(value)


def screened_alone(policy: Policy) -> bool:
    """Tell whether each reply is in a round or not for what it is alone: where the sampled figure is claimed.

    That figure is about one client removed while all others contribute what they did. A median, or a least number
    of replies, would let the removed client decide who else is in. Lengths are bounded by clipping.
    """
    return policy.accounted and policy.anchored


def outliers(replies: Mapping[str, Reply], policy: Policy, times: float, broadcast: Vector) -> dict[str, str]:
    """Find replies whose update is many times longer, or from many times more samples, than the round's median.

    The median, because one client can make a mean as large as it likes, and fewer than half of them not the median.

    Args:
        replies: The valid replies of the round, by client.
        policy: Where it claims the sampled figure, there are no outliers.
        times: How many times.
        broadcast: The model that the clients started from.

    Returns:
        The reason for each, by client.

    """
    if screened_alone(policy):
        return {}
    norms = {client: _length(each.update) for client, each in replies.items()}
    middle, named = _usual_length(list(norms.values()), broadcast)
    samples = float(np.median([each.samples for each in replies.values()])) if replies else 0.0
    long = {
        client: f"its update has length {norm:.3g}, more than {times:g} times {named} of {middle:.3g}"
        for client, norm in norms.items()
        if norm > times * middle
    }
    heavy = {
        client: f"it counts {each.samples} samples, more than {times:g} times the round's median of {samples:g}"
        for client, each in replies.items()
        if each.samples > times * samples
    }
    return {**heavy, **long}


def _usual_length(norms: Sequence[float], broadcast: Vector) -> tuple[float, str]:
    """The length that updates of a round are measured by, and what it is."""
    middle = float(np.median(norms)) if norms else 0.0
    if middle > 0:
        return middle, "the round's median"
    # half of the clients or more returned the model as it was
    moved = sorted(norm for norm in norms if norm > 0)
    if len(moved) > 1:
        # the lower of two middle ones: their mean is as large as the larger makes it
        return moved[(len(moved) - 1) // 2], "the median of those that are not zero,"
    return _length(broadcast), "the model's length"


def _length(vector: Vector) -> float:
    # in float64, where the square of no float32 overflows
    return float(np.linalg.norm(vector.astype(np.float64)))


def stack_updates(replies: Mapping[str, Reply], model: Model) -> Updates:
    """Stack the updates of these clients, in this order."""
    rows = [torch.from_numpy(reply.update) for reply in replies.values()]
    vectors = torch.stack(rows) if rows else torch.zeros(0, model.layout.size)
    return Updates(tuple(replies), tuple(reply.samples for reply in replies.values()), vectors, "flower")
