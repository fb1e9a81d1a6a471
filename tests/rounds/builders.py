"""Small federations to test on: policies, layouts, updates and ledgers, each with one thing changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import settings
from torch import Tensor

from disavow.data import client_ids
from disavow.domain import Layout, Policy, TakingPart, TensorSpec, size_class
from disavow.ledger import Ledger
from disavow.rounds.broadcast import Broadcast, broadcast
from disavow.rounds.clustering.fixed import position_by_seed, settled
from disavow.rounds.clustering.geometry import ExactGeometry
from disavow.rounds.options import RoundOptions
from disavow.rounds.participation import SecretOrder
from disavow.rounds.randomness import Secrets
from disavow.rounds.vectors import Updates

PROPERTY = settings(deadline=None, derandomize=True, max_examples=100, print_blob=False)
"""How property tests are run: the same examples each time, and never judged by the clock."""

FEW = settings(PROPERTY, max_examples=3)
"""For properties that build a ledger for each example."""

Floats32 = npt.NDArray[np.float32]

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)

POLICY = Policy(
    k=3,
    x=2,
    delta=None,
    clustering="mdav",
    sticky=True,
    metric="l2",
    noise="paper",
    distribution="gaussian",
    sigma=0.02,
    clip=None,
    tau=None,
    draws="seeded",
)

OPTIONS = RoundOptions(seed=7, secrets=Secrets(7), clock=lambda: MOMENT)


class ClientSecretsOf:
    """A secret for each client, made from one: what a keyring would give."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def of(self, client: str) -> bytes:
        return hashlib.sha256(self.secret + client.encode()).digest()


def order_of(secret: bytes) -> SecretOrder:
    return SecretOrder(ClientSecretsOf(secret), secret)  # type: ignore[arg-type]


FRESH = replace(OPTIONS, secrets=Secrets(), participation=order_of(bytes(32)))


def layout_of_size(size: int) -> Layout:
    """A model of one tensor."""
    return Layout((TensorSpec("weight", (size,)),))


def updates_of(vectors: Tensor, samples: Sequence[int] | None = None, clients: Sequence[str] = ()) -> Updates:
    """One update a row; ids in row order, one sample each, unless given."""
    count = len(vectors)
    ids = tuple(clients) or client_ids(count)
    return Updates(ids, tuple(samples) if samples is not None else (1,) * count, vectors.float())


def gaussian(count: int, size: int, *, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Rows of Gaussian numbers; the same on every call."""
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed)) * scale


def permuted(updates: Updates, order: Sequence[int]) -> Updates:
    """The same updates, arrived in another order."""
    return Updates(
        tuple(updates.clients[i] for i in order),
        tuple(updates.samples[i] for i in order),
        updates.vectors[torch.tensor(order)],
    )


def ledger_of(
    directory: Path, clients: Iterable[str], layout: Layout, policy: Policy, initial: Tensor | None = None
) -> Ledger:
    """A new run whose first model is all zeros, unless given."""
    vector = initial.numpy() if initial is not None else np.zeros(layout.size, dtype=np.float32)
    return Ledger.create(
        directory,
        policy=policy,
        layout=layout,
        initial=vector,
        clients=clients,
        config="",
        created_by="tests",
        at=MOMENT,
    )


def all_anchored(updates: Updates, policy: Policy, seed: int) -> TakingPart | None:
    """Fixed clusters settled over the clients of these updates, where the policy has such; all take part."""
    if policy.clustering != "fixed":
        return None
    anchors = settled(updates.clients, policy.k, position_by_seed(seed), Secrets(seed).stream(0, 1, "borders"))
    classes = {client: size_class(count) for client, count in zip(updates.clients, updates.samples, strict=True)}
    return TakingPart(anchors.counted(classes), range(len(anchors.clusters)))


def opened(ledger: Ledger) -> Broadcast:
    """The broadcast that opens the next round."""
    return broadcast(ledger, MOMENT)


def direct_distances(vectors: Tensor) -> Tensor:
    """All L2 distances by subtraction in float64: slow, and beyond doubt."""
    wide = vectors.double()
    return torch.stack([(wide - row).norm(dim=1) for row in wide])


def line_geometry(positions: Sequence[float]) -> ExactGeometry:
    """Participants at places on a line."""
    points = torch.tensor(positions, dtype=torch.float64)
    return ExactGeometry((points[:, None] - points).square())


def groups_of(clusters: Iterable[Iterable[int]]) -> set[frozenset[int]]:
    """A partition without any order."""
    return {frozenset(group) for group in clusters}
