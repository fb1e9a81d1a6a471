"""A real run, trained once, for tests of erasures."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from disavow import config
from disavow.federation import Federation
from tests.erasure.erased_runs import REAL


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, trained once."""
    folder = tmp_path_factory.mktemp("real")
    with Federation.create(folder / "run", config.from_values(REAL, source="tests")) as run:
        run.train()
    return folder / "run"


@pytest.fixture
def real(real_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(real_run, tmp_path / "run"))
