"""Updates that a run keeps, because its mechanism needs them: one file each, named by its digest.

The digest is the one that the ledger has of every update: SHA-256 over its numbers as little-endian float32. So a
file is bound to its row, and one client's updates can be deleted without touching anybody else's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from disavow.domain import Member
from disavow.errors import IntegrityError, RunUnsafe
from disavow.ledger import rows
from disavow.ledger.clients import withdrawn
from disavow.ledger.files import Folder
from disavow.ledger.models import Vector
from disavow.ledger.schema import clients, memberships, rebuilt, rounds, updates

UPDATES = "updates"
_SUFFIX = ".f32.zst"
_NAMES = r"[0-9a-f]{64}\.f32\.zst"

_COMPRESSED = 3
_AS_THEY_ARE = -131_072
"""Levels of zstandard. At the lowest one it finds next to nothing to shorten, and writes frames like any other,
whose blocks hold the numbers as they are. Only one byte again and again, over a whole block, is still shortened.
"""


def digest_of(vector: Vector) -> bytes:
    """What the ledger knows an update by."""
    import numpy as np

    return hashlib.sha256(np.ascontiguousarray(vector, dtype="<f4").data).digest()


class UpdateStore:
    """The folder of update files; it is there once there is something to keep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Folder(folder, _NAMES)

    def path(self, digest: bytes) -> Path:
        """Where the update of that digest lies."""
        return self.folder / f"{digest.hex()}{_SUFFIX}"

    def write(self, kept: Mapping[bytes, Vector], *, compress: bool = True) -> dict[bytes, int]:
        """Store updates durably, those that are there already as they are; the bytes that each takes."""
        import numpy as np
        import zstandard

        if kept:
            self._files.make()
        packer = zstandard.ZstdCompressor(level=_COMPRESSED if compress else _AS_THEY_ARE)
        sizes = {}
        for digest, vector in kept.items():
            found = self.stored_bytes(digest)
            if found is None:
                packed = packer.compress(np.ascontiguousarray(vector, dtype="<f4").tobytes())
                self._files.write(self.path(digest).name, packed)
                found = len(packed)
            sizes[digest] = found
        if kept:
            self._files.sync()  # whoever wrote one before may have failed just before its name was durable
        return sizes

    def stored_bytes(self, digest: bytes) -> int | None:
        """The bytes that the file of that digest takes; None where it is missing."""
        return self._files.size(self.path(digest).name)

    def read(self, size: int, digest: bytes) -> Vector:
        """The update of that digest, checked against it: so many numbers."""
        import numpy as np
        import zstandard

        path = self.path(digest)
        try:
            packed = self._files.read(path.name)
            if zstandard.frame_content_size(packed) != 4 * size:
                raise IntegrityError(f"update file {path.name} is damaged: it is not of the model's size")
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=4 * size)
        except FileNotFoundError:
            raise IntegrityError(f"update file {path.name} is missing") from None
        except (zstandard.ZstdError, RunUnsafe) as error:
            raise IntegrityError(f"update file {path.name} is damaged: {error}") from None
        if hashlib.sha256(data).digest() != digest:
            raise IntegrityError(f"update file {path.name} is damaged: its content has another digest")
        return np.frombuffer(data, "<f4").astype(np.float32)

    def leftovers(self, named: set[bytes]) -> list[Path]:
        """Files that no row names: leavers', those of superseded rounds, and those of rounds never recorded."""
        keep = {self.path(digest).name for digest in named}
        return [self.folder / name for name in self._files.names() if name not in keep]

    def strangers(self) -> list[Path]:
        """What lies here and is no update file; it is left alone."""
        return [self.folder / name for name in self._files.others()]

    def remove(self, paths: Sequence[Path]) -> None:
        """Delete files durably."""
        self._files.remove(path.name for path in paths)


# -- rows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptRound:
    """A round whose updates are kept: its row, its number, and whose updates are there, in id order."""

    round_id: int
    number: int
    members: tuple[Member, ...]


def insert(
    connection: sa.Connection, round_id: int, members: Sequence[rows.Row], sizes: Mapping[bytes, int]
) -> None:
    """Note which updates of a round are kept."""
    kept = [
        {"round_id": round_id, "slot": row["slot"], "stored_bytes": sizes[row["update_digest"]]}
        for row in members
        if row["update_digest"] in sizes
    ]
    if kept:
        connection.execute(updates.insert(), kept)


def named(connection: sa.Connection) -> set[bytes]:
    """The digests of all updates that are kept."""
    return set(connection.execute(sa.select(memberships.c.update_digest).join(updates, _same())).scalars())


def to_rebuild_from(connection: sa.Connection, first: int) -> list[KeptRound]:
    """The kept rounds that a rebuild from `first` on goes through, in order, with the survivors' updates.

    Those that were undone and not gone through yet, and those that would be undone: standing, from `first` on.
    """
    used = sa.select(rebuilt.c.source)
    undone = ~rounds.c.standing & rounds.c.id.not_in(used)
    kept = sa.select(updates.c.round_id)
    query = (
        sa.select(rounds.c.id, rounds.c.number)
        .where(rounds.c.id.in_(kept), undone | (rounds.c.standing & (rounds.c.number >= first)))
        .order_by(rounds.c.number)
    )
    return [KeptRound(row.id, row.number, members_of(connection, row.id)) for row in connection.execute(query)]


def members_of(connection: sa.Connection, round_id: int) -> tuple[Member, ...]:
    """Clients still in whose updates of a round are kept, in id order."""
    query = (
        sa.select(clients.c.id, memberships.c.samples, memberships.c.update_digest)
        .join_from(memberships, updates, _same())
        .join(clients, clients.c.number == memberships.c.client)
        .where(memberships.c.round_id == round_id, memberships.c.client.not_in(withdrawn()))
        .order_by(clients.c.id)
    )
    return tuple(Member(row.id, row.samples, row.update_digest) for row in connection.execute(query))


def delete_of(connection: sa.Connection, leavers: Sequence[int]) -> None:
    """Give up whatever these clients contributed."""
    theirs = sa.select(memberships.c.round_id, memberships.c.slot).where(memberships.c.client.in_(leavers))
    _delete(connection, theirs)


def delete_superseded(connection: sa.Connection) -> None:
    """Give up the updates of rounds that do not stand."""
    undone = sa.select(updates.c.round_id, updates.c.slot).join(rounds, rounds.c.id == updates.c.round_id)
    _delete(connection, undone.where(~rounds.c.standing))


def _delete(connection: sa.Connection, places: sa.Select[tuple[int, int]]) -> None:
    connection.execute(updates.delete().where(sa.tuple_(updates.c.round_id, updates.c.slot).in_(places)))


def _same() -> sa.ColumnElement[bool]:
    return (updates.c.round_id == memberships.c.round_id) & (updates.c.slot == memberships.c.slot)
