"""The nouns of disavow: frozen, comparable, free of torch, numpy and databases.

A *client* is known by a stable string id, never by its position in a list. A *round* holds *clusters*, a
cluster holds *slots*, and a slot is filled by one *member*. When a client leaves, its slot stays, nameless.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property

VARIANCE_SUFFIX = "running_var"
"""Tensors of this name are variances: noise must not push them below zero."""

VARIANCE_FLOOR = 1e-5
"""Running variances stay at or above this after noise, or batch norm would take the root of a negative."""


@dataclass(frozen=True)
class TensorSpec:
    """One named tensor of a model."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers the tensor holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """How a model's tensors lie in one flat float32 vector, in this order.

    >>> layout = Layout((TensorSpec("weight", (2, 3)), TensorSpec("bias", (2,))))
    >>> layout.size, [(s.name, a, b) for s, a, b in layout.spans()]
    (8, [('weight', 0, 6), ('bias', 6, 8)])
    """

    tensors: tuple[TensorSpec, ...]

    @cached_property
    def size(self) -> int:
        """The length of the vector."""
        return sum(spec.size for spec in self.tensors)

    def spans(self) -> Iterator[tuple[TensorSpec, int, int]]:
        """Each tensor with the start and the end of its stretch of the vector."""
        start = 0
        for spec in self.tensors:
            yield spec, start, start + spec.size
            start += spec.size

    def variances(self) -> Iterator[tuple[int, int]]:
        """The stretches that hold batch-norm running variances."""
        for spec, start, end in self.spans():
            if spec.name.rpartition(".")[2] == VARIANCE_SUFFIX:
                yield start, end

    def to_json(self) -> str:
        """The layout as JSON, as the ledger stores it."""
        return json.dumps([[spec.name, list(spec.shape)] for spec in self.tensors])

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Read back what `to_json` wrote."""
        return cls(tuple(TensorSpec(name, tuple(shape)) for name, shape in json.loads(text)))


@dataclass(frozen=True)
class Client:
    """A participant: a stable id, and how many training samples it holds."""

    id: str
    samples: int


@dataclass(frozen=True)
class Policy:
    """What the server promises before the first round. Part of the ledger, never of a single round.

    `delta` is a fixed distance, or None for *adaptive*: each round's largest spread.
    """

    k: int
    x: int
    criterion: str
    delta: float | None
    clustering: str
    sticky: bool
    metric: str
    noise: str
    distribution: str
    sigma: float
    clip: float | None
    tau: float | None
    draws: str


@dataclass(frozen=True)
class Member:
    """Who fills a slot, and the SHA-256 digest of the update it returned."""

    client: str
    samples: int
    update_digest: bytes


@dataclass(frozen=True)
class Slot:
    """One place in a cluster. `member` is None once its client has been withdrawn.

    `neighbours` are the numbers of the slots of the same round whose updates lay within Δ of this one's:
    those of the same cluster first, then the nearest, at most 2k. A slot that is not listed is no neighbour.
    """

    member: Member | None
    neighbours: tuple[int, ...]


@dataclass(frozen=True)
class Cluster:
    """At least k clients of one round. `weight` is the sum of its members' data shares.

    `spread` is the largest L2 distance between the updates of two members, whatever the metric that grouped
    them.
    """

    weight: float
    spread: float
    slots: tuple[Slot, ...]

    @property
    def clients(self) -> tuple[str, ...]:
        """The ids of those still in, in slot order."""
        return tuple(slot.member.client for slot in self.slots if slot.member is not None)


@dataclass(frozen=True)
class Round:
    """One broadcast, local training, clustering, choice, perturbation, aggregation and record.

    `before` and `after` are the digests of the model broadcast in it and of the model it produced. Slots are
    numbered through the clusters, from 0. The representative of a cluster is in none of this: it is never
    stored.
    """

    number: int
    attempt: int
    before: str
    after: str
    delta: float
    clusters: tuple[Cluster, ...]
    recorded_at: datetime

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots of the round, by number."""
        return tuple(slot for cluster in self.clusters for slot in cluster.slots)

    @property
    def largest_spread(self) -> float:
        """The widest cluster's spread."""
        return max(cluster.spread for cluster in self.clusters)


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


