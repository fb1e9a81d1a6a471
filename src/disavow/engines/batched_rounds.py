"""Run rounds of several federations: their clients train in few large calls, rounds close while others train.

Experiments and audits run the same small federation many times, with other settings, seeds or clients. One call for
several of them keeps a GPU busy where one federation alone would leave it waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache

import torch

from disavow.domain import Round
from disavow.engines.trainer import Ask, VectorisedEngine
from disavow.errors import DisavowError, RoundRefused
from disavow.ledger import Ledger
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.options import RoundOptions
from disavow.rounds.round import close_round, open_round
from disavow.rounds.vectors import Model, Updates

_ENOUGH = 100
"""Clients in one training call: enough to fill a GPU, few enough that other rounds can be closed meanwhile."""


@dataclass(frozen=True, eq=False)
class BatchedRun:
    """One of those that train together. All their engines share one trainer."""

    ledger: Ledger
    engine: VectorisedEngine
    options: RoundOptions


def run_rounds(runs: Sequence[BatchedRun]) -> list[Round]:
    """Run the next round of each, as `run_round` would run it for each alone.

    Where one is refused, the others' rounds are recorded all the same, and the refusal is raised after that.

    Args:
        runs: Those that train together.

    Returns:
        The recorded rounds.

    Raises:
        RoundRefused: One was refused; the others' rounds are recorded all the same.
    """
    closed = _Closed()
    runs, opened = closed.open(runs)
    asks = [
        each.engine.ask(opening.model, clients, opening.number)
        for each, (opening, clients) in zip(runs, opened, strict=True)
    ]
    training: list[_Trained] = []
    for wave in waves(asks):
        updates = runs[0].engine.trainer.train(asks[wave])
        # a GPU goes on with these while the rounds of those before them are closed
        closed.add(training)
        training = [
            _Trained(each, opening, answered)
            for each, (opening, _), answered in zip(runs[wave], opened[wave], updates, strict=True)
        ]
    closed.add(training)
    return closed.rounds()


def evaluate_rounds(runs: Sequence[BatchedRun]) -> None:
    """Evaluate what `evaluate_missing` would for each alone; models that share held-out data go in one call.

    Args:
        runs: Those that train together.
    """
    sharing: dict[tuple[int, int], list[tuple[BatchedRun, int]]] = {}
    for each in runs:
        key = id(each.engine.workload.network), id(each.engine.workload.test_images)
        sharing.setdefault(key, []).extend((each, number) for number in each.ledger.unevaluated())
    for some in sharing.values():
        if some:
            engine = some[0][0].engine
            models = [_model_after(each.ledger, number) for each, number in some]
            scored = engine.trainer.evaluate(engine.workload, models)
            for (each, number), evaluation in zip(some, scored, strict=True):
                each.ledger.note_evaluation(number, evaluation)


def _model_after(ledger: Ledger, number: int) -> Model:
    return Model(ledger.layout, torch.from_numpy(ledger.model_after(number)))


def waves(asks: Sequence[Ask]) -> Iterator[slice]:
    """Divide asks into those that are trained in one call.

    Args:
        asks: One for each federation.

    """
    start = clients = 0
    for i, ask in enumerate(asks):
        clients += len(ask.clients)
        if clients >= _ENOUGH or i == len(asks) - 1:
            yield slice(start, i + 1)
            start, clients = i + 1, 0


class _Trained:
    """What a training call returned, though a GPU may still be at work on it; it may have more to do after that."""

    def __init__(self, run: BatchedRun, opening: Broadcast, updates: Updates) -> None:
        self._run, self._opening, self._updates = run, opening, updates
        device = updates.vectors.device
        self._done = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    def close(self) -> Round:
        with self._beside():
            return close_round(self._run.ledger, self._opening, self._updates, self._run.options)

    def _beside(self) -> torch.cuda.StreamContext | nullcontext[None]:
        """Once the updates are there; what is done in here does not queue up behind the training of others."""
        if self._done is None:
            return nullcontext()
        self._done.synchronize()
        return torch.cuda.stream(_stream(self._updates.vectors.device))


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)


class _Closed:
    """Rounds that were recorded, or refused."""

    def __init__(self) -> None:
        self._rounds: list[Round] = []
        self._refusals: list[DisavowError] = []

    def open(self, runs: Sequence[BatchedRun]) -> tuple[list[BatchedRun], list[tuple[Broadcast, tuple[str, ...]]]]:
        """Open the next round of each; those that were not refused, and their openings."""
        going, opened = [], []
        for each in runs:
            try:
                opened.append(open_round(each.ledger, each.options))
            except RoundRefused as refusal:
                self._refusals.append(refusal)
            else:
                going.append(each)
        return going, opened

    def add(self, trained: Sequence[_Trained]) -> None:
        for each in trained:
            try:
                self._rounds.append(each.close())
            except DisavowError as refusal:
                self._refusals.append(refusal)

    def rounds(self) -> list[Round]:
        """All of them, or the first refusal."""
        if self._refusals:
            raise self._refusals[0]
        return self._rounds
