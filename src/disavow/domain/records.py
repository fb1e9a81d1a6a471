"""Records of a client that no round may train on any more, known by keyed hashes of their keys."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field

_TAG = b"disavow/record/v1\x00"


@dataclass(frozen=True)
class Exclusions:
    """The records of one client that were erased.

    Args:
        key: What the hashes are keyed with, 32 bytes: the client's own, from the keyring.
        hashes: HMAC-SHA-256 of each record's key.

    >>> excluded = Exclusions(bytes(32)).adding(["patient-17"])
    >>> excluded.excludes("patient-17"), excluded.excludes("patient-18")
    (True, False)
    """

    key: bytes = field(repr=False)
    hashes: frozenset[bytes] = frozenset()

    def hash_of(self, record: str) -> bytes:
        """Compute the keyed hash of a record's key."""
        return hmac.digest(self.key, _TAG + record.encode("utf-8", "surrogatepass"), "sha256")

    def excludes(self, record: str) -> bool:
        """Say whether a record was erased."""
        return bool(self.hashes) and self.hash_of(record) in self.hashes

    def adding(self, records: Iterable[str]) -> Exclusions:
        """Give the same with more records."""
        return Exclusions(self.key, self.hashes | {self.hash_of(record) for record in records})
