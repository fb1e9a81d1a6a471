"""The slots that one withdrawal takes out, as its leaf has them: which rounds can be seen, which clusters not.

A leaf has one entry for each slot, in the order of the log: the place of the round's leaf, and the position of the
slot's cluster in that round, masked with the round's root. Whoever is shown the round's leaf can take the mask off;
to everybody else the position is closed (docs/proof-format.md, "Withdrawn slots").
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from disavow.errors import VerificationError
from disavow.proof.merkle import leaf_hash, root_of

MOST_SLOTS = 1_000_000
_WIDEST = 4
_TAG = b"disavow/position/v4\x00"
_MORE = 0x80
_LONGEST = 5
"""Bytes of a number of 32 bits in groups of seven."""


@dataclass(frozen=True)
class WithdrawnFrom:
    """A slot that a withdrawal takes out: the place of its round's leaf, the root in it, and its cluster."""

    place: int
    root: bytes
    position: int


@dataclass(frozen=True)
class Entries:
    """The entries of one withdrawal: places of rounds in order, and the masked positions beside them."""

    width: int
    positions: tuple[int, ...]
    masked: tuple[bytes, ...]

    def position(self, index: int, root: bytes, withdrawal: int) -> int:
        """Take the mask off the position of an entry.

        Args:
            index: Which entry.
            root: The root in the leaf of the entry's round.
            withdrawal: The place of the withdrawal's leaf.

        """
        mask = _mask(root, withdrawal, index, self.width)
        return int.from_bytes(self.masked[index]) ^ int.from_bytes(mask)


def write_slots(slots: Sequence[WithdrawnFrom], withdrawal: int) -> bytes:
    """Write the entries of a withdrawal.

    Args:
        slots: What it takes out, in the order of the log.
        withdrawal: The place of its leaf.

    """
    if not slots:
        return b""
    width = max(1, *((slot.position.bit_length() + 7) // 8 for slot in slots))
    parts, before = [bytes([width])], 0
    for index, slot in enumerate(slots):
        mask = _mask(slot.root, withdrawal, index, width)
        masked = slot.position ^ int.from_bytes(mask)
        parts += [_number(slot.place - before), masked.to_bytes(width)]
        before = slot.place
    return b"".join(parts)


def read_slots(data: bytes) -> Entries:
    """Read the entries of a withdrawal.

    Args:
        data: From a leaf; it may be hostile.

    Raises:
        VerificationError: It is not what `write_slots` writes.

    """
    if not data:
        return Entries(1, (), ())
    width, at, place, size = data[0], 1, 0, len(data)
    if not 1 <= width <= _WIDEST or size == 1:
        raise VerificationError("the slots of a withdrawal are not written as they must be")
    positions: list[int] = []
    masked: list[bytes] = []
    while at < size:
        byte = data[at]
        at += 1
        gap = byte & 0x7F
        shift = 7
        while byte & _MORE:
            if at == size or shift == 7 * _LONGEST:
                raise VerificationError("the slots of a withdrawal end within a number, or have one too long")
            byte = data[at]
            at += 1
            gap |= (byte & 0x7F) << shift
            shift += 7
        if byte == 0 and shift > 7:  # noqa: PLR2004
            raise VerificationError("a number in the slots of a withdrawal is longer than it need be")
        place += gap
        positions.append(place)
        masked.append(data[at : at + width])
        at += width
    if at != size or len(positions) > MOST_SLOTS:
        raise VerificationError("the slots of a withdrawal end within an entry, or are too many")
    return Entries(width, tuple(positions), tuple(masked))


def slots_root(inners: Sequence[bytes]) -> bytes:
    """Compute the root over the slots of a withdrawal.

    Args:
        inners: Each slot closed by its salt (`disavow.proof.leaves.withdrawn_inner`), in the order of the entries.

    """
    return root_of([leaf_hash(inner) for inner in inners])


def _mask(root: bytes, withdrawal: int, index: int, width: int) -> bytes:
    return hashlib.sha256(_TAG + root + struct.pack(">II", withdrawal, index)).digest()[:width]


def _number(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    parts = bytearray()
    while value >= _MORE:
        parts.append(value & 0x7F | _MORE)
        value >>= 7
    parts.append(value)
    return bytes(parts)
