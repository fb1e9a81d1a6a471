"""Runs that tests of the audit share. Look, do not touch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.audit.making import DENIABLE, make_run


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six in which whoever leaves is rolled back."""
    return make_run(tmp_path_factory.mktemp("broken") / "run")


@pytest.fixture(scope="session")
def deniable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six in which whoever leaves first is deniable."""
    return make_run(tmp_path_factory.mktemp("deniable") / "run", DENIABLE)


@pytest.fixture
def own_run(broken: Path, tmp_path: Path) -> Path:
    """A copy of `broken`, to be changed at will; it shares the keyring, which is put back behind each test."""
    return Path(shutil.copytree(broken, tmp_path / "run"))
