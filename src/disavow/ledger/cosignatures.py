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


_NEWEST = (
    sa.select(log.c.position, log.c.head, cosignatures.c.witness, cosignatures.c.line)
    .join_from(log, cosignatures, cosignatures.c.position == log.c.position, isouter=True)
    .where(log.c.position == sa.select(sa.func.max(log.c.position)).scalar_subquery())
    .order_by(cosignatures.c.witness)
)

_KEEP = sa.text(
    "INSERT INTO cosignatures (position, witness, line) VALUES (:position, :witness, :line) "
    "ON CONFLICT (position, witness) DO UPDATE SET line = excluded.line"
)


def cosigned_head(connection: sa.Connection) -> CosignedHead | None:
    """The newest head with its cosignatures; None where it is not signed."""
    rows = connection.execute(_NEWEST).all()
    if not rows or rows[0].head is None:
        return None
    lines = {row.witness: row.line for row in rows if row.witness is not None}
    return CosignedHead(rows[0].position + 1, rows[0].head, lines)


def note_cosignatures(connection: sa.Connection, size: int, lines: Mapping[WitnessKey, str]) -> None:
    """Keep cosignatures of the head of so many leaves. Keeping one again keeps it once."""
    found = [{"position": size - 1, "witness": str(witness), "line": line} for witness, line in lines.items()]
    connection.execute(_KEEP, found)


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
