"""An update reads back bit for bit, compressed or not, and without compression takes what its numbers take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from disavow.ledger.models import Vector
from disavow.ledger.updates import UpdateStore, digest_of

SIZE = 51_902
"""Numbers of LeNet5 on MNIST: two blocks of zstandard."""

BOTH_WAYS = pytest.mark.parametrize("compress", [True, False])


@pytest.fixture
def store(tmp_path: Path) -> UpdateStore:
    return UpdateStore(tmp_path / "updates")


def update(zeros: float = 0.0) -> Vector:
    """Random numbers, a share of them zero: what a client returns that hardly learns."""
    chance = np.random.default_rng(1)
    numbers = chance.normal(scale=1e-3, size=SIZE).astype(np.float32)
    numbers[chance.random(SIZE) < zeros] = 0
    return numbers


@BOTH_WAYS
def test_an_update_reads_back_bit_for_bit_from_a_frame_that_says_its_size(
    store: UpdateStore, compress: bool
) -> None:
    numbers = update()
    digest = digest_of(numbers)
    sizes = store.write({digest: numbers}, compress=compress)
    packed = store.path(digest).read_bytes()
    assert sizes == {digest: len(packed)}
    assert zstandard.frame_content_size(packed) == 4 * SIZE
    assert store.read(SIZE, digest).tobytes() == numbers.tobytes()


@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
def test_without_compression_it_takes_what_plain_float32_takes(store: UpdateStore, zeros: float) -> None:
    numbers = update(zeros)
    digest = digest_of(numbers)
    taken = store.write({digest: numbers}, compress=False)[digest]
    assert 4 * SIZE < taken <= 4 * SIZE + 15  # the header of a frame and of its blocks
    store.remove([store.path(digest)])
    assert store.write({digest: numbers})[digest] < 0.95 * taken


@BOTH_WAYS
def test_what_is_there_stays_as_it_was_written(store: UpdateStore, compress: bool) -> None:
    numbers = update()
    digest = digest_of(numbers)
    first = store.write({digest: numbers}, compress=compress)
    assert store.write({digest: numbers}, compress=not compress) == first


@BOTH_WAYS
@given(numbers=hnp.arrays(np.float32, st.integers(1, 80), elements=st.floats(width=32)))
def test_any_numbers_read_back(tmp_path_factory: pytest.TempPathFactory, compress: bool, numbers: Vector) -> None:
    store, digest = UpdateStore(tmp_path_factory.mktemp("run") / "updates"), digest_of(numbers)
    store.write({digest: numbers}, compress=compress)
    assert store.read(len(numbers), digest).tobytes() == numbers.tobytes()
