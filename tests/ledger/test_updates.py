"""An update reads back bit for bit, compressed or not, and without compression takes what its numbers take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from disavow.errors import IntegrityError
from disavow.ledger.keyring import Keyring
from disavow.ledger.models import Vector
from disavow.ledger.updates import KeptFile, UpdateStore, digest_of
from tests.refusals import refuses

SIZE = 51_902
"""Numbers of LeNet5 on MNIST: two blocks of zstandard."""

BOTH_WAYS = pytest.mark.parametrize("compress", [True, False])


@pytest.fixture
def store(tmp_path: Path) -> UpdateStore:
    return UpdateStore(tmp_path / "updates", Keyring.create(tmp_path / "keys", "0" * 32))


def update(zeros: float = 0.0) -> Vector:
    """Random numbers, a share of them zero: what a client returns that hardly learns."""
    chance = np.random.default_rng(1)
    numbers = chance.normal(scale=1e-3, size=SIZE).astype(np.float32)
    numbers[chance.random(SIZE) < zeros] = 0
    return numbers


@BOTH_WAYS
def test_an_update_reads_back_bit_for_bit_from_a_file_that_says_nothing_without_the_keyring(
    store: UpdateStore, tmp_path: Path, compress: bool
) -> None:
    numbers = update(zeros=0.9)
    digest = digest_of(numbers)
    files = store.write({digest: numbers}, compress=compress)
    data = store.path(digest).read_bytes()
    assert files == {digest: KeptFile(store.path(digest).name, len(data))}
    assert digest.hex() not in store.path(digest).name
    assert digest not in data
    assert len(zstandard.compress(data)) > 0.99 * len(data)  # nothing in it repeats
    assert store.read(SIZE, digest).tobytes() == numbers.tobytes()
    other = UpdateStore(store.folder, Keyring.create(tmp_path / "others", "0" * 32))
    with pytest.raises(IntegrityError):
        other.read(SIZE, digest)


def test_a_file_under_anothers_name_is_refused(store: UpdateStore) -> None:
    one, two = update(), update(zeros=0.5)
    store.write({digest_of(one): one, digest_of(two): two})
    store.path(digest_of(one)).replace(store.path(digest_of(two)))
    with refuses(IntegrityError, store.name(digest_of(two))):
        store.read(SIZE, digest_of(two))


@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
def test_without_compression_it_takes_what_plain_float32_takes(store: UpdateStore, zeros: float) -> None:
    numbers = update(zeros)
    digest = digest_of(numbers)
    taken = store.write({digest: numbers}, compress=False)[digest].stored_bytes
    sealed = 12 + 16  # nonce and tag
    assert 4 * SIZE < taken - sealed <= 4 * SIZE + 15  # the header of a frame and of its blocks
    store.remove([store.name(digest)])
    assert store.write({digest: numbers})[digest].stored_bytes < 0.95 * taken


@BOTH_WAYS
def test_what_is_there_stays_as_it_was_written(store: UpdateStore, compress: bool) -> None:
    numbers = update()
    digest = digest_of(numbers)
    first = store.write({digest: numbers}, compress=compress)
    assert store.write({digest: numbers}, compress=not compress) == first


@BOTH_WAYS
@settings(deadline=None, max_examples=30)
@given(numbers=hnp.arrays(np.float32, st.integers(1, 80), elements=st.floats(width=32)))
def test_any_numbers_read_back(tmp_path_factory: pytest.TempPathFactory, compress: bool, numbers: Vector) -> None:
    folder, digest = tmp_path_factory.mktemp("run"), digest_of(numbers)
    store = UpdateStore(folder / "updates", Keyring.create(folder / "keys", "0" * 32))
    store.write({digest: numbers}, compress=compress)
    assert store.read(len(numbers), digest).tobytes() == numbers.tobytes()
