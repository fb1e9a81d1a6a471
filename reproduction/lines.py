"""What one run of an experiment came to, as one line of a results file.

`read` and `append` are safe against crashes and against several writers: `reproduction.records` says how.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator
from pydantic.dataclasses import dataclass

from reproduction import records
from reproduction.records import CHECKED, OnNote

FORMAT: Literal["disavow-result/1"] = "disavow-result/1"

PaperRow = Literal[
    "MNIST-iid",
    "MNIST-noniid",
    "FMNIST-iid",
    "FMNIST-noniid",
    "CIFAR10-iid",
    "CIFAR10-noniid",
    "CelebA-iid",
    "CelebA-noniid",
]
"""The rows of the paper's tables."""
SkewRow = Literal[
    "MNIST-dirichlet0.3",
    "MNIST-dirichlet0.1",
    "MNIST-labels2",
    "CIFAR10-dirichlet0.3",
    "CIFAR10-dirichlet0.1",
    "CIFAR10-labels2",
]
"""Rows whose clients hold different labels, which the paper does not have."""
RowName = Literal[PaperRow, SkewRow]
Network = Literal["lenet5", "resnet-mini", "convnet"]
Method = Literal[
    "fedavg",
    "fedavg-sampled",
    "federaser",
    "federaser-1",
    "federaser-plain",
    "published",
    "sticky",
    "sticky-3",
    "retention",
]
PLAIN: frozenset[Method] = frozenset({"fedavg", "federaser", "federaser-1", "federaser-plain"})
"""Methods over plain federated averaging: they have neither k nor x, and both stand as 1."""
UNCLUSTERED: frozenset[Method] = PLAIN | {"fedavg-sampled"}
"""Methods without clusters: x stands as 1. `fedavg-sampled` has a k: 1/k of the clients take part in a round."""

EDITION = 2
"""Of the grids. It is raised when the code changes what runs come to; tables show lines of one edition alone.
2: weights by size classes, the criterion within the drawn cluster, filled sticky clusters."""

Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]


