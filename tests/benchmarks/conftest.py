"""One small file of samples for all tests of the benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from disavow.engines.state import model_of
from disavow.models import build


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workload of 100 and 20 images, with what a real one has in it."""
    path = tmp_path_factory.mktemp("bench") / "samples.npz"
    generator = np.random.default_rng(1)
    initial = model_of(build("lenet5", (1, 28, 28), 10, seed=1))
    np.savez(
        path,
        train_images=generator.integers(0, 256, (100, 28, 28), dtype=np.uint8),
        train_labels=generator.integers(0, 10, 100, dtype=np.uint8),
        test_images=generator.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        test_labels=generator.integers(0, 10, 20, dtype=np.uint8),
        mean=np.array(127.5, np.float32),
        deviation=np.array(73.9, np.float32),
        **{f"initial/{name}": tensor.numpy() for name, tensor in initial.tensors().items()},  # type: ignore[arg-type]
    )
    return path
