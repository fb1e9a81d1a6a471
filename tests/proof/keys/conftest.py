"""A folder for keys, and no key in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from disavow.proof import keys


@pytest.fixture(autouse=True)
def _no_keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (keys.KEY_VARIABLE, keys.NAME_VARIABLE, keys.PASSPHRASE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "keys"
