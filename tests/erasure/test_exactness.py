"""Retraining is exact: bit for bit the run that never had the leaver, from round 1 or from a checkpoint."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from disavow import config
from disavow.config import Settings
from disavow.data import load as load_data
from disavow.domain import Anchors, Evaluation
from disavow.engines import build as build_engine
from disavow.engines.state import model_of
from disavow.engines.workload import Workload
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.models import digest_of, to_safetensors
from disavow.ledger.retention import round_models
from disavow.models import build
from disavow.rounds.local_training import Engine
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.randomness import Secrets, Stream
from disavow.rounds.training import train
from disavow.rounds.vectors import Model, Updates
from tests.erasure.oracle import Oracle, same_bits
from tests.selection import some_of

TRAINING = {"epochs": 1, "batch_size": 64, "learning_rate": 0.3}


def settings_of(clients: int, **sections: dict[str, Any] | object) -> Settings:
    values: dict[str, Any] = {
        "draws": "seeded",
        "rounds": 8,
        "data": {"clients": clients, "test_fraction": 0.6},  # one small batch a client keeps it quick
        "model": {"name": "lenet5"},
        "training": TRAINING,
        "engine": {"name": "vectorised", "device": "cpu"},
    }
    for name, value in sections.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return config.from_values(values, source="test")


@dataclass(frozen=True)
class LaterAttempt(Secrets):
    """The secret draws of a run whose rounds have each been recorded once before."""

    def stream(self, round_number: int, attempt: int, purpose: str) -> Stream:
        return super().stream(round_number, attempt + 1, purpose)


def run_that_never_had(leavers: set[str], settings: Settings, directory: Path, anchors: Anchors | None) -> Ledger:
    """A run of the same settings, seed and data in which the leavers never existed, at the second attempt.

    Fixed clusters have the same anchors: the leavers had left before round 1.
    """
    data = load_data(settings.data, seed=settings.seed)
    network = build(settings.model.name, data.train.shape, data.train.classes, seed=settings.seed)
    initial = model_of(network)
    parts = {client: part for client, part in data.parts.items() if client not in leavers}
    engine = build_engine(
        Workload(
            network=network,
            images=data.train.images,
            labels=data.train.labels,
            parts=parts,
            test_images=data.test.images,
            test_labels=data.test.labels,
            settings=settings.training,
            seed=settings.seed,
        ),
        settings.engine,
    )
    ledger = Ledger.create(
        directory,
        policy=settings.policy,
        layout=initial.layout,
        initial=initial.vector.numpy(),
        clients=parts,
        config="",
        created_by="test",
        at=now(),
    )
    if anchors is not None:
        ledger.keep_anchors(anchors)
    options = RoundOptions(
        seed=settings.seed, fraction=settings.training.fraction, secrets=LaterAttempt(settings.seed)
    )
    train(ledger, engine, options, rounds=settings.rounds)
    return ledger


@pytest.mark.parametrize(
    ("representatives", "sticky", "method", "fraction", "noise", "engine"),
    [
        (1, True, "mdav", 1.0, "paper", "sequential"),
        pytest.param(2, False, "mdav", 1.0, "paper", "vectorised", marks=pytest.mark.torture),
        (2, True, "mdav", 0.8, "paper", "vectorised"),
        (1, False, "constrained-kmeans", 1.0, "paper", "vectorised"),
        pytest.param(1, False, "fixed", 1.0, "none", "vectorised", marks=pytest.mark.torture),
        (2, False, "fixed", 0.5, "paper", "vectorised"),
        pytest.param(1, True, "mdav", 1.0, "paper", "vectorised", marks=pytest.mark.torture),
    ],
)
def test_from_round_1_it_is_the_run_that_never_had_the_leavers(
    tmp_path: Path, representatives: int, sticky: bool, method: str, fraction: float, noise: str, engine: str
) -> None:
    settings = settings_of(
        13,
        rounds=4,
        training={**TRAINING, "fraction": fraction},
        clustering={"k": 3, "sticky": sticky, "method": method, "representatives": representatives},
        deniability={"x": 2, "delta": 1e-6},  # nothing is that alike: always round 1
        noise={"mode": noise},
        engine={"name": engine, "device": "cpu"},
    )
    with Federation.create(tmp_path / "run", settings) as run:
        run.train()
        # whoever took part in round 1: its cluster cannot be deniable at this Δ
        first_round = sorted(client for group in run.ledger.membership(1) for client in group)
        leavers = {first_round[0], first_round[5]}
        run.ledger.place_requests(sorted(leavers), at=now())
        [one, two] = run.answer()
        assert one.verdict == two.verdict
        assert one.verdict is not None
        assert one.verdict.round == 1
        anchors = run.ledger.anchors()
        retrained = [summary.after for summary in run.ledger.summaries() if summary.standing]
    assert not fsck(tmp_path / "run")
    with run_that_never_had(leavers, settings, tmp_path / "never", anchors) as ledger:
        never = [summary.after for summary in ledger.summaries()]
    assert retrained == never
    assert len(never) == settings.rounds


SCRATCH = {"name": "retrain-from-scratch"}

SCENARIOS: list[dict[str, Any]] = [
    {"clustering": {"k": 2, "sticky": True}, "deniability": {"x": 2}},
    {"clustering": {"k": 2, "sticky": False}, "deniability": {"x": 2}},
    {"clustering": {"k": 3, "sticky": True}, "deniability": {"x": 2}},
    {"clustering": {"k": 4, "sticky": False, "representatives": 2}, "deniability": {"x": 1}},
    {"clustering": {"k": 4, "sticky": True, "representatives": 3}, "deniability": {"x": 2}},
    {"clustering": {"k": 3, "sticky": True, "metric": "cosine"}, "deniability": {"x": 2, "delta": 0.4}},
    {"clustering": {"k": 3, "sticky": False}, "deniability": {"x": 2, "delta": "1.2x"}},
    {"clustering": {"k": 3, "method": "fixed"}, "deniability": {"x": 3}},
    {"clustering": {"k": 3, "method": "constrained-kmeans"}, "deniability": {"x": 3}},
    {"clustering": {"k": 3}, "deniability": {"x": 2}, "training": {**TRAINING, "fraction": 0.7}},
    {"clustering": {"k": 3}, "deniability": {"x": 3}, "noise": {"mode": "calibrated", "clip": 0.5, "tau": 0.001}},
    {"clustering": {"k": 3}, "deniability": {"x": 3}, "noise": {"distribution": "laplace", "sigma": 0.1}},
    {
        "clustering": {"k": 3, "representatives": 2},
        "deniability": {"x": 2},
        "model": {"name": "resnet-mini"},
        "engine": {"name": "sequential"},
    },
    {"clustering": {"k": 3}, "deniability": {"x": 3}, "data": {"partition": "dirichlet"}},
    {"clustering": {"k": 4, "sticky": False}, "deniability": {"x": 2}},
    {"clustering": {"k": 3}, "deniability": {"x": 3}},
    {"clustering": {"k": 1}, "deniability": {"x": 1}, "noise": {"mode": "none"}},
    {"clustering": {"k": 1}, "deniability": {"x": 1}, "noise": {"mode": "calibrated", "clip": 0.5, "tau": 0.001}},
    {"clustering": {"k": 1}, "deniability": {"x": 1}, "noise": {"mode": "none"}, "mechanism": SCRATCH},
    {"clustering": {"k": 3, "sticky": False}, "deniability": {"x": 2}, "mechanism": SCRATCH},
    {
        "clustering": {"k": 3, "sticky": False},
        "deniability": {"x": 2},
        "training": {"fraction": 0.7},
        "ledger": {"retention": 130_000},  # three models
    },
    {"clustering": {"k": 3}, "deniability": {"x": 2}, "training": {"fraction": 0.7}, "ledger": {"retention": 1}},
    {"clustering": {"k": 3}, "deniability": {"x": 1, "odds": 100.0}, "noise": {"sigma": 0.5}},
    {"clustering": {"k": 3, "method": "fixed"}, "deniability": {"x": 2}, "training": {**TRAINING, "fraction": 0.5}},
    {"clustering": {"k": 2, "method": "fixed"}, "deniability": {"x": 2}, "noise": {"mode": "none"}},
    {
        "clustering": {"k": 4, "representatives": 2},
        "deniability": {"x": 2, "odds": 30.0},
        "noise": {"mode": "sensitivity", "sigma": 1.5},
    },
]


# histories with these seeds roll back to a round after the first, so that a checkpoint is continued
LATER = {(3, 8), (9, 2), (22, 1)}

# and with these to an earlier one than the first broken, because its checkpoint has been thinned
FURTHER = {(20, 1), (21, 1)}

SHORT, LONG = (3, 5, 6, 6), (3, 5, 8, 8, 8)
"""After which rounds somebody asks to leave."""

DIFFERENT = {(scenario, 1) for scenario in (0, 5, 7, 8, 10, 11, 16, 19, 25)} | LATER | FURTHER
"""Every method of clustering, noise and rollback once, for `make test`; `make torture` has them all."""

STAGES = {(3, 8): LONG, (20, 1): LONG, (12, 1): (2, 3, 3)}
"""Where it takes all rounds to get there; and fewer for the network that takes four times as long."""


@dataclass(frozen=True)
class Remembering:
    """An engine whose calls are trained once: the oracle asks for what the run has just trained.

    An update depends on model, client and round alone, which the contract of engines holds every engine to. Where a
    model differs by one bit, nothing is remembered of it, and the comparison fails as without this.
    """

    inner: Engine
    known: dict[tuple[bytes, tuple[str, ...], int, int | None], Updates] = field(default_factory=dict)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        key = model.vector.numpy().tobytes(), tuple(clients), round_number, epochs
        if key not in self.known:
            self.known[key] = self.inner.train(model, clients, round_number, epochs=epochs)
        return self.known[key]

    def evaluate(self, model: Model) -> Evaluation | None:
        return self.inner.evaluate(model)

    def close(self) -> None:
        self.inner.close()


def checkpoints_kept(ledger: Ledger) -> set[int]:
    with ledger._connect() as connection:
        return {each.round for each in round_models(connection) if each.kept}


@pytest.mark.parametrize(
    ("scenario", "seed"),
    some_of(sorted({(i, 1) for i in range(len(SCENARIOS))} | LATER | FURTHER), DIFFERENT),
)
def test_any_history_of_leavers_ends_in_the_bits_of_the_naive_federation(
    tmp_path: Path, scenario: int, seed: int
) -> None:
    """Several leavers, several rollbacks, requests in the middle and after the end, against the oracle."""
    settings = settings_of(14, seed=seed, **SCENARIOS[scenario])
    firsts, further = compare_history(
        tmp_path, settings, 1000 * scenario + seed, STAGES.get((scenario, seed), SHORT)
    )
    if (scenario, seed) in LATER:
        assert any(first is not None and first > 1 for first in firsts)
    assert further == ((scenario, seed) in FURTHER)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("scenario", range(len(SCENARIOS)))
def test_longer_histories_end_in_the_bits_of_the_naive_federation(tmp_path: Path, scenario: int, seed: int) -> None:
    settings = settings_of(14, seed=seed, **SCENARIOS[scenario])
    compare_history(tmp_path, settings, 1000 * scenario + seed, LONG)


def compare_history(
    folder: Path, settings: Settings, seed: int, stages: Sequence[int]
) -> tuple[set[int | None], bool]:
    """Let clients leave after these rounds; which rounds were broken first, and whether one had been thinned."""
    history = random.Random(seed)
    with Federation.create(folder / "run", settings) as created:
        engine = Remembering(created.engine)
        run = replace(created, own_engine=engine)
        oracle = Oracle(
            policy=run.ledger.policy,
            options=run.options,
            engine=engine,
            clients=set(run.ledger.clients()),
            models=[Model(run.ledger.layout, torch.from_numpy(run.ledger.model_before(1)))],
        )
        firsts: set[int | None] = set()
        further = False
        for until in stages:
            part = replace(run, settings=settings.model_copy(update={"rounds": until}))
            part.train()
            oracle.train(until)
            leavers = set(history.sample(sorted(oracle.clients), history.choice([1, 1, 2])))
            kept = checkpoints_kept(run.ledger)
            run.ledger.place_requests(sorted(leavers), at=now())
            answered = run.answer()
            scratch = settings.mechanism.name == "retrain-from-scratch"
            broken = oracle.erase(leavers, from_scratch=scratch, kept=kept)
            further |= broken is not None and broken not in kept
            # somebody who took part in no round at all gets a verdict of its own
            verdicts = {r.verdict.round for r in answered if r.verdict and r.verdict.kind.value != "never present"}
            assert verdicts <= {broken}
            firsts.add(broken)
            assert run.ledger.last_round == len(oracle.rounds)
            for number, remembered in enumerate(oracle.rounds, start=1):
                stored = {frozenset(group) for group in run.ledger.membership(number)}
                assert stored == {group - oracle.gone for group in remembered.clusters}
        kept = checkpoints_kept(run.ledger)
        for number, vector in enumerate(oracle.vectors(), start=1):
            if number in kept:
                assert same_bits(torch.from_numpy(run.ledger.model_before(number)), vector), number
            canonical = to_safetensors(run.ledger.layout, vector.numpy())
            assert run.ledger.digest_before(number) == digest_of(canonical), number
    assert not fsck(folder / "run")
    return firsts, further
