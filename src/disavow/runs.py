"""A run, assembled from its settings: data, network, engine and ledger put together.

settings = config.load(Path("config.toml"))
with runs.start(settings, Path("runs/first")) as run:
run.train()
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from torch import nn

from disavow import __version__, config
from disavow.config import Settings
from disavow.data import FederatedData
from disavow.data import load as load_data
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of
from disavow.errors import RunExists, RunMissing
from disavow.federation.local_training import Engine
from disavow.federation.randomness import Secrets
from disavow.federation.round import Clock, Conduct, now
from disavow.federation.training import BetweenRounds, OnRound, train
from disavow.ledger import Ledger
from disavow.ledger.ledger import CONFIG
from disavow.models import build


@dataclass(frozen=True, eq=False)
class Run:
    """An open run: what it was told (settings), what it keeps (ledger), and what does the work (engine)."""

    settings: Settings
    ledger: Ledger
    engine: Engine
    conduct: Conduct

    def train(self, on_round: OnRound = lambda summary: None, between_rounds: BetweenRounds = lambda: None) -> None:
        """Train until the rounds of the settings stand."""
        train(
            self.ledger,
            self.engine,
            self.conduct,
            rounds=self.settings.rounds,
            on_round=on_round,
            between_rounds=between_rounds,
        )

    def close(self) -> None:
        """Let go of the run."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start(settings: Settings, directory: Path, *, clock: Clock = now) -> Run:
    """A new run in a directory that does not exist yet, or is empty."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunExists(
            f"{directory} exists and is never overwritten; `disavow resume {directory}` continues a run"
        )
    data = load_data(settings.data, seed=settings.seed)
    network = _network(settings, data)
    initial = model_of(network)
    ledger = Ledger.create(
        directory,
        policy=settings.policy,
        layout=initial.layout,
        initial=initial.vector.numpy(),
        clients=data.parts,
        config=config.to_toml(settings),
        created_by=f"disavow {__version__}",
        at=datetime.now(UTC),
    )
    return Run(settings, ledger, _engine(settings, network, data), _conduct(settings, clock))


def reopen(directory: Path, *, clock: Clock = now) -> Run:
    """A run that was started before, opened for writing."""
    settings = settings_of(directory)
    data = load_data(settings.data, seed=settings.seed)
    ledger = Ledger.open(directory, write=True)
    return Run(settings, ledger, _engine(settings, _network(settings, data), data), _conduct(settings, clock))


def settings_of(directory: Path) -> Settings:
    """The settings a run was started with."""
    path = directory / CONFIG
    if not path.is_file():
        raise RunMissing(f"{directory} holds no run; `disavow train CONFIG.toml --run {directory}` starts one")
    return config.load(path)


def _network(settings: Settings, data: FederatedData) -> nn.Module:
    return build(settings.model.name, data.train.shape, data.train.classes, seed=settings.seed)


def _engine(settings: Settings, network: nn.Module, data: FederatedData) -> Engine:
    return SequentialEngine(
        network,
        images=data.train.images,
        labels=data.train.labels,
        parts=data.parts,
        test_images=data.test.images,
        test_labels=data.test.labels,
        settings=settings.training,
        seed=settings.seed,
    )


def _conduct(settings: Settings, clock: Clock) -> Conduct:
    return Conduct(
        seed=settings.seed,
        fraction=settings.training.fraction,
        secrets=Secrets(settings.seed if settings.draws == "seeded" else None),
        clock=clock,
    )
