"""What a budget for checkpoints saves on disk, and what it costs in retrained rounds.

Two kinds of JSON lines: `retrained` compares simulated request streams with and without thinning (50 clients, 50
rounds, a request after each round with probability 0.2, clusters at random as in `disavow plan`); `disk` counts the
bytes of real runs of the same settings, by kind, beside those of FedEraser at interval 1, which keeps every
client's update and the model of every round.

python -m benchmarks.retention 200                    that many streams, then real runs on digits
python -m benchmarks.retention 200 mnist 2400000      on other data, with another budget in bytes
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from disavow import config
from disavow.erasure.simulated import repaired
from disavow.federation import Federation
from disavow.ledger.retention import superfluous, weights_of

CLIENTS, ROUNDS, RATE = 50, 50, 0.2
CHOICES = ((4, 3), (6, 3), (8, 4))
BUDGETS = (5, 10, 15, 25)
STREAMS = 200
DATA = "digits"
MODELS = 12
"""Checkpoints that the budget of the real runs has room for unless it is given."""

Labels = npt.NDArray[np.int32]


@dataclass
class Simulated:
    """One run under one request stream. Everything random depends on stream, round and attempt alone, so that runs
    with other budgets meet the same leavers, and the same clusters as long as they do the same.
    """

    stream: int
    k: int
    x: int
    sticky: bool
    budget: int | None
    retrained: int = 0
    clusters: list[Labels] = field(default_factory=list)
    repeats: list[bool] = field(default_factory=list)
    kept: list[int] = field(default_factory=lambda: [1])
    attempts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = np.random.default_rng([self.stream, 1])
        self.leavers, self.asks = chance.permutation(CLIENTS), chance.random(ROUNDS) < RATE
        self.present = np.ones(CLIENTS, dtype=np.bool_)

    def live(self) -> int:
        """Train all rounds, honour requests on the way; how many rounds were retrained."""
        gone = 0
        for number in range(1, ROUNDS + 1):
            self._round()
            if self.asks[number - 1]:
                self.present[self.leavers[gone]] = False
                gone += 1
                if self.present.sum() < self.k:
                    break
                self._erase(int(self.leavers[gone - 1]))
        return self.retrained

    def _erase(self, leaver: int) -> None:
        now = len(self.clusters)
        stored = np.array(self.clusters)
        own = stored[:, leaver]
        survivors = ((stored == own[:, None]) & self.present).sum(axis=1)
        broken = np.flatnonzero((own >= 0) & (survivors < self.x)) + 1
        if not broken.size:
            return
        back_to = max(each for each in self.kept if each <= broken[0])
        del self.clusters[back_to - 1 :], self.repeats[back_to - 1 :]
        self.kept = [each for each in self.kept if each <= back_to]
        self.retrained += now - back_to + 1
        while len(self.clusters) < now:
            self._round()

    def _round(self) -> None:
        number = len(self.clusters) + 1
        attempt = self.attempts[number] = self.attempts.get(number, 0) + 1
        chance = np.random.default_rng([self.stream, 2, number, attempt])
        repeats = self.sticky and number > 1 and self._large_enough()
        self.clusters.append(np.where(self.present, self._grouped(chance, repeats), -1).astype(np.int32))
        self.repeats.append(repeats)
        self.kept.append(number + 1)
        if self.budget is not None:
            gone = superfluous(dict.fromkeys(self.kept, 1), weights_of(self.repeats), self.budget)
            self.kept = [each for each in self.kept if each not in gone]

    def _large_enough(self) -> bool:
        _, sizes = np.unique(self.clusters[-1][self.present], return_counts=True)
        return bool(sizes.min() >= self.k)

    def _grouped(self, chance: np.random.Generator, repeats: bool) -> Labels:
        """Each client's cluster: that of the round before, repaired where it must be; or all at random."""
        if repeats:
            return self.clusters[-1]
        last = np.zeros(CLIENTS, dtype=np.int32)
        sizes = np.zeros(CLIENTS // self.k, dtype=np.int32)
        if self.sticky and self.clusters:
            last = np.maximum(self.clusters[-1], 0)
            sizes = np.bincount(last[self.present], minlength=len(sizes)).astype(np.int32)
        found, _ = repaired(last[None], sizes[None], self.present[None], self.k, rng=chance)
        labels: Labels = found[0]
        return labels


def simulate(streams: int) -> None:
    """Print what thinning costs, one line a choice, clustering and budget."""
    for (k, x), sticky in product(CHOICES, (True, False)):
        seeds = range(1, streams + 1)
        full = [Simulated(seed, k, x, sticky, None).live() for seed in seeds]
        for budget in BUDGETS:
            thinned = [Simulated(seed, k, x, sticky, budget).live() for seed in seeds]
            extra, low, high = more(thinned, full)
            line = {
                "kind": "retrained",
                "k": k,
                "x": x,
                "clusters": "sticky" if sticky else "fresh",
                "checkpoints": budget,
                "streams": streams,
                "rounds_keeping_all": float(np.mean(full)),
                "rounds": float(np.mean(thinned)),
                "more": extra,
                "more_low": low,
                "more_high": high,
            }
            print(json.dumps(line), flush=True)


def more(thinned: Sequence[int], full: Sequence[int]) -> tuple[float, float, float]:
    """By which share more rounds are retrained; a 95 % bootstrap interval over the streams, which both share."""
    pairs = np.array([thinned, full]).T
    drawn = pairs[np.random.default_rng(1).integers(len(pairs), size=(10_000, len(pairs)))].mean(axis=1)
    drawn = drawn[drawn[:, 1] > 0]
    if not len(drawn):  # nobody had to retrain anything
        return math.nan, math.nan, math.nan
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1] - 1, [0.025, 0.975])
    return float(pairs[:, 0].mean() / pairs[:, 1].mean() - 1), float(low), float(high)


