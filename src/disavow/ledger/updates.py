"""Updates that a run keeps, because its mechanism needs them: one file each, encrypted.

Name and key of a file derive from the keyring's secret and the digest that the ledger has of the update: SHA-256
over its numbers as little-endian float32. The ledger has that digest sealed under the client's key. So a file is
bound to its row, says nothing to whoever has the run alone, and is closed for good once its client is forgotten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from disavow.domain import Member
from disavow.errors import IntegrityError, RunUnsafe
from disavow.ledger import pseudonyms
from disavow.ledger.clients import withdrawn
from disavow.ledger.files import Folder
from disavow.ledger.keyring import Keyring
from disavow.ledger.members import Members, batches
from disavow.ledger.models import Vector
from disavow.ledger.schema import memberships, rebuilt, rounds, updates

UPDATES = "updates"
_SUFFIX = ".update"
_NAMES = r"[0-9a-f]{64}\.update"

_COMPRESSED = 3
_AS_THEY_ARE = -131_072
"""Levels of zstandard. At the lowest one it finds next to nothing to shorten, and writes frames like any other,
whose blocks hold the numbers as they are. Only one byte again and again, over a whole block, is still shortened.
"""


def digest_of(vector: Vector) -> bytes:
    """What the ledger knows an update by."""
    import numpy as np

    return hashlib.sha256(np.ascontiguousarray(vector, dtype="<f4").data).digest()


@dataclass(frozen=True)
class KeptFile:
    """The file of an update: its name, and its size in bytes."""

    name: str
    stored_bytes: int


class UpdateStore:
    """The folder of update files; it is there once there is something to keep.

    Args:
        folder: The folder.
        keyring: Whose secret the names and keys of the files derive from.

    """

    def __init__(self, folder: Path, keyring: Keyring) -> None:
        self.folder = folder
        self._keyring = keyring
        self._files = Folder(folder, _NAMES)

    def name(self, digest: bytes) -> str:
        """What the file of the update of that digest is called."""
        return pseudonyms.derive(self._keyring.secret, "update-name", digest).hex() + _SUFFIX

    def path(self, digest: bytes) -> Path:
        """Where the update of that digest lies."""
        return self.folder / self.name(digest)

    def write(self, kept: Mapping[bytes, Vector], *, compress: bool = True) -> dict[bytes, KeptFile]:
        """Store updates durably, those that are there already as they are; the file of each."""
        import numpy as np
        import zstandard

        if kept:
            self._files.make()
        packer = zstandard.ZstdCompressor(level=_COMPRESSED if compress else _AS_THEY_ARE)
        files = {}
        for digest, vector in kept.items():
            name = self.name(digest)
            found = self._files.size(name)
            if found is None:
                packed = packer.compress(np.ascontiguousarray(vector, dtype="<f4").tobytes())
                sealed = pseudonyms.seal(self._keyring.secret, b"update/" + digest, packed)
                self._files.write(name, sealed)
                found = len(sealed)
            files[digest] = KeptFile(name, found)
        if kept:
            self._files.sync()  # whoever wrote one before may have failed just before its name was durable
        return files

    def stored_bytes(self, digest: bytes) -> int | None:
        """The bytes that the file of that digest takes; None where it is missing."""
        return self._files.size(self.name(digest))

    def read(self, size: int, digest: bytes) -> Vector:
        """The update of that digest, checked against it: so many numbers."""
        import numpy as np
        import zstandard

        path = self.path(digest)
        try:
            packed = pseudonyms.open_sealed(self._keyring.secret, b"update/" + digest, self._files.read(path.name))
            if packed is None:
                raise IntegrityError(f"update file {path.name} is damaged: it is not what was sealed")
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

    def leftovers(self, named: set[str]) -> list[Path]:
        """Files that no row names: leavers', those of superseded rounds, and those of rounds never recorded."""
        return [self.folder / name for name in self._files.names(beyond=named)]

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
    connection: sa.Connection, round_id: int, members: Sequence[Member], kept: Mapping[bytes, KeptFile]
) -> None:
    """Note which updates of a round are kept; its members are given in slot order."""
    noted = [
        {"round_id": round_id, "slot": slot, "name": file.name, "stored_bytes": file.stored_bytes}
        for slot, file in enumerate(kept.get(member.update_digest) for member in members)
        if file is not None
    ]
    if noted:
        connection.execute(updates.insert(), noted)


def named(connection: sa.Connection) -> set[str]:
    """The names of the files of all updates that are kept."""
    return set(connection.execute(sa.select(updates.c.name)).scalars())


def to_rebuild_from(connection: sa.Connection, members: Members, first: int) -> list[KeptRound]:
    """The kept rounds that a rebuild from `first` on goes through, in order, with the survivors' updates.

    Those that were undone and not gone through yet, and those that would be undone: standing, from `first` on.
    """
    used = sa.select(rebuilt.c.source)
    undone = ~rounds.c.standing & rounds.c.id.not_in(used)
    kept = sa.select(updates.c.round_id)
    query = (
        sa.select(rounds)
        .where(rounds.c.id.in_(kept), undone | (rounds.c.standing & (rounds.c.number >= first)))
        .order_by(rounds.c.number)
    )
    return [
        KeptRound(row.id, row.number, _members_of(connection, members, row))
        for row in connection.execute(query).all()
    ]


def _members_of(connection: sa.Connection, members: Members, header: sa.Row[Any]) -> tuple[Member, ...]:
    """Clients still in whose updates of a round are kept, in id order."""
    kept = set(connection.execute(sa.select(updates.c.slot).where(updates.c.round_id == header.id)).scalars())
    gone = withdrawn(connection)
    found = [
        Member(filled.client.id, filled.samples, filled.update_digest)
        for slot, filled in members.of_round(connection, header).items()
        if slot in kept and filled.client.number not in gone
    ]
    return tuple(sorted(found, key=lambda member: member.client))


def delete_of(connection: sa.Connection, members: Members, leavers: Sequence[int]) -> None:
    """Give up whatever these clients contributed."""
    for leaver in leavers:
        for some in batches(members.tokens(connection, leaver)):
            places = sa.select(memberships.c.round_id, memberships.c.slot).where(memberships.c.token.in_(some))
            _delete(connection, places)


def delete_superseded(connection: sa.Connection) -> None:
    """Give up the updates of rounds that do not stand."""
    undone = sa.select(updates.c.round_id, updates.c.slot).join(rounds, rounds.c.id == updates.c.round_id)
    _delete(connection, undone.where(~rounds.c.standing))


def _delete(connection: sa.Connection, places: sa.Select[tuple[int, int]]) -> None:
    connection.execute(updates.delete().where(sa.tuple_(updates.c.round_id, updates.c.slot).in_(places)))
