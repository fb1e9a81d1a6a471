"""Runs that tests of several commands share: a signed one that was erased from, and one to erase from."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from disavow import config
from disavow.federation import Federation
from disavow.ledger import Ledger
from tests.cli import erasing
from tests.cli.erasing import Command, own_keys
from tests.cli.process import write_config
from tests.cli.signed_run import LEAVER, SECRET, SETTINGS, STAYER, World
from tests.kill.erasure_driver import Driver


def _unlock(patch: pytest.MonkeyPatch) -> None:
    """Let every command find the passphrase, and no other key than its own."""
    for name in ("DISAVOW_SIGNING_KEY", "DISAVOW_SIGNING_NAME"):
        patch.delenv(name, raising=False)
    patch.setenv("DISAVOW_PASSPHRASE", SECRET)


@pytest.fixture(scope="session")
def _signed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world = World(driver, tmp_path_factory.mktemp("world"))
    documents: dict[str, Any] = {"world": world}
    with pytest.MonkeyPatch.context() as patch:
        _unlock(patch)
        documents["keygen"] = world.made("keygen", "--name", "fl.example.org")
        settings = write_config(world.folder / "config.toml", SETTINGS)
        documents["train"] = world.made("train", settings, "--run", world.run)
        documents["receipt"] = world.made("receipt", world.run, LEAVER, "-o", world.receipts)
        documents["what-if"] = world.made("prove", world.run, STAYER, "-o", world.what_if)
        assert world.call("checkpoint", world.run, "-o", world.checkpoint).status == 0
        documents["erase"] = world.made("erase", world.run, LEAVER)
        documents["prove"] = world.made("prove", world.run, LEAVER, "-o", world.proof)
        documents["export"] = world.made("export", world.run, "-o", world.model)
    return documents


@pytest.fixture
def story(_signed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A key, a run, receipts, a what-if, an erasure and its proof; with what each command told."""
    _unlock(monkeypatch)
    return _signed


@pytest.fixture
def world(story: dict[str, Any]) -> World:
    """What the commands of `story` made. Look, do not touch: every test of this worker shares it."""
    found: World = story["world"]
    return found


@pytest.fixture
def copied(world: World, tmp_path: Path) -> World:
    """The same world, to be changed at will."""
    for name in ("keys", "run", "run.openings", "receipts"):
        shutil.copytree(world.folder / name, tmp_path / name)
    return World(world.driver, tmp_path)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of the settings of `tests.cli.erasing`. Look, do not touch."""
    directory = tmp_path_factory.mktemp("erase command") / "run"
    with Federation.create(directory, config.from_values(erasing.SETTINGS, source="tests")) as run:
        run.train()
    return directory


@pytest.fixture
def disavow(driver: Driver, tmp_path: Path) -> Command:
    """Run commands in the test's folder, with keys of its own."""

    def run_it(
        *arguments: str | Path, keys: Path | None = None, limit: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        ended = driver.run(*arguments, keys=keys or tmp_path / "keys", cwd=tmp_path, limit=limit)
        return subprocess.CompletedProcess(arguments, ended.status, ended.stdout, ended.stderr)

    return run_it


@pytest.fixture
def run(trained_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `trained_once` and of its keyring, to be erased from."""
    copy = Path(shutil.copytree(trained_once, tmp_path / "run"))
    own_keys(copy, tmp_path / "keys")
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    return copy


@pytest.fixture
def pair(run: Path) -> list[str]:
    """Two clients of one cluster of four or three, of whom too few are left when both go."""
    with Ledger.open(run) as ledger:
        smallest = min(ledger.membership(1), key=len)
    return sorted(smallest)[: len(smallest) - 1]