def measure(data: str, retention: int | str, folder: Path) -> dict[str, Any]:
    """The bytes that a real run takes once it is complete, by kind."""
    values: dict[str, Any] = {
        "rounds": ROUNDS,
        "draws": "seeded",
        "data": {"name": data, "clients": CLIENTS},
        "training": {"epochs": 1, "batch_size": 128, "learning_rate": 0.02},
        "clustering": {"k": 8},
        "deniability": {"x": 4},
        "requests": {"rate": RATE},
        "ledger": {"retention": retention},
    }
    settings = config.from_values(values, source="benchmark")
    with Federation.create(folder / "run", settings, keys=folder / "keys") as run:
        run.train()
        model = 4 * run.ledger.layout.size
        retrained = len(run.ledger.summaries()) - ROUNDS
    kinds = {"models": "models/*", "database": "ledger.sqlite3*", "proofs": "proofs/*", "settings": "config.toml"}
    sizes = {kind: sum(path.stat().st_size for path in (folder / "run").glob(glob)) for kind, glob in kinds.items()}
    total = sum(path.stat().st_size for path in (folder / "run").rglob("*") if path.is_file())
    federaser = (CLIENTS + 1) * ROUNDS * model
    return {
        "kind": "disk",
        "data": data,
        "retention": retention,
        "model": model,
        "models_kept": len(list((folder / "run" / "models").iterdir())),
        **sizes,
        "total": total,
        "federaser": federaser,
        "times_less": federaser / total,
        "retrained": retrained,
    }


def compare(data: str, budget: int | None) -> None:
    """Print a run that keeps all models and one with a budget."""
    with tempfile.TemporaryDirectory() as folder:
        everything = measure(data, "all", Path(folder) / "all")
        print(json.dumps(everything), flush=True)
        one = everything["models"] // everything["models_kept"]
        print(json.dumps(measure(data, budget or MODELS * (one + 1), Path(folder) / "thinned")), flush=True)


if __name__ == "__main__":
    streams, data, budget = [*sys.argv[1:], *[None] * 3][:3]
    simulate(int(streams or STREAMS))
    compare(data or DATA, int(budget) if budget else None)
