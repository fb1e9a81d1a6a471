"""What witnesses have cosigned of the log, and the proofs that they are shown for it.

A consistency proof is made from the frontiers that each leaf keeps: witnesses are asked after every round, and what
that costs must not grow with the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from disavow.ledger.members import batches
from disavow.ledger.schema import cosignatures, log
from disavow.proof.cosignatures import WitnessKey
from disavow.proof.merkle import HASH_BYTES, consistency_ranges, node_hash


@dataclass(frozen=True)
class CosignedHead:
    """The newest signed head of the log, and who has cosigned it.

    Args:
        size: How many leaves it has.
        note: The checkpoint, signed by the log's key alone.
        lines: The cosignatures, by the verifier keys of the witnesses, in the order of these.

    """

    size: int
    note: str
    lines: Mapping[str, str]

    @property
    def cosigned(self) -> str:
        """The checkpoint with all its cosignatures."""
        return "".join([self.note, *(f"{line}\n" for line in self.lines.values())])


def cosigned_head(connection: sa.Connection) -> CosignedHead | None:
    """The newest head with its cosignatures; None where it is not signed."""
    last = sa.select(log.c.position, log.c.head).order_by(log.c.position.desc()).limit(1)
    row = connection.execute(last).one_or_none()
    if row is None or row.head is None:
        return None
    return CosignedHead(row.position + 1, row.head, lines_of(connection, row.position))


def lines_of(connection: sa.Connection, position: int) -> dict[str, str]:
    """The cosignatures of the head whose last leaf this is, by the verifier keys of the witnesses."""
    query = sa.select(cosignatures.c.witness, cosignatures.c.line).where(cosignatures.c.position == position)
    return {row.witness: row.line for row in connection.execute(query.order_by(cosignatures.c.witness))}


def note_cosignatures(connection: sa.Connection, size: int, lines: Mapping[WitnessKey, str]) -> None:
    """Keep cosignatures of the head of so many leaves. Keeping one again keeps it once."""
    found = [{"position": size - 1, "witness": str(witness), "line": line} for witness, line in lines.items()]
    same = cosignatures.c.witness.in_([row["witness"] for row in found])
    connection.execute(cosignatures.delete().where(cosignatures.c.position == size - 1, same))
    connection.execute(cosignatures.insert(), found)


def sizes_cosigned(connection: sa.Connection, witnesses: Collection[WitnessKey]) -> dict[WitnessKey, int]:
    """The size of the newest head that each witness has cosigned, as far as is known here; 0 where none is."""
    query = sa.select(cosignatures.c.witness, sa.func.max(cosignatures.c.position).label("last"))
    wanted = cosignatures.c.witness.in_([str(witness) for witness in witnesses])
    found = {row.witness: row.last + 1 for row in connection.execute(query.where(wanted).group_by("witness"))}
    return {witness: found.get(str(witness), 0) for witness in witnesses}


def consistency_since(connection: sa.Connection, old: int, new: int) -> list[bytes]:
    """The proof of RFC 6962 (2.1.2) that the first `new` leaves of the log go on from the first `old`."""
    parts = [_parts(start, end) for start, end in consistency_ranges(old, new)]
    rows: dict[int, sa.Row[Any]] = {}
    for some in batches(sorted({place for each in parts for place, _ in each})):
        query = sa.select(log.c.position, log.c.hash, log.c.frontier).where(log.c.position.in_(some))
        rows |= {row.position: row for row in connection.execute(query)}

    def root(of: tuple[int, int | None]) -> bytes:
        place, behind = of
        if behind is None:
            found: bytes = rows[place].hash
            return found
        end = len(rows[place].frontier) - behind * HASH_BYTES
        return bytes(rows[place].frontier[end - HASH_BYTES : end])

    return [_fold([root(part) for part in each]) for each in parts]


def _parts(start: int, end: int) -> list[tuple[int, int | None]]:
    """Where the subtrees are kept of which the leaves from `start` up to `end` consist, from left to right.

    Each is a leaf of the log with how many subtrees its frontier has behind the one wanted; None: the leaf itself.
    """
    size = end - start
    if size & (size - 1):  # up to the last leaf: the smaller perfect subtrees of the whole log are its parts
        return [(end - 1, behind) for behind in reversed(range(size.bit_count()))]
    if start % (2 * size) == 0:  # a left child is the smallest perfect subtree once its last leaf is there
        return [(end - 1, 0)]
    parts: list[tuple[int, int | None]] = []
    while size > 1:  # a right child was joined with the left one at once: go down to its left children
        size //= 2
        parts.append((start + size - 1, 0))
        start += size
    return [*parts, (end - 1, None)]


def _fold(roots: Sequence[bytes]) -> bytes:
    *left, value = roots
    for each in reversed(left):
        value = node_hash(each, value)
    return value
