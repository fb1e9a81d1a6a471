"""⑥ Record: who was in which cluster, how alike they were, and the model; never who was drawn."""

from __future__ import annotations

import hashlib
from datetime import datetime

from disavow.domain import Cluster, Member, Round, Slot
from disavow.federation.broadcast import Broadcast
from disavow.federation.cluster import Clusters
from disavow.federation.randomness import Secrets
from disavow.federation.vectors import Model, Updates
from disavow.ledger import Ledger


def record(
    ledger: Ledger,
    broadcast: Broadcast,
    updates: Updates,
    clusters: Clusters,
    after: Model,
    *,
    secrets: Secrets,
    at: datetime,
) -> Round:
    """Store the round in one transaction. `updates` are those the clients returned, before any clipping.

    Clusters and slots are numbered in a shuffled order, so that a number says nothing about who is behind it
    and cannot be followed from round to round.
    """
    stream = secrets.stream(broadcast.number, broadcast.attempt, "slots")
    order = [
        (c, [clusters.members[c][i] for i in stream.permutation(len(clusters.members[c]))])
        for c in stream.permutation(len(clusters.members)).tolist()
    ]
    slot_of = {item: slot for slot, item in enumerate(item for _, items in order for item in items)}

    def slot(item: int) -> Slot:
        digest = hashlib.sha256(updates.vectors[item].cpu().numpy().astype("<f4").data).digest()
        member = Member(updates.clients[item], updates.samples[item], digest)
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
    )
