from __future__ import annotations

from collections.abc import Iterator

import pytest

from disavow.engines.pool import PoolTrainer
from tests.engines.pool.builders import with_workers_ready


@pytest.fixture(scope="module")
def shared_trainer() -> Iterator[PoolTrainer]:
    trainer = PoolTrainer(2, start_after=0.0)
    yield trainer
    trainer.close()


@pytest.fixture
def trainer(shared_trainer: PoolTrainer) -> PoolTrainer:
    """Two workers, up and running, also after a test that killed them."""
    return with_workers_ready(shared_trainer)
