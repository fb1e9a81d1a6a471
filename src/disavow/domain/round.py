"""A round: its clusters, their slots and who fills them; a rebuilt round; how well a model does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Member:
    """Who fills a slot, and the SHA-256 digest of the update it returned.

    Attributes:
        client: The client's id.
        samples: How many samples it trained on.
        update_digest: Of its update as float32 numbers.
    """

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

    Its representatives are drawn among `capacity` places: one for each slot, and in fixed clusters also those that
    clients who left before left empty. Then slots may be fewer than k, and `weight` is what was settled.
    `spread` is the largest L2 distance between the updates of two members, whatever the metric that grouped
    them (for models with batch norm: see `clustering.spread.spreads`).

    Attributes:
        weight: Share of the data, from 0 to 1.
        spread: An L2 distance.
        slots: One for each member.
        capacity: How many places representatives are drawn among.
    """

    weight: float
    spread: float
    slots: tuple[Slot, ...]
    capacity: int = 0

    def __post_init__(self) -> None:
        if not self.capacity:
            object.__setattr__(self, "capacity", len(self.slots))

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

    Attributes:
        number: From 1 on.
        attempt: Which try at a round of this number it is, from 1 on.
        delta: Δ of this round.
        clusters: Its clusters, with their slots.
        recorded_at: When it was recorded.
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


@dataclass(frozen=True, init=False)
class Evaluation:
    """What a model scored on held-out data, metric by metric, in the order in which they were measured.

    Attributes:
        metrics: Each metric's value, by its name.

    >>> Evaluation(auroc=0.97, loss=0.1).metrics
    {'auroc': 0.97, 'loss': 0.1}
    """

    metrics: dict[str, float]

    def __init__(self, /, accuracy: float | None = None, loss: float | None = None, **others: float) -> None:
        """Keep what was measured.

        Args:
            accuracy: The share of right answers, where that was measured.
            loss: The mean loss, where that was measured.
            others: Other metrics by name.

        """
        given = {"accuracy": accuracy, **others, "loss": loss}
        object.__setattr__(self, "metrics", {name: value for name, value in given.items() if value is not None})

    @property
    def accuracy(self) -> float:
        """The share of right answers; NaN where it was not measured."""
        return self.metrics.get("accuracy", math.nan)

    @property
    def loss(self) -> float:
        """The mean loss; NaN where it was not measured or not finite."""
        return self.metrics.get("loss", math.nan)
