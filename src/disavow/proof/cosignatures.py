"""Cosignatures of checkpoints by witnesses, as C2SP's tlog-cosignature has them (cosignature/v1).

A witness cosigns a head only if it extends every head of that log which it has cosigned before. So who trusts a
witness, and finds its cosignature, knows that whoever trusts it too was shown the same history up to there.

A cosignature is a line of the note like the log's own signature. What is signed has two lines before the text of
the checkpoint, ``cosignature/v1`` and ``time T``; the line holds the key's hash, T (8 bytes), and the signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from disavow.errors import Unreadable, VerificationError
from disavow.proof.notes import Checkpoint, Line, PublicKey, Signer, read_signature, write_signature

MOST_WITNESSES = 1_000
"""Keys of witnesses in a file, and cosignatures in a proof, that are read."""

LARGEST_FILE = 1 << 20
"""Bytes of a file with keys of witnesses that are read."""

_TIME_BYTES = 8
_SIGNATURE_BYTES = 64
_LATEST = 253_402_300_799
"""The last second of the year 9999, in seconds since 1970."""


@dataclass(frozen=True)
class WitnessKey(PublicKey):
    """Whom a cosignature is by. As text: ``name+hash+base64``, the verifier key of C2SP's tlog-cosignature."""

    algorithm: ClassVar[bytes] = b"\x04"
    kind: ClassVar[str] = "the key of a witness"


@dataclass(frozen=True, repr=False)
class WitnessSigner(Signer):
    """The private key of a witness, with its name."""

    @property
    def public(self) -> WitnessKey:
        """What others check its cosignatures with."""
        return WitnessKey(self.name, self.private.public_key().public_bytes_raw())

    def cosign(self, head: Checkpoint, time: int) -> str:
        """Cosign a head; the line, without its end.

        Args:
            head: The head, which must extend all that were cosigned before.
            time: Now, in whole seconds since 1970.

        """
        signature = self.sign(_signed_text(head, time))
        return write_signature(self.public, time.to_bytes(_TIME_BYTES, "big") + signature)


@dataclass(frozen=True)
class Cosignature:
    """A line that was read; nobody has checked its signature.

    Args:
        line: Name and hash of the key that it is said to be by.
        data: What stands behind them: eight bytes of time and 64 of signature, if it is a cosignature at all.

    """

    line: Line
    data: bytes

    @classmethod
    def parse(cls, text: str, what: str = "a cosignature") -> Cosignature:
        """Read a line, without its end.

        Args:
            text: The line.
            what: What it is, for the error.

        Raises:
            Unreadable: It is no line with a signature.

        """
        return cls(*read_signature(text, what))

    @property
    def time(self) -> int:
        """When it was made, in seconds since 1970, as the witness says."""
        return int.from_bytes(self.data[:_TIME_BYTES], "big")

    @property
    def moment(self) -> str:
        """The same as text, in UTC; only of one that `holds`."""
        return datetime.fromtimestamp(self.time, UTC).isoformat()

    def holds(self, key: WitnessKey, head: Checkpoint) -> bool:
        """Say whether it is this witness's cosignature of a head.

        Args:
            key: The witness.
            head: The head.

        """
        if len(self.data) != _TIME_BYTES + _SIGNATURE_BYTES or not 0 < self.time <= _LATEST:
            return False
        return key.holds(self.data[_TIME_BYTES:], _signed_text(head, self.time))


def _signed_text(head: Checkpoint, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{head.body}".encode()


def cosigners(
    head: Checkpoint, cosignatures: Iterable[Cosignature], witnesses: Sequence[WitnessKey]
) -> dict[WitnessKey, Cosignature]:
    """Find which of some witnesses have cosigned a head, each with its latest cosignature.

    Lines under other keys are somebody else's and are not looked at. Witnesses are told apart by the bytes of their
    keys: under two names it is still one.

    Args:
        head: The head.
        cosignatures: The lines that were read.
        witnesses: The witnesses to look for.

    Raises:
        VerificationError: A line under the name and hash of one of them is not its cosignature of this head.

    """
    by_line: dict[Line, list[Cosignature]] = {}
    for each in cosignatures:
        by_line.setdefault(each.line, []).append(each)
    found: dict[bytes, tuple[WitnessKey, Cosignature]] = {}
    for key in dict.fromkeys(witnesses):  # a key that stands twice costs nothing twice
        for each in by_line.get((key.name, key.hash), ()):
            if not each.holds(key, head):
                raise VerificationError(
                    f"what is said to be the cosignature of {key.name} ({key.id[:16]}) is not one of this head"
                )
            if key.raw not in found or found[key.raw][1].time < each.time:
                found[key.raw] = key, each
    return dict(found.values())


def parse_witnesses(text: str, where: str = "the witnesses' keys") -> tuple[WitnessKey, ...]:
    """Read the keys of witnesses, one a line; empty lines are left out.

    Args:
        text: One line or several.
        where: Where it stands, for the error.

    Raises:
        Unreadable: A line is no key of a witness, there is none, or there are more than are read.

    """
    lines = [line.strip(" \t\r") for line in text.split("\n")]
    found = tuple(WitnessKey.parse(line, where) for line in lines if line)
    if not 0 < len(found) <= MOST_WITNESSES:
        raise Unreadable(f"{where}: there are {len(found)}; allowed: 1 to {MOST_WITNESSES:,}, one a line")
    return found
