"""A round: its clusters, their slots and who fills them; a rebuilt round; how well a model does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Member:
    """Who fills a slot, and the SHA-256 digest of the update it returned."""

    client: str
    samples: int
    update_digest: bytes


@dataclass(frozen=True)
class Slot:
    """One place in a cluster. `member` is None once its client has been withdrawn."""

    member: Member | None


@dataclass(frozen=True)
class Cluster:
    """At least k clients of one round. `weight` is its members' share of the data, by size classes (`size_class`).

    Its representatives are drawn among `places`: as many as it has slots, but with fixed clusters also those that
    clients who left before left empty. Then slots may be fewer than k, and `weight` is what was settled.
    `spread` is the largest L2 distance between the updates of two members, whatever the metric that grouped
    them (for models with batch norm: see `clustering.spread.spreads`).
    """

    weight: float
    spread: float
    slots: tuple[Slot, ...]
    places: int = 0

    def __post_init__(self) -> None:
        if not self.places:
            object.__setattr__(self, "places", len(self.slots))

    @property
    def clients(self) -> tuple[str, ...]:
        """The ids of those still in, in slot order."""
        return tuple(slot.member.client for slot in self.slots if slot.member is not None)


@dataclass(frozen=True)
class Round:
    """One broadcast, local training, clustering, choice, perturbation, aggregation and record.

    `before` and `after` are the digests of the model broadcast in it and of the model it produced. Slots are
    numbered through the clusters, from 0. `update_norm` is the median L2 norm of the updates, `pairs_within` the
    share of all pairs of them that lie within Δ of each other. Who was drawn is in none of this: it is never
    stored.
    """

    number: int
    attempt: int
    before: str
    after: str
    delta: float
    update_norm: float
    pairs_within: float
    clusters: tuple[Cluster, ...]
    recorded_at: datetime

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots of the round, by number."""
        return tuple(slot for cluster in self.clusters for slot in cluster.slots)


@dataclass(frozen=True)
class Rebuilt:
    """A round rebuilt approximately after a rollback: survivors' contributions, averaged; no clusters, no noise.

    `source` is the ledger's row of the round whose kept updates it was made from, `epochs` what each participant
    trained for it. The digests of its slots are those of what was contributed.
    """

    number: int
    attempt: int
    before: str
    after: str
    mechanism: str
    source: int
    epochs: int
    slots: tuple[Slot, ...]
    recorded_at: datetime


@dataclass(frozen=True)
class Evaluation:
    """How well a model does on held-out data. The loss is NaN where it was not finite."""

    accuracy: float
    loss: float
