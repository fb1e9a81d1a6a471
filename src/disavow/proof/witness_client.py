"""Ask a witness to cosign a head, as C2SP's tlog-witness has it (add-checkpoint over HTTP)."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from disavow.errors import Unreadable, VerificationError, WitnessRefused, WitnessUnavailable
from disavow.proof.cosignatures import Cosignature, WitnessKey, cosigners
from disavow.proof.notes import Checkpoint, read_note
from disavow.proof.validation import to_base64

SIZE_TYPE = "text/x.tlog.size"
"""The content type of an answer that says how large the log was when the witness last saw it."""

_LARGEST_ANSWER = 1 << 16
_SIZE = re.compile(rb"(0|[1-9][0-9]{0,14})\n")
_ATTEMPTS = 3
"""How often one head is sent: once more where the witness knows another size, and once where that has changed."""

Consistency = Callable[[int], Sequence[bytes]]
"""Proves that the log only grew since it had so many leaves, at least one (RFC 6962, 2.1.2)."""


@dataclass
class Witness:
    """A witness that can be asked. It keeps its connection; one thread at a time may use it.

    Args:
        url: Under which it serves `add-checkpoint`.
        key: Whose cosignatures are expected.

    """

    url: str
    key: WitnessKey
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    def cosign(self, note: str, *, known: int, consistency: Consistency, timeout: float) -> Cosignature:
        """Ask for a cosignature of a checkpoint; where the witness last saw another size, go on from there.

        Args:
            note: The signed checkpoint.
            known: The size that the witness is expected to have seen last; 0 where it has seen none.
            consistency: Proves that the log only grew since a size.
            timeout: Seconds to wait for all of it.

        Returns:
            The cosignature, which holds.

        Raises:
            WitnessUnavailable: It could not be reached, or did not answer in time or as a witness does.
            WitnessRefused: It does not cosign this head: it does not know the log, or has seen another history.

        """
        head, deadline = read_note(note, "the checkpoint", cosigned=True).head, time.monotonic() + timeout
        size = min(known, head.size)
        for _ in range(_ATTEMPTS):
            proof = consistency(size) if 0 < size < head.size else ()
            status, kind, body = self._post(_request(size, proof, note), deadline)
            if status == http.client.OK:
                return self._cosignature(head, body)
            if status != http.client.CONFLICT or kind != SIZE_TYPE:
                break
            seen = self._size(body)
            if seen > head.size:
                raise self._refused(
                    f"it has seen a head of {seen} leaves, and this one has {head.size}: the log was cut off, or "
                    "this is an older copy of it"
                )
            if seen == size:
                break  # it has this size, and another root
            size = seen
        if status in (http.client.CONFLICT, http.client.UNPROCESSABLE_ENTITY):
            raise self._refused("this head does not continue the one that it has seen: two histories of one log")
        if status in (http.client.BAD_REQUEST, http.client.FORBIDDEN, http.client.NOT_FOUND):
            reason = body[:200].decode("utf-8", "replace").strip()
            raise self._refused(f"HTTP {status}{f', {reason}' if reason else ''}")
        raise self._unavailable(f"it answers with HTTP {status}")

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _post(self, body: bytes, deadline: float) -> tuple[int, str, bytes]:
        """Send a request over the kept connection, or over a new one where that was closed meanwhile."""
        kept = self._connection is not None
        try:
            return self._exchange(body, deadline)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not kept or isinstance(error, TimeoutError):
                raise self._unavailable(_in_words(error)) from None
        try:
            return self._exchange(body, deadline)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unavailable(_in_words(error)) from None

    def _exchange(self, body: bytes, deadline: float) -> tuple[int, str, bytes]:
        parts = urlsplit(self.url)
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self._connection is None:
            host = parts.hostname or ""
            if parts.scheme == "https":
                import ssl  # takes as long to load as all else here

                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(host, parts.port, timeout=left, context=context)
            else:
                self._connection = http.client.HTTPConnection(host, parts.port, timeout=left)
        connection = self._connection
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        connection.request("POST", f"{parts.path.rstrip('/')}/add-checkpoint", body, headers)
        answer = connection.getresponse()
        data = answer.read(_LARGEST_ANSWER + 1)
        if len(data) > _LARGEST_ANSWER:
            raise http.client.HTTPException("an answer that is too large")
        return answer.status, answer.headers.get_content_type(), data

    def _cosignature(self, head: Checkpoint, body: bytes) -> Cosignature:
        """The witness's own among the lines of its answer."""
        try:
            lines = [Cosignature.parse(line) for line in body.decode().removesuffix("\n").split("\n")]
            found = cosigners(head, lines, [self.key])
        except (UnicodeDecodeError, Unreadable, VerificationError) as error:
            raise self._unavailable(f"its answer is no cosignature of this head: {error}") from None
        if self.key not in found:
            raise self._unavailable("its answer is by another key than the one that was given for it")
        return found[self.key]

    def _size(self, body: bytes) -> int:
        found = _SIZE.fullmatch(body)
        if found is None:
            raise self._unavailable("it does not say which size it has seen")
        return int(found[1])

    def _refused(self, why: str) -> WitnessRefused:
        return WitnessRefused(f"witness {self.key.name} refuses the head: {why}")

    def _unavailable(self, why: str) -> WitnessUnavailable:
        return WitnessUnavailable(f"witness {self.key.name} gave no cosignature: {why}")


def _request(size: int, proof: Sequence[bytes], note: str) -> bytes:
    return "".join([f"old {size}\n", *(f"{to_base64(each)}\n" for each in proof), "\n", note]).encode()


def _in_words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return " ".join(str(error).split()) or type(error).__name__
