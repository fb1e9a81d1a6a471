"""An update reads back bit for bit, compressed or not, and without compression takes what its numbers take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from disavow.errors import IntegrityError
from disavow.ledger.keyring import ClientKey
from disavow.ledger.members import Filled, RoundKeys
from disavow.ledger.models import Vector
from disavow.ledger.pseudonyms import RoundName
from disavow.ledger.updates import KeptFile, UpdateStore, digest_of
from tests.refusals import refuses

SIZE = 51_902
"""Numbers of LeNet5 on MNIST: two blocks of zstandard."""

BOTH_WAYS = pytest.mark.parametrize("compress", [True, False])


WHERE = RoundName("0" * 32, 3, 1, bytes(16))
KEYS = RoundKeys(WHERE, 1, {"ada": b"a" * 32, "bela": b"b" * 32})


@pytest.fixture
def store(tmp_path: Path) -> UpdateStore:
    return UpdateStore(tmp_path / "updates")


def filled(client: str, numbers: Vector, where: RoundName = WHERE) -> Filled:
    key = KEYS.keys[client]
    return Filled(0, ClientKey(1, client, (key,)), bytes(32), 10, digest_of(numbers), where, key)


def update(zeros: float = 0.0) -> Vector:
    """Random numbers, a share of them zero: what a client returns that hardly learns."""
    chance = np.random.default_rng(1)
    numbers = chance.normal(scale=1e-3, size=SIZE).astype(np.float32)
    numbers[chance.random(SIZE) < zeros] = 0
    return numbers


@BOTH_WAYS
def test_an_update_reads_back_bit_for_bit_from_a_file_that_says_nothing_without_its_clients_key(
    store: UpdateStore, compress: bool
) -> None:
    numbers = update(zeros=0.9)
    mine = filled("ada", numbers)
    files = store.write({"ada": numbers}, KEYS, compress=compress)
    data = store.path(mine).read_bytes()
    assert files == {"ada": KeptFile(store.path(mine).name, len(data))}
    assert mine.update_digest.hex() not in store.path(mine).name
    assert mine.update_digest not in data
    assert len(zstandard.compress(data)) > 0.99 * len(data)  # nothing in it repeats
    assert store.read(SIZE, mine).tobytes() == numbers.tobytes()
    store.path(mine).rename(store.path(filled("bela", numbers)))
    with pytest.raises(IntegrityError):
        store.read(SIZE, filled("bela", numbers))


def test_equal_updates_have_different_names_and_contents(store: UpdateStore) -> None:
    numbers, later = update(), replace(WHERE, nonce=b"n" * 16)
    files = store.write({"ada": numbers, "bela": numbers}, KEYS)
    again = store.write({"ada": numbers}, replace(KEYS, where=later))
    names = [files["ada"].name, files["bela"].name, again["ada"].name]
    assert len({(store.folder / name).read_bytes()[28:60] for name in names}) == len(set(names)) == 3


def test_sizes_are_padded(store: UpdateStore) -> None:
    sizes = set()
    for zeros in (0.0, 0.001, 0.002):
        [file] = store.write({"ada": update(zeros)}, KEYS).values()
        assert (file.stored_bytes - 12 - 16) % 4096 == 0  # nonce and tag
        sizes.add(file.stored_bytes)
    assert len(sizes) == 1


def test_a_file_under_anothers_name_is_refused(store: UpdateStore) -> None:
    one, two = update(), update(zeros=0.5)
    store.write({"ada": one, "bela": two}, KEYS)
    store.path(filled("ada", one)).replace(store.path(filled("bela", two)))
    with refuses(IntegrityError, store.path(filled("bela", two)).name):
        store.read(SIZE, filled("bela", two))


@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
def test_without_compression_it_takes_what_plain_float32_takes(store: UpdateStore, zeros: float) -> None:
    numbers = update(zeros)
    taken = store.write({"ada": numbers}, KEYS, compress=False)["ada"].stored_bytes
    sealed = 12 + 16  # nonce and tag
    assert (
        4 * SIZE < taken - sealed <= 4 * SIZE + 15 + 8 + 4095
    )  # headers of a frame and its blocks, length, padding
    assert store.write({"bela": numbers}, KEYS)["bela"].stored_bytes < 0.97 * taken


@BOTH_WAYS
@settings(deadline=None, max_examples=30)
@given(numbers=hnp.arrays(np.float32, st.integers(1, 80), elements=st.floats(width=32)))
def test_any_numbers_read_back(tmp_path_factory: pytest.TempPathFactory, compress: bool, numbers: Vector) -> None:
    store = UpdateStore(tmp_path_factory.mktemp("run") / "updates")
    store.write({"ada": numbers}, KEYS, compress=compress)
    assert store.read(len(numbers), filled("ada", numbers)).tobytes() == numbers.tobytes()
