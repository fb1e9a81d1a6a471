"""Small runs to audit, and what is asked of them again and again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from disavow import config
from disavow.audit.subject import Subject, subject_of
from disavow.domain import Evaluation
from disavow.engines.factory import trainer_for
from disavow.engines.trainer import Ask, Trainer
from disavow.engines.workload import Workload
from disavow.federation import Federation
from disavow.ledger.keys import default_folder
from disavow.proof.keys import generate
from disavow.rounds.vectors import Model, Updates

CLIENT = "client-03"

TINY: dict[str, Any] = {
    "seed": 7,
    "rounds": 3,
    "draws": "seeded",
    "data": {"clients": 6, "test_fraction": 0.8},
    "model": {"name": "lenet5"},
    "training": {"epochs": 1, "batch_size": 32},
    "clustering": {"k": 2},
    "deniability": {"x": 2},
}
"""Clusters of two or three with x = 2: whoever leaves one of two breaks it. About 60 records a client."""

DENIABLE: dict[str, Any] = {"deniability": {"x": 1}}
"""One survivor is enough: the first leaver is deniable."""


def merged(*changes: dict[str, Any]) -> dict[str, Any]:
    """`TINY` with tables merged into it."""
    values = dict(TINY)
    for change in changes:
        for name, value in change.items():
            values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return values


def keys_of(directory: Path) -> Path:
    """The operator's keys of a run that was made here: beside a signed one, else those that all tests share."""
    beside = directory.with_name("keys")
    return beside if beside.exists() else default_folder()


def make_run(directory: Path, *changes: dict[str, Any], signed: bool = False) -> Path:
    """A complete run; a signed one has its keys beside it."""
    if signed:
        generate(
            directory.with_name("keys"), name="operator", passphrase=None, at="2024-05-06T07:08:09.000000+00:00"
        )
    settings = config.from_values(merged(*changes), source="tests")
    with Federation.create(directory, settings, keys=keys_of(directory)) as run:
        run.train()
    return directory


def leave(directory: Path, *clients: str) -> None:
    """Let clients leave a run, for good."""
    with Federation.open(directory, keys=keys_of(directory), write=True) as run:
        run.ledger.place_requests(clients, at=run.options.clock())
        run.answer()


def subject_in(directory: Path, client: str = CLIENT) -> Subject:
    """A client of a run, ready to be audited."""
    return subject_of(directory, client, keys=keys_of(directory))


def trainer_of(subject: Subject) -> Trainer:
    """What an audit trains worlds with."""
    return trainer_for(subject.workload(), subject.settings.engine)


def hashes_of(directory: Path) -> dict[str, str]:
    """Every file and folder below a directory, with the digest of its bytes."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(directory.rglob("*"))
    }


class Forbidden:
    """A trainer for whoever must not train."""

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        raise AssertionError(f"trained: {[(ask.clients, ask.round_number) for ask in asks]}")

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        raise AssertionError("evaluated")

    def close(self) -> None:
        """See `Trainer`."""


class Counting:
    """Another trainer, and how many clients it was asked to train."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.clients = 0

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        self.clients += sum(len(ask.clients) for ask in asks)
        return self._trainer.train(asks)

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        return self._trainer.evaluate(workload, models)

    def close(self) -> None:
        self._trainer.close()


class Interrupted(Exception):
    """What a test raises in the middle of something."""


def interrupt_after(rounds: int) -> Callable[[int], None]:
    """An `on_round` that lets so many rounds of worlds pass, and no more."""
    seen = 0

    def on_round(more: int) -> None:
        nonlocal seen
        seen += more
        if seen > rounds:
            raise Interrupted

    return on_round