def named(row: str) -> str:
    """What a row is called: the paper's scripts call non-iid what are clients of unequal sizes and equal labels.

    >>> named("MNIST-noniid"), named("MNIST-iid"), named("CIFAR10-dirichlet0.1"), named("MNIST-labels2")
    ('MNIST, unequal sizes', 'MNIST, iid', 'CIFAR10, Dirichlet 0.1', 'MNIST, two labels')
    """
    data, partition = row.split("-")
    said = {"noniid": "unequal sizes", "labels2": "two labels"}
    return f"{data}, {said.get(partition, partition.replace('dirichlet', 'Dirichlet '))}"


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Versions:
    """What the run was made with."""

    disavow: str
    python: str
    torch: str
    numpy: str


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Round:
    """An executed round, standing or superseded by now."""

    number: Number
    attempt: Number
    """Which of the executed rounds of that number this is."""
    kind: Literal["trained", "retrained", "rebuilt"]
    accuracy: Share
    """Of the model after the round, on the test data."""
    seconds: Amount
    client_epochs: Amount
    shared: bool
    """Its local training was taken from an equal run; its seconds are that run's."""


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Request:
    """An erasure request, and what honouring it took."""

    after_round: Count
    verdict: Literal["deniable", "rollback", "never present"]
    to_round: Number | None
    """The first round that was superseded."""
    rounds: Count
    """Rounds that were retrained or rebuilt."""
    client_epochs: Amount
    seconds: Amount

    @model_validator(mode="after")
    def _only_a_rollback_leads_to_a_round(self) -> Self:
        if (self.verdict == "rollback") != (self.to_round is not None):
            raise ValueError("a rollback has a round it leads to, and no other verdict has one")
        return self


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Disk:
    """Bytes on disk at the end of the run, measured."""

    models: Count
    updates: Count
    database: Count
    other: Count
    total: Count

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.total != self.models + self.updates + self.database + self.other:
            raise ValueError("total is not the sum of models, updates, database and other")
        return self


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class ClusterWidth:
    """How alike the members of a cluster are; means over the trained rounds."""

    over_update: Amount
    """Mean spread of the clusters, as a multiple of the median norm of an update."""
    over_random: Amount
    """The same, as a multiple of the mean spread of random groups of the same sizes: 1 is no more alike."""
    pairs_within: Share
    """Of all pairs of a round's clients, those that lie within the largest spread of a cluster."""


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Hidden:
    """log10 γ composed over the standing rounds, of clients who are still there; see `disavow.proof.bounds`."""

    median_composed: Amount
    """The median over clients."""
    worst_composed: Amount
    """Of the client for which it is largest."""


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class NeededDelta:
    """The least Δ at which no cluster that held a client was too wide for it to leave without a rollback.

    Over the standing rounds, of the clients who are still there at the end. Each is sorted: the least, the
    greatest, and the quantiles at every twentieth of the clients between them. It is a matter of the clusters that
    this run had: with a Δ of its own a run that keeps clusters dissolves those that become wider.
    """

    relative: tuple[Amount, ...]
    """As a multiple of each round's median update norm."""
    fixed: tuple[Amount, ...]
    """The same distance in all rounds."""


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Line:
    """A run that was finished: what was asked, and every round and request of it.

    `key` is the SHA-256 of all that decides the result: two lines of one key are the same run made twice.
    """

    format: Literal["disavow-result/1"] = FORMAT
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    row: RowName
    network: Network
    method: Method
    """`fedavg-sampled`: a random 1/k of the clients a round, no clusters; `federaser-1`: with interval 1;
    `federaser-plain`: that, with uncompressed updates; `published`: the paper's, fresh clusters each round;
    `sticky`: ours, sticky clusters (edition 1: and the criterion `neighbourhood`); `sticky-3`: that, with three
    representatives a cluster; `retention`: ours, with a budget of bytes."""
    k: Number
    x: Number
    seed: Count
    quick: bool
    settings: dict[str, JsonValue]
    versions: Versions
    device: str
    commit: str
    rounds: tuple[Round, ...]
    """In the order of execution."""
    requests: tuple[Request, ...]
    accuracy: Share
    """Of the last standing round."""
    seconds: Amount
    client_epochs: Amount
    bytes: Disk
    distance_to_fedavg: tuple[Amount, ...] | None
    """L2 distance of the global model to FedAvg's of the same row, network and seed, after each standing round."""
    averaged: tuple[Share, ...] | None = None
    """Accuracy of the mean of the newest models, as of each of the last standing rounds: see `quantities`. None: it
    was not measured."""
    edition: Number = 1
    """Of the grid; see `EDITION`."""
    variant: str = ""
    """The grid's name of settings that were changed for this run; see `grid`."""
    width: ClusterWidth | None = None
    """None without clusters, and in lines of edition 1."""
    hidden: Hidden | None = None
    """None without noise or clusters, and in lines of edition 1."""
    needed_delta: NeededDelta | None = None
    """None without clusters, and in lines from before it was measured."""

    @model_validator(mode="after")
    def _baselines_have_no_clusters(self) -> Self:
        if self.method in PLAIN and self.k != 1:
            raise ValueError(f"{self.method} has k = 1")
        if self.method in UNCLUSTERED and self.x != 1:
            raise ValueError(f"{self.method} has x = 1")
        if self.x > self.k:
            raise ValueError(f"x = {self.x} is more than k = {self.k}")
        return self


def read(path: Path, on_note: OnNote = lambda note: None) -> list[Line]:
    """Every line of a results file; none where there is no file. A torn last line is passed over, with a note."""
    return records.read(path, Line, on_note)


def append(path: Path, line: Line, on_note: OnNote = lambda note: None) -> None:
    """Add a line, whole and on disk, or not at all. A torn last line is taken out first, with a note."""
    records.append(path, line, on_note)


def latest(lines: Iterable[Line]) -> list[Line]:
    """One line for each key, the last one: a run that was made twice counts once."""
    return list({line.key: line for line in lines}.values())
