"""⑥ Record: who was in which cluster, how alike they were, and the model; never who was drawn."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache

import numpy as np
import numpy.typing as npt

from disavow.domain import Cluster, Member, Round, Slot
from disavow.federation.broadcast import Broadcast
from disavow.federation.cluster import Clusters
from disavow.federation.randomness import Secrets
from disavow.federation.vectors import Model, Updates, on_cpu
from disavow.ledger import Ledger

_THREADS = 16

_SHARE = 1 << 20
"""Bytes that are worth a thread of their own."""


def record(
    ledger: Ledger,
    broadcast: Broadcast,
    updates: Updates,
    clusters: Clusters,
    after: Model,
    hashing: Hashing,
    *,
    secrets: Secrets,
    at: datetime,
    keep: bool = False,
) -> Round:
    """Store the round in one transaction. `updates` are those the clients returned, before any clipping, and
    `hashing` was begun with them; with `keep`, they are stored too.

    Clusters and slots are numbered in a shuffled order, so that a number says nothing about who is behind it
    and cannot be followed from round to round.
    """
    stream = secrets.stream(broadcast.number, broadcast.attempt, "slots")
    order = [
        (c, [clusters.members[c][i] for i in stream.permutation(len(clusters.members[c]))])
        for c in stream.permutation(len(clusters.members)).tolist()
    ]
    slot_of = {item: slot for slot, item in enumerate(item for _, items in order for item in items)}

    digests = hashing.digests()

    def slot(item: int) -> Slot:
        member = Member(updates.clients[item], updates.samples[item], digests[item])
        return Slot(member, tuple(slot_of[other] for other in clusters.neighbours[item]))

    return ledger.record(
        number=broadcast.number,
        attempt=broadcast.attempt,
        before=broadcast.digest,
        after=after.vector.cpu().numpy(),
        delta=clusters.delta,
        clusters_of_round=tuple(
            Cluster(clusters.weights[c], clusters.spreads[c], tuple(map(slot, items))) for c, items in order
        ),
        at=at,
        seconds=(at - broadcast.opened_at).total_seconds(),
        kept=dict(zip(digests, on_cpu(updates.vectors).numpy(), strict=True)) if keep else None,
    )


class Hashing:
    """SHA-256 of each update, taken on threads beside whatever else the round does: it needs no interpreter."""

    def __init__(self, updates: Updates) -> None:
        rows = on_cpu(updates.vectors).numpy().astype("<f4", copy=False)
        shares = np.array_split(rows, max(1, min(_THREADS, rows.nbytes // _SHARE)))
        self._parts = _threads(os.getpid()).map(_digests, shares)

    def digests(self) -> list[bytes]:
        """Wait for them; they are handed out once."""
        return [digest for part in self._parts for digest in part]


def _digests(some: npt.NDArray[np.float32]) -> list[bytes]:
    return [hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in some]


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Threads that are kept from round to round; a forked process has none of its parent's."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix=f"digests-{process}")
