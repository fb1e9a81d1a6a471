"""How large a proof will be, from counts alone: before it is made, and rather too large than too small."""

from __future__ import annotations

from dataclasses import dataclass

from disavow.ledger import Reader
from disavow.ledger.log import LogSize

ROUND_LEAF = 512
"""Bytes of a round's leaf, and more."""

_HASH = len('"",') + 44
_SUPERSEDED = len("1000000,")
_CLUSTER, _WITHDRAWN = 400, 120
_STATEMENT, _ENVELOPE = 2_000, 400


def sealed_bytes(payload: int) -> int:
    """Compute the size of an envelope.

    Args:
        payload: How many bytes it holds.

    """
    return 4 * (payload + 2) // 3 + _ENVELOPE


@dataclass(frozen=True)
class ProofSizes:
    """The sizes of the proofs of one run, from counts in its log."""

    reader: Reader
    log: LogSize
    maps: int
    """Bytes of the maps of withdrawals."""

    @classmethod
    def read(cls, reader: Reader) -> ProofSizes:
        """Count what is in the log as it is now.

        Args:
            reader: The ledger.

        """
        log = reader.log_size()
        maps = sum(len("null,") * each + len("[],") for each in log.covered) + log.changed * _HASH
        return cls(reader, log, maps)

    def of(self, client: int, *, before: int | None = None, leavers: int = 0) -> int:
        """Estimate the bytes of the sealed proof of a client.

        Args:
            client: The client's number.
            before: Only rounds with smaller numbers stand then.
            leavers: How many are about to leave together, and are not in the log yet.

        """
        payload = _STATEMENT + self.log.leaf_bytes + self.maps + leavers * ROUND_LEAF
        for each in self.reader.rounds_of_client(client):
            superseded = not each.standing or (before is not None and each.number >= before)
            if superseded or each.size is None:
                payload += _SUPERSEDED + _HASH
            else:
                gone = self.log.withdrawn.get(each.round_id, 0) + leavers
                payload += _HASH + self._cluster(each.size, each.clusters) + gone * _WITHDRAWN
        return sealed_bytes(payload)

    def _cluster(self, size: int, count: int) -> int:
        path = (count - 1).bit_length() * _HASH
        return _CLUSTER + path + size * _HASH