class VerdictKind(StrEnum):
    """What a judgement can come to."""

    NEVER_PRESENT = "never present"
    DENIABLE = "deniable"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class Verdict:
    """A judgement over standing rounds. `round` is the first broken round of a rollback.

    `back_to` is the round to which it goes back, where that is an earlier one: the model broadcast in the broken
    round may not be kept.

    >>> str(Verdict(VerdictKind.DENIABLE)), str(Verdict(VerdictKind.ROLLBACK, round=7))
    ('deniable', 'rollback to round 7')
    >>> str(Verdict(VerdictKind.ROLLBACK, round=7, back_to=5))
    'rollback to round 5'
    """

    kind: VerdictKind
    round: int | None = None
    back_to: int | None = None

    @property
    def undoes(self) -> int | None:
        """The first round that is undone, if any is."""
        return self.back_to or self.round

    @property
    def in_full(self) -> str:
        """The verdict with what made it go back further than it had to.

        >>> print(Verdict(VerdictKind.ROLLBACK, round=2, back_to=1).in_full)
        rollback to round 1 (broken at round 2; it goes back to the initial model: 1 more round is undone)
        """
        if self.round is None or self.back_to is None:
            return str(self)
        more = self.round - self.back_to
        told = f"{more} more rounds are" if more > 1 else "1 more round is"
        return (
            f"{self} (broken at round {self.round}; it goes back to {model_name(self.back_to - 1)}: {told} undone)"
        )

    def __str__(self) -> str:
        return self.kind.value if self.undoes is None else f"{self.kind.value} to round {self.undoes}"


def model_name(number: int) -> str:
    """What people call the model that a round produced; round 0 stands for the initial one."""
    return f"the model of round {number}" if number else "the initial model"


@dataclass(frozen=True)
class Cost:
    """What rebuilding takes: rounds, client-epochs, bytes exchanged with clients, seconds."""

    rounds: int = 0
    client_epochs: int = 0
    exchanged_bytes: int = 0
    seconds: float = 0.0


class RequestState(StrEnum):
    """How far a request has come. Every step is journalled; a crash resumes at the step it interrupted."""

    WAITING = "waiting"
    REBUILDING = "rebuilding"
    DELETING = "deleting"
    PURGING = "purging"
    ANSWERED = "answered"


@dataclass(frozen=True)
class ErasureRequest:
    """A client's wish to be forgotten, and what became of it.

    `client` is None once the id has been deleted. `remark` says what the verdict alone does not, such as why
    a model could not be retrained. `approximate`: rounds were rebuilt for it by other means than retraining.
    """

    number: int
    client: str | None
    asked_at: datetime
    state: RequestState
    verdict: Verdict | None = None
    cost: Cost | None = None
    answered_at: datetime | None = None
    remark: str = ""
    approximate: bool = False


@dataclass(frozen=True)
class SlotEvidence:
    """One slot of a cluster as the judge sees it, after the withdrawal.

    `surviving_neighbours` counts the participants still in whose updates lay within Δ of this slot's, itself
    left out; None where the criterion does not ask.
    """

    survives: bool
    surviving_neighbours: int | None = None


@dataclass(frozen=True)
class RebuiltEvidence:
    """A standing rebuilt round that a leaver contributed to. It has no clusters, so nobody is deniable in it."""

    round: int


@dataclass(frozen=True)
class ClusterEvidence:
    """A cluster of a standing round that a withdrawal touches."""

    round: int
    delta: float
    spread: float
    slots: tuple[SlotEvidence, ...]

    @property
    def survivors(self) -> int:
        """How many of its members are still in."""
        return sum(slot.survives for slot in self.slots)
