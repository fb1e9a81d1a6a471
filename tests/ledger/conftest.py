"""A keyring to try."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from disavow.ledger.keyring import Keyring
from tests.ledger.keyrings import RUN


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[Keyring]:
    made = Keyring.create(tmp_path / "keys", RUN)
    yield made
    made.close()
