"""One server for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_server import Server, started


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    found = started()
    yield found
    found.stop()
