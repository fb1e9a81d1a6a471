"""Updates that a run keeps, because its mechanism needs them: one file each, encrypted.

Name and key of a file derive from its client's key and the round. So a file is bound to its membership, two of them
never look alike whatever they hold, and each is closed for good once its client is forgotten. Sizes are padded.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from disavow.domain import Member
from disavow.errors import IntegrityError, RunUnsafe
from disavow.ledger import pseudonyms
from disavow.ledger.blobs import Blobs, blobs_of, folder_of
from disavow.ledger.clients import withdrawn
from disavow.ledger.files import Folder
from disavow.ledger.members import UNKNOWN, Filled, Members, RoundKeys, batches
from disavow.ledger.models import Vector
from disavow.ledger.pseudonyms import RoundName
from disavow.ledger.schema import memberships, rebuilt, rounds, updates, withdrawals

UPDATES = "updates"
_SUFFIX = ".update"
_NAMES = r"[0-9a-f]{64}\.update"
_LENGTH = struct.Struct(">Q")
_PADDED = 4096
"""What is sealed is padded to a multiple of so many bytes."""


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


def name_of(key: bytes, where: RoundName) -> str:
    """Name the file of the update that a client, by its key, brought to a round."""
    return pseudonyms.derive(key, "update-name", where.encoded).hex() + _SUFFIX


def _place(where: RoundName) -> bytes:
    return b"update/" + where.encoded


class UpdateStore:
    """The files of updates; their place is there once there is something to keep.

    Args:
        place: Where they lie; a path is a folder of a run.

    """

    def __init__(self, place: Path | Blobs) -> None:
        self.blobs: Blobs = Folder(place, _NAMES) if isinstance(place, Path) else place

    @classmethod
    def of_run(cls, directory: Path, run_id: str) -> Self:
        """The store of a run, wherever that has its models."""
        return cls(blobs_of(directory, run_id, UPDATES, _NAMES))

    @property
    def folder(self) -> Path:
        """The folder of the files, in a run that has them in its directory."""
        return folder_of(self.blobs)

    def path(self, filled: Filled) -> Path:
        """Where what a client brought to a round lies."""
        return self.folder / name_of(filled.key, filled.where)

    def write(self, kept: Mapping[str, Vector], by: RoundKeys, *, compress: bool = True) -> dict[str, KeptFile]:
        """Store updates of a round durably.

        Args:
            kept: The updates, by client.
            by: The round's name, and the keys of its participants.
            compress: Whether they are compressed.

        Returns:
            The file of each, by client.

        """
        import numpy as np
        import zstandard

        if kept:
            self.blobs.make()
        packer = zstandard.ZstdCompressor(level=_COMPRESSED if compress else _AS_THEY_ARE)
        files = {}
        for client, vector in kept.items():
            key = by.keys[client]
            packed = packer.compress(np.ascontiguousarray(vector, dtype="<f4").tobytes())
            content = _LENGTH.pack(len(packed)) + packed
            padded = content.ljust(len(content) + -len(content) % _PADDED, b"\0")
            name, sealed = name_of(key, by.where), pseudonyms.seal(key, _place(by.where), padded)
            self.blobs.write(name, sealed)
            files[client] = KeptFile(name, len(sealed))
        if kept:
            self.blobs.sync()
        return files

    def stored_bytes(self, filled: Filled) -> int | None:
        """The bytes that the file of an update takes; None where it is missing."""
        return self.blobs.size(name_of(filled.key, filled.where))

    def read(self, size: int, filled: Filled) -> Vector:
        """Read what a client brought to a round, checked against the digest that was recorded.

        Args:
            size: How many numbers it has.
            filled: The client's slot.

        Raises:
            IntegrityError: The file is missing, or not what was stored.

        """
        import numpy as np
        import zstandard

        name = name_of(filled.key, filled.where)
        try:
            content = pseudonyms.open_sealed(filled.key, _place(filled.where), self.blobs.read(name))
            if content is None:
                raise IntegrityError(f"update file {name} is damaged: it is not what was sealed")
            [length] = _LENGTH.unpack_from(content)
            packed = content[_LENGTH.size : _LENGTH.size + length]
            if zstandard.frame_content_size(packed) != 4 * size:
                raise IntegrityError(f"update file {name} is damaged: it is not of the model's size")
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=4 * size)
        except FileNotFoundError:
            raise IntegrityError(f"update file {name} is missing") from None
        except (zstandard.ZstdError, RunUnsafe) as error:
            raise IntegrityError(f"update file {name} is damaged: {error}") from None
        if hashlib.sha256(data).digest() != filled.update_digest:
            raise IntegrityError(f"update file {name} is damaged: its content has another digest")
        return np.frombuffer(data, "<f4").astype(np.float32)

    def leftovers(self, named: set[str]) -> list[str]:
        """Files that no row names: leavers', those of superseded rounds, and those of rounds never recorded."""
        return self.blobs.names(beyond=named)

    def strangers(self) -> list[str]:
        """What lies here and is no update file; it is left alone."""
        return self.blobs.others()

    def remove(self, names: Sequence[str]) -> None:
        """Delete files durably."""
        self.blobs.remove(names)


