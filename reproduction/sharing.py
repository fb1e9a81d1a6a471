"""Local training that equal runs share.

Runs that differ only in k, x or the mechanism begin with the same model, and go on alike until the first of their
verdicts differs. A client's update depends on the model, its own data, the seed, the round and its id alone, so
what one run has trained is what another would train: it is kept, and handed out again with the seconds it took.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from disavow.domain import Evaluation, Layout
from disavow.rounds.local_training import ChecksRuns, Engine
from disavow.rounds.vectors import Model, Updates, on_cpu

_Key = tuple[bytes, tuple[str, ...], int, int]

_SHARE_OF_GPU, _SHARE_OF_CPU = 0.5, 0.25
"""Of the memory of the device: the updates of several runs are kept in it."""


def room_for(device: torch.device, *, processes: int = 1) -> int:
    """Give the bytes of updates that each of so many processes may keep: a share of the memory of the device.

    A run with 200 clients that trains again at each request asks for 9 GB of updates, and the next run for the same
    ones in the same order: with less room, what comes next has always just been dropped.
    """
    if device.type == "cuda":
        return int(_SHARE_OF_GPU * torch.cuda.get_device_properties(device).total_memory) // processes
    return int(_SHARE_OF_CPU * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // processes


@dataclass(frozen=True)
class _Trained:
    updates: Updates
    seconds: float

    @property
    def size(self) -> int:
        return self.updates.vectors.nbytes


class SharedEngine:
    """An engine that several runs use, one after the other. Closing a run does not close it; `end` does.

    `saved_seconds` counts the training that was taken from earlier runs, `trained` and `shared` the rounds.
    `client_epochs` counts what was asked for, whoever trained it. `newest` are the updates that were given last.
    `room` bounds the bytes of updates that are kept; what was used least recently goes first.
    """

    def __init__(self, engine: Engine, *, epochs: int, room: int) -> None:
        self._engine, self._epochs, self._room, self._size = engine, epochs, room, 0
        self._kept: OrderedDict[_Key, _Trained] = OrderedDict()
        self.saved_seconds = 0.0
        self.client_epochs = 0
        self.trained = 0
        self.shared = 0
        self.newest: Updates | None = None

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""
        digest = hashlib.sha256(on_cpu(model.vector).numpy().data).digest()
        each = self._epochs if epochs is None else epochs
        key = digest, tuple(clients), round_number, each
        self.client_epochs += len(clients) * each
        if (known := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self.saved_seconds += known.seconds
            self.shared += 1
            self.newest = known.updates
            return known.updates
        started = time.perf_counter()
        updates = self._engine.train(model, clients, round_number, epochs=epochs)
        if updates.vectors.device.type == "cuda":
            torch.cuda.synchronize(updates.vectors.device)  # or the seconds would be those of asking
        self._keep(key, _Trained(updates, time.perf_counter() - started))
        self.trained += 1
        self.newest = updates
        return updates

    def _keep(self, key: _Key, trained: _Trained) -> None:
        self._kept[key] = trained
        self._size += trained.size
        while self._size > self._room and self._kept:
            self._size -= self._kept.popitem(last=False)[1].size

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`: a trial would be counted as training."""
        if isinstance(self._engine, ChecksRuns):
            self._engine.refuse_run(layout, clients)

    def evaluate(self, model: Model) -> Evaluation | None:
        """See `Engine`."""
        return self._engine.evaluate(model)

    def close(self) -> None:
        """The end of one run; others may follow."""

    def end(self) -> None:
        """Let go of everything."""
        self._kept.clear()
        self._engine.close()
