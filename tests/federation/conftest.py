"""Runs that the tests of `Federation` share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from disavow import config, runs
from disavow.engines.state import model_of
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now
from disavow.rounds.training import train
from tests.data.making import write
from tests.federation.making import (
    PASSPHRASE,
    SETTINGS,
    ReversedEngine,
)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run on images in a folder; the key is locked."""
    folder = tmp_path_factory.mktemp("requests")
    write(folder / "data")
    generate(folder / "keys", name="tests", passphrase=PASSPHRASE, at=time_to_text(now()))
    settings = config.from_values(
        {**SETTINGS, "data": {**SETTINGS["data"], "dir": str(folder / "data")}}, source="tests"
    )
    with Federation.create(folder / "run", settings, keys=folder / "keys", ask=lambda path: PASSPHRASE) as run:
        run.train()
    return folder


@pytest.fixture
def run(trained_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `trained_once`, with its keys and its keyring beside it."""
    shutil.copytree(trained_once / "keys", tmp_path / "keys", dirs_exist_ok=True)
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    return Path(shutil.copytree(trained_once / "run", tmp_path / "run"))


@pytest.fixture
def data(trained_once: Path) -> Path:
    """The folder with the images, which the run names by its full path."""
    return trained_once / "data"


@pytest.fixture
def moved(data: Path, tmp_path: Path) -> Iterator[None]:
    """The images are elsewhere while the test runs."""
    data.rename(tmp_path / "elsewhere")
    yield
    (tmp_path / "elsewhere").rename(data)


@pytest.fixture(scope="session")
def own_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of somebody's own engine on somebody's own data, with the ids and the shapes of digits."""
    directory = tmp_path_factory.mktemp("own code") / "own"
    settings = config.from_values({**SETTINGS, "data": {"clients": 8}}, source="tests")
    prepared = runs.prepare(settings)
    ledger = Ledger.create(
        directory,
        policy=settings.policy,
        layout=model_of(prepared.network).layout,
        initial=model_of(prepared.network).vector.numpy(),
        clients=prepared.loaded.samples,
        config=config.to_toml(settings),
        created_by="tests",
        at=now(),
        settings_digest=config.settings_digest(settings),
        keys=directory.with_name("keys"),
    )
    with ledger:
        train(ledger, ReversedEngine(prepared.engine), runs.round_options(settings), rounds=2)
    return directory


@pytest.fixture
def own(own_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `own_once`, to be erased from, with its keyring beside it."""
    shutil.copytree(own_once.with_name("keys"), tmp_path / "keys", dirs_exist_ok=True)
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    return Path(shutil.copytree(own_once, tmp_path / "own"))