# -- rows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptRound:
    """A round whose updates are kept: its row, its number, and the slots whose updates are there, in id order."""

    round_id: int
    number: int
    filled: tuple[Filled, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """Whose updates are there, in id order."""
        return tuple(Member(each.client.id, each.samples, each.update_digest) for each in self.filled)


def insert(
    connection: sa.Connection, round_id: int, members: Sequence[Member], kept: Mapping[str, KeptFile]
) -> None:
    """Note which updates of a round are kept; its members are given in slot order."""
    noted = [
        {"round_id": round_id, "slot": slot, "name": file.name, "stored_bytes": file.stored_bytes}
        for slot, file in enumerate(kept.get(member.client) for member in members)
        if file is not None
    ]
    if noted:
        connection.execute(updates.insert(), noted)


def named(connection: sa.Connection) -> set[str]:
    """The names of the files of all updates that are kept."""
    return set(connection.execute(sa.select(updates.c.name)).scalars())


def to_rebuild_from(
    connection: sa.Connection, members: Members, first: int, most: int | None = None
) -> list[KeptRound]:
    """The kept rounds that a rebuild from `first` on goes through, in order, with the survivors' updates.

    Those that were undone and not gone through yet, and those that would be undone: standing, from `first` on. With
    `most` only so many of them are read: each is linear in its members.
    """
    used = sa.select(rebuilt.c.source)
    undone = ~rounds.c.standing & rounds.c.id.not_in(used)
    kept = sa.select(updates.c.round_id)
    query = (
        sa.select(rounds)
        .where(rounds.c.id.in_(kept), undone | (rounds.c.standing & (rounds.c.number >= first)))
        .order_by(rounds.c.number)
        .limit(most)
    )
    return [
        KeptRound(row.id, row.number, _filled(connection, members, row)) for row in connection.execute(query).all()
    ]


def _filled(connection: sa.Connection, members: Members, header: sa.Row[Any]) -> tuple[Filled, ...]:
    """Slots of clients still in whose updates of a round are kept, in the order of ids."""
    kept = set(connection.execute(sa.select(updates.c.slot).where(updates.c.round_id == header.id)).scalars())
    gone = withdrawn(connection)
    found = [
        filled
        for slot, filled in members.of_round(connection, header).items()
        if slot in kept and filled.client.number not in gone
    ]
    return tuple(sorted(found, key=lambda filled: filled.client.id))


def delete_of(connection: sa.Connection, members: Members, leavers: Sequence[int]) -> None:
    """Give up whatever these clients contributed."""
    for leaver in leavers:
        if leaver == UNKNOWN:  # nobody can say which slots were theirs; but all of them are withdrawn by now
            _delete(connection, sa.select(withdrawals.c.round_id, withdrawals.c.slot))
            continue
        for some in batches(members.tokens(connection, leaver)):
            slots = sa.select(memberships.c.round_id, memberships.c.slot).where(memberships.c.token.in_(some))
            _delete(connection, slots)


def delete_superseded(connection: sa.Connection) -> None:
    """Give up the updates of rounds that do not stand."""
    undone = sa.select(updates.c.round_id, updates.c.slot).join(rounds, rounds.c.id == updates.c.round_id)
    _delete(connection, undone.where(~rounds.c.standing))


def _delete(connection: sa.Connection, slots: sa.Select[tuple[int, int]]) -> None:
    connection.execute(updates.delete().where(sa.tuple_(updates.c.round_id, updates.c.slot).in_(slots)))
