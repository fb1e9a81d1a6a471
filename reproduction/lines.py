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

RowName = Literal[
    "MNIST-iid",
    "MNIST-noniid",
    "FMNIST-iid",
    "FMNIST-noniid",
    "CIFAR10-iid",
    "CIFAR10-noniid",
    "CelebA-iid",
    "CelebA-noniid",
]
Network = Literal["lenet5", "resnet-mini", "convnet"]
Method = Literal["fedavg", "federaser", "federaser-1", "federaser-plain", "published", "sticky", "retention"]
PLAIN: frozenset[Method] = frozenset({"fedavg", "federaser", "federaser-1", "federaser-plain"})
"""Methods over plain federated averaging: they have neither k nor x, and both stand as 1."""

Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]


def named(row: str) -> str:
    """What a row is called: the paper's scripts call non-iid what are clients of unequal sizes and equal labels.

    >>> named("MNIST-noniid"), named("MNIST-iid")
    ('MNIST, unequal sizes', 'MNIST, iid')
    """
    data, spread = row.split("-")
    return f"{data}, {'unequal sizes' if spread == 'noniid' else spread}"


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
class Line:
    """A run that was finished: what was asked, and every round and request of it.

    `key` is the SHA-256 of all that decides the result: two lines of one key are the same run made twice.
    """

    format: Literal["disavow-result/1"] = FORMAT
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    row: RowName
    network: Network
    method: Method
    """`federaser-1`: with interval 1; `federaser-plain`: that, with uncompressed updates; `published`: the paper's,
    fresh clusters each round; `sticky`: ours, sticky clusters (older lines: and the criterion `neighbourhood`);
    `retention`: ours, with a budget of bytes."""
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

    @model_validator(mode="after")
    def _baselines_have_no_clusters(self) -> Self:
        if self.method in PLAIN and (self.k, self.x) != (1, 1):
            raise ValueError(f"{self.method} has k = 1 and x = 1")
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
