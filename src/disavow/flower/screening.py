"""Which replies may enter a round. One that may not is left out, and the client is named with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from disavow.domain import Policy
from disavow.flower.arrays import Frame, Malformed, Vector
from disavow.rounds.vectors import Model, Updates

MOST_SAMPLES = 10**9
"""The most samples that a reply may count, whatever the others do: beyond the training set of any single client,
and so a mistake or an attempt to take all of the weight.
"""


@dataclass(frozen=True, eq=False)
class Returned:
    """A client's good reply: its update, how many samples it is from, and all that it said."""

    update: Vector
    samples: int
    content: RecordDict


def read(reply: Message, frame: Frame, broadcast: Vector, weighted_by_key: str) -> Returned:
    """The update in a reply; `Malformed` where there is none that could enter a round."""
    if reply.has_error():
        raise Malformed(f"its app failed: {reply.error.reason}")
    content = reply.content
    arrays = [record for record in content.values() if isinstance(record, ArrayRecord)]
    metrics = [record for record in content.values() if isinstance(record, MetricRecord)]
    if len(arrays) != 1 or len(metrics) != 1:
        raise Malformed(f"it holds {len(arrays)} array records and {len(metrics)} metric records, not one of each")
    samples = _samples(metrics[0], weighted_by_key)
    with np.errstate(all="ignore"):  # what is not finite is refused below, by name
        update = frame.vector(arrays[0]) - broadcast
    if not np.isfinite(update).all():
        raise Malformed("its update holds NaN or infinity")
    return Returned(update, samples, content)


def _samples(metrics: MetricRecord, key: str) -> int:
    value = metrics.get(key)
    if value is None:
        raise Malformed(f"the metric {key!r} is missing")
    if isinstance(value, list) or not 1 <= value <= MOST_SAMPLES or value != int(value):  # NaN is not in between
        raise Malformed(f"the metric {key!r} is {value}, not a whole number from 1 to {MOST_SAMPLES:,}")
    return int(value)


def is_by_itself(policy: Policy) -> bool:
    """Whether each reply is in a round or not for what it is alone: where the sampled figure is claimed.

    That figure is about one client removed while all others contribute what they did. A median, or a least number
    of replies, would let the removed client decide who else is in. Lengths are bounded by clipping.
    """
    return policy.accounted and policy.anchored


def left_out(returned: Mapping[str, Returned], policy: Policy, times: float, broadcast: Vector) -> dict[str, str]:
    """Those good replies that do not fit with the others of the round (`too_large`), with the reason."""
    return {} if is_by_itself(policy) else too_large(returned, times, broadcast)


def too_large(returned: Mapping[str, Returned], times: float, broadcast: Vector) -> dict[str, str]:
    """Those whose update is so many times longer, or from so many times more samples, than the middle one of the
    round, with the reason. `broadcast` is the model that they started from.

    The median, because one client can make a mean as large as it likes, and fewer than half of them not the median.
    """
    norms = {client: _length(each.update) for client, each in returned.items()}
    middle, named = _usual(list(norms.values()), broadcast)
    samples = float(np.median([each.samples for each in returned.values()])) if returned else 0.0
    long = {
        client: f"its update has length {norm:.3g}, more than {times:g} times {named} of {middle:.3g}"
        for client, norm in norms.items()
        if norm > times * middle
    }
    heavy = {
        client: f"it counts {each.samples} samples, more than {times:g} times the round's median of {samples:g}"
        for client, each in returned.items()
        if each.samples > times * samples
    }
    return {**heavy, **long}


def _usual(norms: Sequence[float], broadcast: Vector) -> tuple[float, str]:
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


def updates_of(returned: Mapping[str, Returned], model: Model) -> Updates:
    """The updates of these clients, in this order."""
    clients = tuple(returned)
    rows = [torch.from_numpy(returned[client].update) for client in clients]
    vectors = torch.stack(rows) if rows else torch.zeros(0, model.layout.size)
    return Updates(clients, tuple(returned[client].samples for client in clients), vectors, "flower")
