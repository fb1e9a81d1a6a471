"""A leaver who planted a backdoor: how well its trigger still works after each kind of answer.

Everything that the leaver holds carries a trigger and the label that it stands for (`compare.measures.backdoor`).
Three federations of the same data meet it: plain federated averaging; ours with clusters that can spare a member,
so that the answer is deniable and the model stays; ours with clusters that cannot, where the answer is a rollback.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from disavow import config
from disavow.cli.compare import prepare
from disavow.compare.choice import Effort
from disavow.compare.measures.backdoor import success, trigger_for
from disavow.compare.measures.predictions import predictions
from disavow.compare.method import METHODS
from disavow.compare.problem import Problem
from disavow.compare.runner import BACKDOOR, ComparisonRunner
from disavow.compare.scheme import scheme_of
from disavow.compare.trainer import trainer_of
from disavow.config import Settings
from disavow.errors import DisavowError, RunInUse
from disavow.ledger.work_folders import hold_work_folder
from disavow.rounds.threads import one_thread
from reproduction import provenance, records
from reproduction.compare import train_settings
from reproduction.lines import Amount, Count, Network, PaperRow, Share, Versions
from reproduction.records import CHECKED, OnNote

FORMAT: Literal["disavow-backdoor/1"] = "disavow-backdoor/1"

LEAVER = "client-01"

CASES: dict[str, dict[str, Any]] = {
    "plain": {"clustering": {"k": 1}, "deniability": {"x": 1}, "noise": {"mode": "none"}},
    "deniable": {"clustering": {"k": 4}, "deniability": {"x": 2}, "noise": {"sigma": 0.005}},
    "rollback": {"clustering": {"k": 4}, "deniability": {"x": 4}, "noise": {"sigma": 0.005}},
}
"""The settings of each federation. With a multiple of four clients, no cluster has four left when one leaves."""

ANSWERS: dict[str, tuple[str, str]] = {
    "retrained from scratch": ("plain", "retrain-from-scratch"),
    "fedEraser": ("plain", "federaser"),
    "deniable, it stays": ("deniable", "ours"),
    "deniable, then purged": ("deniable", "ours-purged"),
    "rollback": ("rollback", "ours"),
}
"""What is answered: in which federation, and by which method of the comparison."""


@checked_dataclass(frozen=True, kw_only=True, config=CHECKED)
class BackdoorLine:
    """One leaver, one answer: success is the share of triggered test records that get the trigger's label."""

    format: Literal["disavow-backdoor/1"] = FORMAT
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    row: PaperRow
    network: Network
    answer: str
    """One of `ANSWERS`."""
    seed: Count
    quick: bool
    before: Share
    after: Share
    accuracy_before: Share
    accuracy_after: Share
    client_epochs: Amount
    remark: str
    """What the method says of this case, such as its verdict."""
    device: str
    commit: str
    versions: Versions


@dataclass(frozen=True)
class Study:
    """Which rows and networks, and how they are trained."""

    rows: tuple[tuple[PaperRow, str, Network], ...] = (
        ("MNIST-iid", "mnist", "lenet5"),
        ("CIFAR10-iid", "cifar10", "resnet-mini"),
    )
    clients: int = 20
    rounds: int = 25
    batch_size: int = 64
    learning_rate: float = 0.05
    seeds: tuple[int, ...] = (1, 2, 3)
    quick: bool = False

    def settings(self, data: str, network: str, case: str, seed: int, device: str) -> Settings:
        """Give the settings of a run."""
        return config.from_values(
            {
                "seed": seed,
                "rounds": self.rounds,
                "draws": "seeded",
                "data": {"name": data, "clients": self.clients},
                "model": {"name": network},
                "training": {"epochs": 3, "batch_size": self.batch_size, "learning_rate": self.learning_rate},
                "engine": {"device": device},
                **CASES[case],
            },
            source="the study of backdoors",
        )

    def points(self, *, device: str = "auto") -> list[BackdoorPoint]:
        """List every answer, those of one federation together."""
        return [
            BackdoorPoint(row, network, answer, seed, self.quick, self.settings(data, network, case, seed, device))
            for row, data, network in self.rows
            for seed in self.seeds
            for answer, (case, _) in ANSWERS.items()
        ]


