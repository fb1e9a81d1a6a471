"""Each test has a cache of its own, and none is told of data by whoever runs the tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DISAVOW_DATA_DIR", raising=False)
    monkeypatch.setenv("DISAVOW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
