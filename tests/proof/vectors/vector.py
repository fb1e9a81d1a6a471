"""One vector: a proof, what to verify it with, and what is to come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from disavow.proof.cosignatures import WitnessKey
from disavow.proof.verify import TrustedKey
from tests.proof.made_proofs import SERVER, Made

TRUSTED = (TrustedKey(SERVER.public),)


@dataclass(frozen=True)
class Vector:
    """`fails` is the name of the check that refuses it, "" if a file is refused before; None if it is valid."""

    name: str
    about: str
    proof: bytes
    fails: str | None = None
    named: bool = True
    opening: bytes | None = None
    receipts: Sequence[bytes] = ()
    checkpoint: bytes | None = None
    model: str | None = None
    what_if: bool = False
    trusted: Sequence[TrustedKey] = TRUSTED
    client: str | None = None
    key: bytes | None = None
    """The key file, where it is another than that of `trusted`."""
    word: bytes | None = None
    witnesses: Sequence[WitnessKey] = ()
    quorum: int | None = None
    witness_file: bytes | None = None
    """The file with the witnesses' keys, where it is another than that of `witnesses`."""
    serving: bytes | None = None


def genuine(
    name: str,
    about: str,
    made: Made,
    *,
    receipts: Sequence[bytes] = (),
    checkpoint: str | None = None,
    model: str | None = None,
    trusted: Sequence[TrustedKey] = TRUSTED,
    named: bool = True,
    client: str | None = None,
    serving: bytes | None = None,
) -> Vector:
    """A proof that holds, with its opening."""
    return Vector(
        name,
        about,
        made.proof,
        None,
        named,
        made.opening.encode(),
        receipts,
        None if checkpoint is None else checkpoint.encode(),
        model,
        made.what_if,
        trusted,
        client,
        word=None if made.word is None else made.word.encode(),
        serving=serving,
    )
