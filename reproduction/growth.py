"""Accuracy against the odds: what hiding a leaver behind noise costs, for federations of growing size.

The noise of all m clusters hides each of them: with equal clusters s = 1/(σ√m), and the released model explains the
leaver better than another member by at most γ = exp(s²/2 + s·z) (see `disavow.proof.bounds`). So the same odds need
the less noise, the more clients there are.

Before: the paper's noise with a chosen σ, one representative. After: noise scaled by the round's sensitivity, for
chosen odds over all rounds, and several representatives (docs/design/0029-composed-odds.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal

from disavow import config, runs
from disavow.config import Settings
from disavow.data import OnProgress
from disavow.data.progress import nothing
from disavow.errors import RoundRefused, RunInUse
from disavow.federation import Federation
from disavow.ledger.lock import Lock
from disavow.privacy.odds import sigma_for
from disavow.runs import Prepared
from reproduction import odds_lines, provenance
from reproduction.client_odds import ClientOdds, odds_of_clients
from reproduction.odds_lines import FORMAT, OddsLine
from reproduction.records import OnNote
from reproduction.sharing import SharedEngine

K = 10


@dataclass(frozen=True)
class Study:
    """Which federations are trained: every number of clients with every sigma and seed. All hold the same data.

    With `odds`, the noise is that of mode `sensitivity` for each of them over all rounds, in place of `sigmas`.
    """

    data: str = "mnist"
    network: str = "lenet5"
    clients: tuple[int, ...] = (50, 200, 500, 1000, 3000)
    sigmas: tuple[float, ...] = (0.0, 0.02, 0.1, 0.3, 0.5)
    seeds: tuple[int, ...] = (1, 2, 3)
    rounds: int = 50
    batch_size: int = 20
    learning_rate: float = 0.02
    epochs: int = 3
    representatives: int = 1
    odds: tuple[float, ...] = ()

    @property
    def mode(self) -> Literal["paper", "sensitivity"]:
        """The noise."""
        return "sensitivity" if self.odds else "paper"

    def points(self, *, device: str = "auto") -> list[Point]:
        """Every federation, those of equal data together."""
        return [
            Point(self, clients, seed, sigma, device)
            for clients in self.clients
            for seed in self.seeds
            for sigma in ([sigma_for(odds, self.rounds) for odds in self.odds] or self.sigmas)
        ]


QUICK = Study(
    "digits", clients=(20, 50, 200), sigmas=(0.0, 0.1, 0.3), seeds=(1,), rounds=20, batch_size=4, learning_rate=0.05
)
"""A small one for a CPU, on embedded digits."""

AFTER = (
    Study(clients=(1000,), representatives=5, sigmas=(0.5, 0.7)),
    Study(clients=(1000,), representatives=5, odds=(10.0,)),
    Study(clients=(200, 1000, 3000), rounds=10, epochs=15, representatives=5, odds=(3.0, 10.0, 100.0)),
)
"""One change after another: several representatives; odds that are chosen beforehand; fewer and longer rounds."""

QUICK_AFTER = (replace(QUICK, clients=(200,), sigmas=(), representatives=5, odds=(10.0,)),)
"""The same on embedded digits."""


@dataclass(frozen=True)
class Point:
    """One federation of the study."""

    study: Study
    clients: int
    seed: int
    sigma: float
    device: str = "auto"

    @property
    def settings(self) -> Settings:
        """What its run is told."""
        return self._settings(
            {"k": K, "representatives": self.study.representatives}, {"mode": self.study.mode, "sigma": self.sigma}
        )

    @property
    def plain(self) -> Settings:
        """The same federation by plain federated averaging."""
        return self._settings({"k": 1}, {"mode": "none"})

    def _settings(self, clustering: dict[str, int], noise: dict[str, object]) -> Settings:
        study = self.study
        return config.from_values(
            {
                "seed": self.seed,
                "rounds": study.rounds,
                "draws": "seeded",
                "data": {"name": study.data, "clients": self.clients},
                "model": {"name": study.network},
                "training": {
                    "epochs": study.epochs,
                    "batch_size": study.batch_size,
                    "learning_rate": study.learning_rate,
                },
                "clustering": clustering,
                "deniability": {"x": min(2, clustering["k"])},
                "noise": noise,
                "engine": {"device": self.device},
            },
            source="the study of odds",
        )

    @property
    def key(self) -> str:
        """SHA-256 of what decides the result."""
        values = self.settings.model_dump(mode="json", exclude_defaults=True, exclude={"engine"})
        return hashlib.sha256(
            json.dumps({"format": FORMAT, "settings": values}, sort_keys=True).encode()
        ).hexdigest()

    def __str__(self) -> str:
        study = self.study
        drawn = f", {study.representatives} drawn" if study.representatives > 1 else ""
        noise = f"{study.mode} sigma" if study.odds else "sigma"
        return f"{self.clients} clients, {study.rounds} rounds{drawn}, {noise} {self.sigma:g}, seed {self.seed}"


OnPoint = Callable[[Point], None]


def run(
    points: Sequence[Point],
    results: Path,
    workroom: Path,
    *,
    on_point: OnPoint = lambda point: None,
    on_note: OnNote = lambda note: None,
    on_progress: OnProgress = nothing,
) -> list[OddsLine]:
    """Train what is not trained yet; the lines of all. `on_point` hears of each federation that is finished.

    Federations that another process is at are left to it: what that has not finished yet is not among the lines.
    """
    found = {line.key: line for line in odds_lines.read(results, on_note)}
    for (_, clients, seed), members in groupby(points, key=lambda point: (point.study, point.clients, point.seed)):
        group, room = list(members), workroom / f"odds-{clients}-seed-{seed}"
        if all(point.key in found for point in group):
            continue
        room.mkdir(parents=True, exist_ok=True)
        try:
            with Lock(room):
                # whoever was here before may have gone on meanwhile
                found |= {line.key: line for line in odds_lines.read(results, on_note)}
                missing = [point for point in group if point.key not in found]
                for line in _run_group(missing, room, on_progress):
                    odds_lines.append(results, line, on_note)
                    found[line.key] = line
                    on_point(next(point for point in missing if point.key == line.key))
        except RunInUse as error:
            on_note(f"{clients:,} clients, seed {seed}, are left to others: {error}")
    return [found[point.key] for point in points if point.key in found]


def _run_group(points: Sequence[Point], workroom: Path, on_progress: OnProgress) -> Iterable[OddsLine]:
    """Federations of one size and seed, and plain federated averaging to compare them with."""
    if not points:
        return
    prepared = runs.prepare(points[0].settings, on_progress=on_progress)
    engine = SharedEngine(prepared.engine, epochs=points[0].settings.training.epochs, room=0)
    prepared = replace(prepared, engine=engine)
    try:
        plain = _trained(points[0].plain, prepared, workroom)
        for point in points:
            started = time.perf_counter()
            outcome = _trained(point.settings, prepared, workroom)
            yield _line(point, prepared, outcome, plain, time.perf_counter() - started)
    finally:
        engine.end()


def _trained(settings: Settings, prepared: Prepared, workroom: Path) -> _Outcome:
    """Train a run to its end, or until noise has destroyed the model; its outcome."""
    directory = workroom / "odds"
    shutil.rmtree(directory, ignore_errors=True)
    with Federation.create(directory, settings, keys=workroom / "keys", prepared=prepared) as run:
        with contextlib.suppress(RoundRefused):  # updates that are NaN or infinite: the round is not recorded
            run.train()
        reached = run.ledger.last_round
        evaluation = run.ledger.summary(reached).evaluation if reached else None
        hidden = odds_of_clients(run.ledger) if settings.clustering.k > 1 else ClientOdds(None, None)
    shutil.rmtree(directory)
    return _Outcome(evaluation.accuracy if evaluation else 0.0, reached, hidden)


@dataclass(frozen=True)
class _Outcome:
    """Accuracy after the last round that was reached, and how clients are hidden by then."""

    accuracy: float
    rounds: int
    hidden: ClientOdds


def _line(point: Point, prepared: Prepared, outcome: _Outcome, plain: _Outcome, seconds: float) -> OddsLine:
    settings, hidden = point.settings, outcome.hidden
    return OddsLine(
        key=point.key,
        clients=point.clients,
        samples_per_client=sum(map(len, prepared.loaded.samples.values())) / point.clients,
        k=K,
        sigma=point.sigma,
        noise=point.study.mode,
        representatives=settings.clustering.representatives,
        epochs=settings.training.epochs,
        seed=point.seed,
        rounds=outcome.rounds,
        network=settings.model.name,
        device=provenance.device(settings.engine),
        commit=provenance.commit(),
        versions=provenance.versions(),
        accuracy=outcome.accuracy,
        fedavg_accuracy=plain.accuracy,
        log10_gamma_round=statistics.median(hidden.rounds) if hidden.rounds else None,
        log10_gamma_composed=statistics.median(hidden.composed) if hidden.composed else None,
        worst_round=max(hidden.rounds) if hidden.rounds else None,
        worst_composed=max(hidden.composed) if hidden.composed else None,
        seconds=seconds,
    )
