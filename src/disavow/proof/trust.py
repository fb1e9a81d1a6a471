"""The keys that a verifier trusts: from when until when each was in use, and which were revoked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from disavow.proof.notes import KeyIndex, PublicKey


@dataclass(frozen=True)
class TrustedKey:
    """A key that the verifier trusts, and between which moments; no moment means no limit."""

    key: PublicKey
    since: str | None = None
    until: str | None = None
    revoked: str | None = None
    """When it was revoked. Nothing that it signed is accepted, whenever that was: a thief writes any date."""

    def in_use(self, time: str) -> bool:
        """Whether the key was in use then: at a moment, or on a day."""
        return (self.since is None or self.since[: len(time)] <= time) and not self.retired_before(time)

    def retired_before(self, time: str) -> bool:
        """Whether the key had been replaced by then: by a moment, or on a day before."""
        return self.until is not None and self.until[: len(time)] < time


def index_of(trusted: Sequence[TrustedKey]) -> KeyIndex:
    """Index trusted keys; a key is revoked if one of the entries with its bytes says so."""
    revoked = {each.key.raw: each.revoked for each in trusted if each.revoked is not None}
    return KeyIndex((each.key for each in trusted), revoked)
