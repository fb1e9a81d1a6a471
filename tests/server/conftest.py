"""A small signed run that is served, trained once for each worker and copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from disavow import config
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now
from disavow.server.app import create_app
from disavow.server.settings import ServerSettings
from tests.conftest import SMALL
from tests.server.service import HOST, RUN, Service

SETTINGS: dict[str, Any] = {
    **SMALL,
    "rounds": 2,
    "deniability": {"x": 2},
    "requests": {"approval": "rollback"},
}
"""Anybody can leave at once; the second of one cluster takes a rollback, which somebody has to approve."""


@pytest.fixture(scope="session")
def served_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs and keys. Look, do not touch."""
    folder = tmp_path_factory.mktemp("served")
    generate(folder / "keys", name="tests", passphrase=None, at=time_to_text(now()))
    settings = config.from_values(SETTINGS, source="tests")
    with Federation.create(folder / "runs" / RUN, settings, keys=folder / "keys") as run:
        run.train()
    return folder


@pytest.fixture
def folder(served_once: Path, tmp_path: Path) -> Path:
    """A copy of runs and keys."""
    for name in ("runs", "keys"):
        shutil.copytree(served_once / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def settings(folder: Path) -> ServerSettings:
    return ServerSettings(
        runs=folder / "runs",
        state=folder / "state",
        keys=folder / "keys",
        hosts=(HOST,),
        private_callbacks=True,
        poll_seconds=0.05,
        warm_up_seconds=0.0,
    )


@pytest.fixture
def service(settings: ServerSettings) -> Iterator[Service]:
    app = create_app(settings)
    with TestClient(app, raise_server_exceptions=False) as http:
        yield Service(app, http, settings)
