"""Federations with something to hide, for an audit to find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.planted import CLIENT
from disavow import config
from disavow.audit.audit import Effort, audit
from disavow.audit.report import Audit
from disavow.audit.subject import subject_of
from disavow.data import FederatedData
from disavow.data import load as load_data
from disavow.federation import Federation


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
    backdoor: bool = False,
) -> Audit:
    """Train a run and audit one of its clients."""
    settings = config.from_values(values, source="test")
    data = load_data(settings.data, seed=settings.seed)
    if backdoor:
        data = with_backdoor(data, CLIENT)
    monkeypatch.setattr("disavow.data.load", lambda data_settings, **more: data)
    with Federation.create(folder / "run", settings, keys=folder / "keys") as run:
        run.train()
    return audit(
        subject_of(folder / "run", CLIENT, data=data, keys=folder / "keys"),
        effort,
        work=folder / "work",
        keys=folder / "keys",
    )
