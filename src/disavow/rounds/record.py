"""⑥ Record: who was in which cluster, how alike they were, and the model; never who was drawn."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache

import numpy as np
import numpy.typing as npt

from disavow.domain import Anchors, Cluster, Member, Policy, Slot
from disavow.ledger.rounds import NewRound
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import Clusters
from disavow.rounds.randomness import Secrets, Stream
from disavow.rounds.vectors import Model, Updates, on_cpu

_THREADS = 16

_SHARE = 1 << 20
"""Bytes that are worth a thread of their own."""


def new_round(
    policy: Policy,
    broadcast: Broadcast,
    updates: Updates,
    clusters: Clusters,
    after: Model,
    hashing: Hashing,
    *,
    anchors: Anchors | None = None,
    previous: Sequence[Sequence[str]] = (),
    secrets: Secrets,
    at: datetime,
    keep: bool = False,
    compress: bool = True,
) -> NewRound:
    """Put together what the ledger is to store of a round.

    Clusters and slots are numbered in a shuffled order, so that a number says nothing about who is behind it
    and cannot be followed from round to round.

    Args:
        policy: What the run promises.
        broadcast: What opened the round.
        updates: Those the clients returned, before any clipping.
        clusters: Its clusters.
        after: The model it produced.
        hashing: Begun with `updates`.
        anchors: The clusters of the run where they are fixed.
        previous: The clusters of the round before where clusters are sticky.
        secrets: Where the order is drawn from.
        at: When it is recorded.
        keep: Whether the updates are stored too.
        compress: Whether these are compressed.

    """
    order = _shuffled(clusters, secrets.stream(broadcast.number, broadcast.attempt, "slots"))
    digests = hashing.digests()
    return NewRound(
        number=broadcast.number,
        attempt=broadcast.attempt,
        before=broadcast.digest,
        after=after.vector.cpu().numpy(),
        delta=clusters.delta,
        update_norm=clusters.update_norm,
        pairs_within=clusters.pairs_within,
        clusters=_filled(order, updates, clusters, digests),
        at=at,
        seconds=(at - broadcast.opened_at).total_seconds(),
        trainer=updates.trainer,
        repeats=_repeats(policy, updates, clusters, previous),
        kept=dict(zip(digests, on_cpu(updates.vectors).numpy(), strict=True)) if keep else {},
        compress=compress,
        anchors=anchors,
    )


def _shuffled(clusters: Clusters, stream: Stream) -> list[tuple[int, list[int]]]:
    """The clusters in a drawn order, each with its members in a drawn order; those without any are left out."""
    return [
        (c, [clusters.members[c][i] for i in stream.permutation(len(clusters.members[c]))])
        for c in stream.permutation(len(clusters.members)).tolist()
        if clusters.members[c]
    ]


def _filled(
    order: Sequence[tuple[int, Sequence[int]]], updates: Updates, clusters: Clusters, digests: Sequence[bytes]
) -> tuple[Cluster, ...]:
    """The clusters in this order, their slots filled."""

    def slot(item: int) -> Slot:
        return Slot(Member(updates.clients[item], updates.samples[item], digests[item]))

    return tuple(
        Cluster(clusters.weights[c], clusters.spreads[c], tuple(map(slot, items)), clusters.capacities[c])
        for c, items in order
    )


def _repeats(policy: Policy, updates: Updates, clusters: Clusters, previous: Sequence[Sequence[str]]) -> bool:
    """Whether these clusters break only together with those of the round before: the same members, none too wide.

    Where the leaver's odds over all rounds are limited too, every round adds to them, and may break alone.
    """
    if not previous or policy.odds is not None or max(clusters.spreads) > clusters.delta:
        return False
    now = {frozenset(updates.clients[item] for item in members) for members in clusters.members}
    return now == {frozenset(members) for members in previous if members}


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
