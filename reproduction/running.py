"""One run of a grid, from its settings to its line: a real run with a real ledger, requests and all."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from disavow.domain import ErasureRequest
from disavow.erasure.stream import place_from_stream
from disavow.errors import DisavowError
from disavow.federation import Callbacks, Federation
from disavow.ledger import RoundSummary
from disavow.ledger.models import mean_of
from disavow.rounds.training import train
from disavow.rounds.vectors import Model
from disavow.runs import Prepared
from reproduction import provenance
from reproduction.cluster_measures import WidthMeter, hidden, needed_delta
from reproduction.grid import Point
from reproduction.lines import UNCLUSTERED, Disk, Hidden, Line, NeededDelta, Request, Round
from reproduction.quantities import MEAN_OF, SETTLED
from reproduction.sharing import SharedEngine

Models = npt.NDArray[np.float32]
"""The model after each standing round, one row each."""

OnExecuted = Callable[[Round], None]


@dataclass(frozen=True, eq=False)
class Done:
    """A finished run: its line, and its models where others are to be measured against them."""

    line: Line
    models: Models | None


def run_point(
    point: Point,
    prepared: Prepared,
    engine: SharedEngine,
    workroom: Path,
    *,
    reference: Models | None = None,
    on_executed: OnExecuted = lambda round_: None,
) -> Done:
    """Make a run in a folder of its own in `workroom`, which is removed at the end.

    `reference` are FedAvg's models of the same row, network and seed; for the run of FedAvg itself they are
    returned. What an interrupted call left is removed first: a run is made as a whole.
    """
    directory = workroom / point.key[:16]
    shutil.rmtree(directory, ignore_errors=True)
    started = _Clock(engine).now()
    prepared = replace(prepared, engine=engine)
    with Federation.create(directory, point.settings, keys=workroom / "keys", prepared=prepared) as run:
        witness = _Witness(replace(run, openings=workroom / "openings"), engine, on_executed)
        witness.train()
        seconds = _Clock(engine).now() - started
        models = _standing_models(run) if point.method != "retention" else None
        averaged = None if models is None else _averaged(run, models)
        odds, needed = (None, None) if point.method in UNCLUSTERED else (hidden(run), needed_delta(run))
    fedavg = models if point.method == "fedavg" else None
    distances = _distances(models, reference if fedavg is None else fedavg)
    line = _line(
        point,
        witness,
        seconds=seconds,
        disk=measured(directory),
        distances=distances,
        averaged=averaged,
        odds=odds,
        needed=needed,
    )
    shutil.rmtree(directory)
    shutil.rmtree(workroom / "openings", ignore_errors=True)
    return Done(line, fedavg)


def _line(
    point: Point,
    witness: _Witness,
    *,
    seconds: float,
    disk: Disk,
    distances: tuple[float, ...] | None,
    averaged: tuple[float, ...] | None,
    odds: Hidden | None,
    needed: NeededDelta | None,
) -> Line:
    """What is kept of a run: where it comes from, what happened in it, and what it took."""
    return Line(
        key=point.key,
        row=point.row,
        network=point.network,
        method=point.method,
        k=point.k,
        x=point.x,
        seed=point.seed,
        quick=point.quick,
        settings=_settings_of(point),
        versions=provenance.versions(),
        device=provenance.device(point.settings.engine),
        commit=provenance.commit(),
        rounds=tuple(witness.rounds),
        requests=tuple(witness.requests),
        accuracy=witness.rounds[-1].accuracy,
        seconds=seconds,
        client_epochs=sum(each.client_epochs for each in witness.rounds),
        bytes=disk,
        distance_to_fedavg=distances,
        averaged=averaged,
        edition=point.edition,
        variant=point.variant,
        width=witness.width.mean,
        hidden=odds,
        needed_delta=needed,
    )


class _Clock:
    """Time as it would have gone by had this run trained everything itself."""

    def __init__(self, engine: SharedEngine) -> None:
        self._engine = engine

    def now(self) -> float:
        return time.perf_counter() + self._engine.saved_seconds


class _Witness:
    """Trains a run with its stream of requests, and writes down every round and every request."""

    def __init__(self, run: Federation, engine: SharedEngine, on_executed: OnExecuted) -> None:
        self.rounds: list[Round] = []
        self.requests: list[Request] = []
        self._run, self._engine, self._clock, self._on_executed = run, engine, _Clock(engine), on_executed
        self._erasing = False
        self.width = WidthMeter()
        self._mark()

    def train(self) -> None:
        """Until the rounds of the settings stand."""
        run = self._run
        train(
            run.ledger,
            run.engine,
            run.options,
            rounds=run.settings.rounds,
            on_round=self._executed,
            between_rounds=self._between_rounds,
        )

    def _mark(self) -> None:
        self._since, self._epochs, self._shared = self._clock.now(), self._engine.client_epochs, self._engine.shared

    def _executed(self, summary: RoundSummary) -> None:
        again: Literal["retrained", "rebuilt"] = "retrained" if self._run.mechanism.exact else "rebuilt"
        evaluation = summary.evaluation
        self.rounds.append(
            Round(
                number=summary.number,
                attempt=summary.attempt,
                kind=again if self._erasing else "trained",
                accuracy=evaluation.accuracy if evaluation else 0.0,
                seconds=self._clock.now() - self._since,
                client_epochs=float(self._engine.client_epochs - self._epochs),
                shared=self._engine.shared > self._shared,
            )
        )
        if not self._erasing:
            self.width.add(self._run, summary, self._engine.newest)
        self._on_executed(self.rounds[-1])
        self._mark()

    def _between_rounds(self) -> None:
        run = self._run
        newest = run.ledger.last_round
        place_from_stream(run.ledger, run.options, rate=run.settings.requests.rate)
        started, before = self._clock.now(), len(self.rounds)
        self._erasing = True
        answered = run.answer(Callbacks(self._executed))
        self._erasing = False
        self.requests.extend(
            _answer(request, newest, self.rounds[before:], self._clock.now() - started) for request in answered
        )
        self._mark()


def _answer(request: ErasureRequest, after: int, rebuilt: list[Round], seconds: float) -> Request:
    """What a request came to. The stream asks once between two rounds, so that all of it is this request's."""
    if request.verdict is None:
        raise DisavowError("a request was answered without a verdict; this is a defect of disavow")
    first = min((each.number for each in rebuilt), default=request.verdict.round)
    return Request(
        after_round=after,
        verdict=request.verdict.kind.value,
        to_round=None if request.verdict.round is None else first,
        rounds=len(rebuilt),
        client_epochs=sum(each.client_epochs for each in rebuilt),
        seconds=seconds,
    )


