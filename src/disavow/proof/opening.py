"""The opening: who the leaver is. A file for the leaver alone; without it a proof names nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from disavow.errors import VerificationError
from disavow.proof import canonical
from disavow.proof.record import (
    LEFT_OUT,
    OPENING,
    AtMost,
    Codec,
    Hash,
    Key,
    Positive,
    Record,
    RunId,
    Text,
    Whole,
    constant,
    expecting,
)

TYPE = "disavow/opening/v1"
_MOST_BYTES = 16 << 20
_MOST_ROUNDS = 1_000_000
_MOST_RECORDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class OpenedSlot(Record):
    """What opens one commitment: the round's leaf, the slot, the salt and the update's digest."""

    leaf: Positive
    slot: Whole
    salt: Hash
    update: Hash


@dataclass(frozen=True, kw_only=True)
class OpenedRecords(Record):
    """What opens the commitment to the records that were to be erased: the salt, and their keys."""

    salt: Hash
    keys: Annotated[tuple[Text, ...], AtMost(_MOST_RECORDS)]


@dataclass(frozen=True, kw_only=True)
class Opening(Record):
    """A client's id, and the salts that link it to its slots.

    `salt` opens the commitment to who asked; None for a what-if, where nobody has. `records` is left out where the
    whole client was to be erased.
    """

    type: Annotated[str, constant(TYPE)] = TYPE
    run_id: Annotated[RunId, Key("run")]
    client: Text
    salt: Hash | None
    rounds: Annotated[tuple[OpenedSlot, ...], AtMost(_MOST_ROUNDS)]
    records: Annotated[OpenedRecords | None, Codec(OpenedRecords.parse, OpenedRecords.to_json), LEFT_OUT] = None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read an opening; nothing of it is believed yet.

        Args:
            data: The file.

        Raises:
            Unreadable: It is no opening.

        """
        with expecting(data, OPENING):
            return cls.parse(canonical.decode(data, what="the opening", most=_MOST_BYTES), "the opening")


def refuse_other_client(found: str, expected: str | None, what: str) -> None:
    """Refuse a file about another client than the one asked for, byte for byte.

    Args:
        found: The client that the file is about.
        expected: The client asked for; None where any will do.
        what: What the file is, for the error.

    Raises:
        VerificationError: It is about another; ids are escaped, so that one can see why.

    """
    if expected is not None and found != expected:
        raise VerificationError(f"{what} is about {found!a}, not about {expected!a}")
