"""The slots of a withdrawal: read as they were written, closed without the round's leaf, refused if damaged."""

from __future__ import annotations

import random

import pytest

from disavow.errors import VerificationError
from disavow.proof.withdrawal_slots import WithdrawnFrom, read_slots, write_slots
from tests.proof.made_proofs import digest_of


def slots_of(seed: int, count: int, largest: int) -> list[WithdrawnFrom]:
    chance = random.Random(seed)
    positions = sorted(chance.randrange(1, 40_000) for _ in range(count))
    return [WithdrawnFrom(place, digest_of("root", place), chance.randrange(largest)) for place in positions]


@pytest.mark.parametrize("largest", [1, 255, 256, 70_000, 2**32])
def test_what_is_written_is_read_back(largest: int) -> None:
    slots = slots_of(largest, 300, largest)
    entries = read_slots(write_slots(slots, 50_000))
    assert entries.positions == tuple(slot.place for slot in slots)
    found = [entries.position(index, slot.root, 50_000) for index, slot in enumerate(slots)]
    assert found == [slot.position for slot in slots]


def test_nothing_withdrawn_is_nothing_written() -> None:
    assert write_slots([], 7) == b""
    assert read_slots(b"").positions == ()


def test_slots_of_one_round_and_cluster_look_different_without_its_root() -> None:
    slots = [WithdrawnFrom(3, digest_of("root"), 5)] * 64
    masked = read_slots(write_slots(slots, 9)).masked
    assert len(set(masked)) > 32
    assert set(read_slots(write_slots(slots, 10)).masked) != set(masked)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_else_reads_as_the_same(seed: int) -> None:
    """Each entry has one way to be written: what can be read is what would be written for it."""
    chance, good = random.Random(seed), write_slots(slots_of(seed, 12, 300), 50_000)
    for _ in range(3_000):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 3)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(2)] = bytes(chance.randrange(256) for _ in range(chance.randrange(3)))
        try:
            entries = read_slots(bytes(data))
        except VerificationError:
            continue
        numbers = [one - other for one, other in zip(entries.positions, (0, *entries.positions), strict=False)]
        written = b"".join(_number(gap) + masked for gap, masked in zip(numbers, entries.masked, strict=True))
        assert bytes(data) == (bytes([entries.width]) + written if entries.positions else b"")


def _number(value: int) -> bytes:
    groups = [value & 127]
    while value := value >> 7:
        groups[-1] |= 128
        groups.append(value & 127)
    return bytes(groups)
