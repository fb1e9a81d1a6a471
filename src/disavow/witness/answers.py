"""What a witness answers to add-checkpoint (C2SP's tlog-witness): it cosigns only what extends what it has seen.

The log is one that it knows, and signed the head; the old size is the one last seen; the proof leads from there.
Then the head is kept, durably, and only then its cosignature is given out.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from disavow.domain import escaped
from disavow.errors import ConfigError, Unreadable, VerificationError
from disavow.proof.cosignatures import WitnessSigner
from disavow.proof.keys import trusted_keys
from disavow.proof.merkle import HASH_BYTES, is_consistent, root_of
from disavow.proof.notes import LARGEST, Checkpoint, KeyIndex, PublicKey, TrustedKey, open_with_any, read_note
from disavow.proof.validation import from_base64
from disavow.proof.witness_client import SIZE_TYPE
from disavow.witness.heads import MOST_LOGS, SeenHeads

LARGEST_REQUEST = 1 << 17
"""Bytes of a request that are read: the longest note, and a proof."""

_MOST_HASHES = 63
_LONGEST_NOTE = LARGEST - 1024
"""Characters: with one more line, a note can still be read."""
_OLD = re.compile(r"old (0|[1-9][0-9]{0,14})")
_ANY = "*"

_logger = logging.getLogger("disavow.witness")

Clock = Callable[[], int]
"""Tells the time in whole seconds since 1970."""


def seconds_now() -> int:
    """Tell the present time in whole seconds since 1970."""
    return int(time.time())


@dataclass(frozen=True)
class KnownLog:
    """Logs that the witness cosigns for.

    Args:
        origin: The log's origin; where it ends with an asterisk, all that begin so.
        keys: The keys of which one must have signed a head.

    """

    origin: str
    keys: tuple[TrustedKey, ...]

    @classmethod
    def parse(cls, text: str) -> KnownLog:
        """Read ``NAME=KEY``, where KEY is a verifier key, or a file with one or with a list of keys.

        Args:
            text: What somebody wrote.

        Raises:
            ConfigError: It is nothing of the kind.

        """
        origin, separator, given = text.partition("=")
        if not separator or not origin or "\n" in origin or _ANY in origin[:-1]:
            raise ConfigError(f"--log is {text!a}; allowed: NAME=KEY, such as disavow/run/*=fl.example.org+...")
        try:
            keys: tuple[TrustedKey, ...] = (TrustedKey(PublicKey.parse(given, "--log")),)
        except Unreadable as error:
            if not Path(given).is_file():
                raise ConfigError(f"--log {origin}: {error}, and no file of that name is there") from None
            keys = tuple(trusted_keys(Path(given)))
        return cls(origin, keys)

    def covers(self, origin: str) -> bool:
        """Say whether a log is one of these.

        Args:
            origin: The log's origin.

        """
        if self.origin.endswith(_ANY):
            return origin.startswith(self.origin[:-1])
        return origin == self.origin


@dataclass(frozen=True)
class Answer:
    """What an HTTP answer says."""

    status: int
    body: str
    kind: str = "text/plain; charset=utf-8"


class Witness:
    """Cosigns the heads of some logs. Several threads may ask it.

    Args:
        signer: Its key.
        heads: What it has cosigned so far.
        logs: For whom it cosigns.
        clock: What time it is.

    """

    def __init__(
        self, signer: WitnessSigner, heads: SeenHeads, logs: Sequence[KnownLog], clock: Clock = seconds_now
    ) -> None:
        self.signer, self.logs = signer, tuple(logs)
        self._heads, self._clock = heads, clock
        self._turn = threading.Lock()

    def add_checkpoint(self, body: bytes) -> Answer:
        """Answer a request for a cosignature.

        Args:
            body: The request: ``old SIZE``, a consistency proof, an empty line, and the checkpoint.

        """
        try:
            old, proof, note, head = _read(body)
        except VerificationError as error:
            return _refuse(HTTPStatus.BAD_REQUEST, str(error))
        keys = [key for log in self.logs if log.covers(head.origin) for key in log.keys]
        if not keys:
            return _refuse(HTTPStatus.NOT_FOUND, "this log is not one that the witness knows", head)
        try:
            open_with_any(note, KeyIndex.of(keys), "the checkpoint", cosigned=True)
        except VerificationError as error:
            return _refuse(HTTPStatus.FORBIDDEN, str(error), head)
        if old > head.size:
            return _refuse(HTTPStatus.BAD_REQUEST, "the old size is larger than the checkpoint's", head)
        with self._turn:  # what is checked against is what is replaced
            return self._extend(old, proof, note, head)

    def _extend(self, old: int, proof: Sequence[bytes], note: str, head: Checkpoint) -> Answer:
        seen = self._heads.of(head.origin) or Checkpoint(head.origin, 0, root_of([]))
        if head.size == seen.size and head.root != seen.root:
            _tell(HTTPStatus.CONFLICT, "a fork: the witness has seen another root at this size", head)
            return Answer(HTTPStatus.CONFLICT, f"{seen.size}\n", SIZE_TYPE)
        if old != seen.size:
            _tell(HTTPStatus.CONFLICT, f"the witness has seen {seen.size} leaves, and {old} were expected", head)
            return Answer(HTTPStatus.CONFLICT, f"{seen.size}\n", SIZE_TYPE)
        if not is_consistent(seen.size, seen.root, head.size, head.root, proof):
            return _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "the proof does not lead from the last head", head)
        if self._heads.of(head.origin) is None and len(self._heads) >= MOST_LOGS:
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"the witness has {MOST_LOGS:,} logs already", head)
        line = self.signer.cosign(head, self._clock())
        if head != self._heads.of(head.origin):
            try:
                self._heads.keep(head, f"{note}{line}\n")
            except OSError as error:
                return _refuse(
                    HTTPStatus.INSUFFICIENT_STORAGE, f"the head could not be kept: {error.strerror}", head
                )
        _logger.info("cosigned %s at %d leaves", escaped(head.origin), head.size)
        return Answer(HTTPStatus.OK, f"{line}\n")


def _read(body: bytes) -> tuple[int, list[bytes], str, Checkpoint]:
    """The parts of a request: the old size, the proof, the note and the head in it."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Unreadable("the request is not UTF-8") from None
    before, separator, note = text.partition("\n\n")
    first, *lines = before.split("\n")
    old = _OLD.fullmatch(first)
    if old is None or not separator or len(lines) > _MOST_HASHES:
        raise Unreadable("the request does not begin with the old size and a proof of at most 63 hashes")
    proof = [from_base64(line, "a hash of the proof") for line in lines]
    if any(len(each) != HASH_BYTES for each in proof):
        raise Unreadable("a hash of the proof does not have 32 bytes")
    if len(note) > _LONGEST_NOTE:
        raise Unreadable("the checkpoint is too long")
    return int(old[1]), proof, note, read_note(note, "the checkpoint", cosigned=True).head


def _refuse(status: HTTPStatus, why: str, head: Checkpoint | None = None) -> Answer:
    _tell(status, why, head)
    return Answer(status, f"{why}\n")


def _tell(status: HTTPStatus, why: str, head: Checkpoint | None) -> None:
    what = "a request" if head is None else f"{escaped(head.origin)} at {head.size} leaves"
    _logger.warning("refused %s (HTTP %d): %s", what, status.value, escaped(why))
