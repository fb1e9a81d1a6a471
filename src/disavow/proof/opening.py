"""The opening: who the leaver is. A file for the leaver alone; without it a proof names nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from disavow.errors import VerificationError
from disavow.proof import canonical
from disavow.proof.commitment import commit, commit_client
from disavow.proof.history import History
from disavow.proof.kinds import OPENING, expecting
from disavow.proof.leaves import Leaf
from disavow.proof.reading import (
    exactly,
    fields,
    hashed,
    list_of,
    optional,
    positive,
    record,
    run_id,
    text,
    to_base64,
    whole,
)

TYPE = "disavow/opening/v1"
_MOST_BYTES = 16 << 20
_MOST_ROUNDS = 1_000_000


@dataclass(frozen=True)
class OpenedSlot:
    """What opens one commitment: the round's leaf, the slot, the salt and the update's digest."""

    leaf: int
    slot: int
    salt: bytes
    update: bytes


@dataclass(frozen=True)
class Opening:
    """A client's id, and the salts that link it to its slots."""

    run_id: str
    client: str
    salt: bytes | None
    """Opens the commitment to who asked; None for a what-if, where nobody has."""
    rounds: tuple[OpenedSlot, ...]

    def to_bytes(self) -> bytes:
        """The opening as a file."""
        return canonical.encode(
            {
                "type": TYPE,
                "run": self.run_id,
                "client": self.client,
                "salt": None if self.salt is None else to_base64(self.salt),
                "rounds": [
                    {
                        "leaf": opened.leaf,
                        "slot": opened.slot,
                        "salt": to_base64(opened.salt),
                        "update": to_base64(opened.update),
                    }
                    for opened in self.rounds
                ],
            }
        )


def read_opening(data: bytes) -> Opening:
    """Read what `to_bytes` wrote."""
    opened = record({"leaf": positive, "slot": whole, "salt": hashed, "update": hashed})
    with expecting(data, OPENING):
        value = canonical.decode(data, what="the opening", most=_MOST_BYTES)
        found = fields(
            value,
            "the opening",
            {
                "type": exactly(TYPE),
                "run": run_id,
                "client": text,
                "salt": optional(hashed),
                "rounds": list_of(opened, most=_MOST_ROUNDS),
            },
        )
    rounds = tuple(OpenedSlot(**each) for each in found["rounds"])
    return Opening(found["run"], found["client"], found["salt"], rounds)


def check_opening(
    opening: Opening, clusters: Sequence[Leaf], superseded: Sequence[int], history: History, asked: bytes | None
) -> None:
    """The client of the opening is the one in every cluster shown, and the one who asked.

    `asked` is the commitment to who asked; None for a what-if. The opening is made once, and the proof may be of a
    later head: rounds of the leaver that were `superseded` since are open, but no longer shown.
    """
    if opening.run_id != history.run_id:
        raise VerificationError("the opening is of another run")
    if (opening.salt is None) != (asked is None):
        raise VerificationError("the opening of a what-if is no opening of an erasure, nor the reverse")
    run_id, client = opening.run_id, opening.client
    if opening.salt is not None and commit_client(run_id=run_id, salt=opening.salt, client=client) != asked:
        raise VerificationError("it does not open the request: somebody else asked")
    gone, leaves = set(superseded), [opened.leaf for opened in opening.rounds]
    standing = [opened for opened in opening.rounds if opened.leaf not in gone]
    places = [(cluster["leaf"], cluster["slot"]) for cluster in clusters]
    if [(opened.leaf, opened.slot) for opened in standing] != places or leaves != sorted(set(leaves)):
        raise VerificationError("the opening is not of the slots that the proof shows")
    for opened, cluster in zip(standing, clusters, strict=True):
        number = history.leaves[opened.leaf]["number"]
        made = commit(
            run_id=run_id, round_number=number, salt=opened.salt, client=client, update_digest=opened.update
        )
        if made != cluster["slots"][opened.slot - cluster["first"]]:
            raise VerificationError(f"it does not open the slot of round {number}: it is another client's")


def refuse_other_client(found: str, asked: str | None, what: str) -> None:
    """Raise if a client was asked for and this is not it, byte for byte; escaped, so that one can see why."""
    if asked is not None and found != asked:
        raise VerificationError(f"{what} is about {found!a}, not about {asked!a}")
