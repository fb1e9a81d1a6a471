"""How large a proof will be, from counts alone: before it is made, and rather too large than too small."""

from __future__ import annotations

from dataclasses import dataclass

from disavow.ledger import Reader
from disavow.ledger.log import LogSize

ROUND_LEAF = 512
"""Bytes of a round's leaf, and more."""

_HASH = len('"",') + 44
_CLOSED_ROUND = 86
"""Two hashes in base64, one behind the other."""

_EVENT = 64
"""What stands around closed rounds between two other leaves."""

_ENTRY = 10
"""A withdrawn slot in the leaf of its withdrawal."""

_SUPERSEDED = len("1000000,")
_CLUSTER = 460
_STATEMENT, _ENVELOPE = 2_000, 400


def sealed_bytes(payload: int) -> int:
    """Compute the size of an envelope.

    Args:
        payload: How many bytes it holds.

    """
    return (
        4 * (payload + 2) * 17 // 60 + _ENVELOPE
    )  # packed: hashes in base64 take less than 0.8, all else still less


@dataclass(frozen=True)
class ProofSizes:
    """The sizes of the proofs of one run, from counts in its log."""

    reader: Reader
    log: LogSize

    @classmethod
    def read(cls, reader: Reader) -> ProofSizes:
        """Count what is in the log as it is now.

        Args:
            reader: The ledger.

        """
        return cls(reader, reader.log_size())

    def of(self, client: int, *, before: int | None = None, leavers: int = 0) -> int:
        """Estimate the bytes of the sealed proof of a client.

        Args:
            client: The client's number.
            before: Only rounds with smaller numbers stand then.
            leavers: How many are about to leave together, and are not in the log yet. The others are taken to have
                been in as many rounds as this one.

        """
        mine = self.reader.rounds_of_client(client)
        payload = _STATEMENT + self.log.event_bytes + self.log.events * _EVENT
        payload += self.log.rounds * _CLOSED_ROUND + (self.log.shown + 1) * ROUND_LEAF
        payload += leavers * (ROUND_LEAF + len(mine) * _ENTRY)
        for each in mine:
            payload += _HASH * (1 + max(leavers - 1, 0).bit_length())
            superseded = not each.standing or (before is not None and each.number >= before)
            if superseded or each.size is None:
                payload += _SUPERSEDED
            else:
                payload += ROUND_LEAF + self._cluster(each.size, each.clusters)
        return sealed_bytes(payload)

    def _cluster(self, size: int, count: int) -> int:
        path = (count - 1).bit_length() * _HASH
        return _CLUSTER + path + size * _HASH