QUICK = Study(
    rows=(("MNIST-iid", "digits", "lenet5"),), rounds=6, batch_size=8, learning_rate=0.1, seeds=(1,), quick=True
)
"""A small one for a CPU, on embedded digits."""


@dataclass(frozen=True)
class BackdoorPoint:
    """One answer of the study."""

    row: PaperRow
    network: Network
    answer: str
    seed: int
    quick: bool
    settings: Settings

    @property
    def key(self) -> str:
        """SHA-256 of what decides the result."""
        return self._digest(self.answer)

    @property
    def folder(self) -> str:
        """Name the folder of its federation, which other answers share."""
        return f"backdoor-{self._digest('')[:16]}"

    def _digest(self, answer: str) -> str:
        values = self.settings.model_dump(mode="json", exclude_defaults=True, exclude={"engine"})
        document = {"format": FORMAT, "answer": answer, "settings": values}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.row} {self.network}, {self.answer}, seed {self.seed}"


OnPoint = Callable[[BackdoorPoint, BackdoorLine], None]


def run(
    points: Sequence[BackdoorPoint],
    results: Path,
    workroom: Path,
    *,
    on_point: OnPoint = lambda point, line: None,
    on_note: OnNote = lambda note: None,
) -> None:
    """Make the lines that are missing. What another process is at is left to it.

    Args:
        points: All of them.
        results: The file of lines.
        workroom: Where runs and pieces are kept, to go on with.
        on_point: Hears of each line that is made.
        on_note: Hears what a person should know.

    """
    found = {line.key for line in read(results, on_note)}
    for point in points:
        if point.key in found:
            continue
        try:
            line = _line(point, workroom / point.folder)
        except RunInUse as error:
            on_note(f"{point} is left to others: {error}")
            continue
        records.append(results, line, on_note)
        on_point(point, line)


def read(path: Path, on_note: OnNote = lambda note: None) -> list[BackdoorLine]:
    """Read all lines; none where there is no file."""
    return records.read(path, BackdoorLine, on_note)


def _line(point: BackdoorPoint, folder: Path) -> BackdoorLine:
    """Train a federation with the backdoor, let the method answer, and measure both models."""
    train_settings(point.settings, folder / "run", folder / "keys")
    problem = prepare(folder / "run", LEAVER, keys=folder / "keys")
    with (
        hold_work_folder(folder / "pieces", "the study of backdoors"),
        closing(trainer_of(problem)) as trainer,
        one_thread(),
    ):
        method = METHODS[ANSWERS[point.answer][1]]
        runner = ComparisonRunner(problem, Effort(seeds=1, recompute=True), folder / "pieces", trainer)
        scheme = scheme_of(method.scheme, problem)
        runner.storing = {scheme} if method.stores == "updates" else set()
        before = runner.training(scheme, 0, BACKDOOR).served
        after = runner.forgotten(method, 0, BACKDOOR)
        planted = _with_backdoor(problem)
        return BackdoorLine(
            key=point.key,
            row=point.row,
            network=point.network,
            answer=point.answer,
            seed=point.seed,
            quick=point.quick,
            before=success(planted, before) or 0.0,
            after=success(planted, after.vector) or 0.0,
            accuracy_before=predictions(planted, before).accuracy or 0.0,
            accuracy_after=predictions(planted, after.vector).accuracy or 0.0,
            client_epochs=float(after.notes["client_epochs"]),
            remark=str(after.notes["remark"]),
            device=provenance.device(point.settings.engine),
            commit=provenance.commit(),
            versions=provenance.versions(),
        )


def _with_backdoor(problem: Problem) -> Problem:
    trigger = trigger_for(problem)
    if isinstance(trigger, str):
        raise DisavowError(f"no backdoor can be planted: {trigger}")
    return problem.with_backdoor(trigger)
