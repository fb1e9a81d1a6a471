"""A run to erase from through `Federation`, what it holds, and an engine of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from disavow.data import FederatedData
from disavow.domain import Evaluation, RequestState
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.results import Answer, Prospect
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model, Updates

SETTINGS: dict[str, Any] = {
    "seed": 5,
    "rounds": 2,
    "draws": "seeded",
    "data": {"name": "mnist", "clients": 8},
    "model": {"name": "convnet"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3},
    "deniability": {"x": 2},
}
"""Two sticky clusters: anybody is deniable, and two of the smaller one go back to round 1."""


PASSPHRASE = "correct horse"


def erase(
    run: Path,
    *clients: str,
    passphrase: str = PASSPHRASE,
    keys: Path | None = None,
    openings: Path | None = None,
    **more: Any,
) -> Answer:
    keys = keys or run.with_name("keys")
    with Federation.open(run, keys=keys, ask=lambda path: passphrase, openings=openings) as federation:
        return federation.erase(clients, **more)


def foreseen(run: Path, *clients: str, **more: Any) -> Prospect:
    with Federation.open(run, keys=run.with_name("keys")) as federation:
        return federation.forecast(clients, **more)


def states(run: Path) -> list[RequestState]:
    with Ledger.open(run) as ledger:
        return [request.state for request in ledger.requests()]


def models(run: Path) -> list[tuple[int, int, str]]:
    with Ledger.open(run) as ledger:
        return [(s.number, s.attempt, s.after) for s in ledger.summaries() if s.standing]


def clusters(run: Path) -> list[list[str]]:
    """Who is with whom, the smaller cluster first."""
    with Ledger.open(run) as ledger:
        return sorted((sorted(group) for group in ledger.membership(1)), key=len)


def pair(run: Path) -> list[str]:
    """As many of one cluster as it takes to leave too few of it."""
    smallest = clusters(run)[0]
    return smallest[: len(smallest) - 1]


# -- what trained the run ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReversedEngine:
    """An engine that the settings know nothing of: it goes the other way."""

    inner: Engine

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = self.inner.train(model, clients, round_number, epochs=epochs)
        return replace(updates, vectors=-updates.vectors)

    def evaluate(self, model: Model) -> Evaluation | None:
        return self.inner.evaluate(model)

    def close(self) -> None:
        self.inner.close()


def other_labels(data: FederatedData) -> FederatedData:
    return replace(data, train=replace(data.train, labels=data.train.labels.flip(0)))


def other_ids(data: FederatedData) -> FederatedData:
    return replace(data, parts={name.replace("client", "silo"): part for name, part in data.parts.items()})


def other_parts(data: FederatedData) -> FederatedData:
    names = list(data.parts)
    return replace(data, parts=dict(zip(names, [data.parts[name] for name in reversed(names)], strict=True)))


def other_shape(data: FederatedData) -> FederatedData:
    return replace(data, train=replace(data.train, images=data.train.images[:, :, :, :-4]))