def _standing_models(run: Federation) -> Models:
    return np.stack([run.ledger.model_after(number) for number in range(1, run.settings.rounds + 1)])


def _averaged(run: Federation, models: Models) -> tuple[float, ...]:
    """How good the mean of the newest models is, as of each of the last rounds."""
    found = []
    for end in range(max(len(models) - SETTLED, 0) + 1, len(models) + 1):
        mean = mean_of(models[max(end - MEAN_OF, 0) : end])
        evaluation = run.engine.evaluate(Model(run.ledger.layout, torch.from_numpy(mean)))
        found.append(evaluation.accuracy if evaluation else 0.0)
    return tuple(found)


def _distances(models: Models | None, reference: Models | None) -> tuple[float, ...] | None:
    """L2, round by round, in float64; None where there is nothing to compare with."""
    if models is None or reference is None or models.shape != reference.shape:
        return None
    return tuple(
        float(np.linalg.norm(ours.astype(np.float64) - theirs))
        for ours, theirs in zip(models, reference, strict=True)
    )


def _settings_of(point: Point) -> dict[str, Any]:
    """The settings as they decide the result: without where this machine keeps its data."""
    values = point.settings.model_dump(mode="json")
    del values["data"]["dir"]
    return values


def measured(directory: Path) -> Disk:
    """Bytes on disk of a run that is closed, by kind."""
    sizes = {"models": 0, "updates": 0, "database": 0, "other": 0}
    for path in directory.rglob("*"):
        if path.is_file():
            top = path.relative_to(directory).parts[0]
            kind = "database" if top.startswith("ledger.sqlite3") else top
            sizes[kind if kind in sizes else "other"] += path.stat().st_size
    return Disk(**sizes, total=sum(sizes.values()))
