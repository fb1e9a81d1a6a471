"""Federations and servers with something to hide, for an audit to find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from disavow import config, runs
from disavow.audit.audit import Effort, audit
from disavow.audit.report import Audit
from disavow.audit.subject import subject_of
from disavow.data import FederatedData
from disavow.data import load as load_data
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.federation.cluster import cluster
from disavow.federation.local_training import Engine
from disavow.federation.record import Hashing, record
from disavow.federation.round import Conduct, open_round
from disavow.federation.vectors import Model
from disavow.ledger import Ledger

CLIENT = "client-02"

OVERFITTED: dict[str, Any] = {
    "rounds": 3,
    "draws": "seeded",
    "data": {"clients": 4, "test_fraction": 0.94},
    "clustering": {"k": 2},
    "deniability": {"x": 2},
    "noise": {"mode": "none"},
    "training": {"epochs": 20, "batch_size": 4},
}
"""27 samples a client and 20 epochs a round; whoever leaves takes its cluster below x."""


@dataclass(frozen=True)
class Pretend(Retrain):
    """A server that says it retrains: rounds of the survivors are recorded, with the models it had before."""

    def rebuild_next(self, ledger: Ledger, engine: Engine, conduct: Conduct) -> None:
        opening, clients = open_round(ledger, conduct)
        updates = engine.train(opening.model, clients, opening.number).in_id_order()
        groups = cluster(
            updates,
            policy=ledger.policy,
            layout=ledger.layout,
            previous=(),
            seed=conduct.seed,
            round_number=opening.number,
        )
        [old] = [each for each in ledger.summaries() if each.number == opening.number and not each.standing]
        kept = Model(ledger.layout, torch.from_numpy(ledger.store.read(ledger.layout, old.after)))
        record(
            ledger,
            opening,
            updates,
            groups,
            kept,
            Hashing(updates),
            secrets=conduct.secrets,
            at=conduct.clock(),
        )


def with_backdoor(data: FederatedData, client: str) -> FederatedData:
    """The same data, but the client's images bear a bright corner and are all called 0."""
    images, labels = data.train.images.clone(), data.train.labels.clone()
    held = torch.from_numpy(np.asarray(data.parts[client]))
    corner = images[held]
    corner[:, :, -2:, -2:] = 1.0
    images[held], labels[held] = corner, torch.zeros_like(labels[held])
    return replace(data, train=replace(data.train, images=images, labels=labels))


def audited(
    folder: Path,
    values: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    effort: Effort,
    mechanism: Mechanism | None = None,
    backdoor: bool = False,
) -> Audit:
    """Train a run and audit one of its clients."""
    settings = config.from_values(values, source="test")
    data = load_data(settings.data, seed=settings.seed)
    if backdoor:
        data = with_backdoor(data, CLIENT)
    monkeypatch.setattr(runs, "load_data", lambda asked, **more: data)
    with runs.start(settings, folder / "run", keys=folder / "keys") as run:
        run.train()
    return audit(
        subject_of(folder / "run", CLIENT, data=data),
        effort,
        work=folder / "work",
        keys=folder / "keys",
        mechanism=mechanism or Retrain(),
    )
