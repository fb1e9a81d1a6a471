"""The config of each client's messages: what `names` lists, beside what the app wants to send."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import ConfigRecord

from disavow.erasure.receipts import receipts, receipts_of_round
from disavow.flower.protocol import ATTEMPT, BATCHES, CLIENT, PUBLIC_KEY, RECEIPT, ROUND, RUN, SEED
from disavow.ledger import Ledger
from disavow.rounds.randomness import derive

_SEED_BITS = 63


class MessageConfigs:
    """Writes the config of each client's message. The receipts of a round are made once."""

    def __init__(self, ledger: Ledger, *, seed: int) -> None:
        self._ledger, self._seed = ledger, seed
        self._newest = ""
        self._next = ledger.next_round()
        self._receipts: Mapping[str, bytes] = {}

    def config(self, base: ConfigRecord, client: str, round_number: int) -> ConfigRecord:
        """The config for one client: what the app wants to send, and ours beside it."""
        config = ConfigRecord(dict(base))
        config[SEED] = _number(derive("training", self._seed, round_number, client, "client"))
        config[BATCHES] = derive("training", self._seed, round_number, client, "batches")
        for key, value in self.evidence(client).items():
            config[key] = value
        return config

    def prepare(self) -> None:
        """Make the receipts of the newest standing round, unless they are made."""
        self._next = self._ledger.next_round()
        number, _ = self._next
        newest = self._ledger.digest_before(number)
        if newest != self._newest:
            self._receipts = receipts_of_round(self._ledger, number - 1)
            self._newest = newest

    def evidence(self, client: str) -> dict[str, str | int | bytes]:
        """Who the client is, which round comes next, the server's key, and the client's receipt for the latest
        standing round in which it took part.
        """
        told: dict[str, str | int | bytes] = {CLIENT: client, RUN: self._ledger.run_id}
        told[ROUND], told[ATTEMPT] = self._next
        signer = self._ledger.signer
        if signer is None:
            return told
        told[PUBLIC_KEY] = str(signer.public)
        receipt = self._receipts.get(client) or self._earlier(client)
        return told if receipt is None else {**told, RECEIPT: receipt}

    def _earlier(self, client: str) -> bytes | None:
        """The receipt of who did not take part in the newest round."""
        before = self._ledger.rounds_with(client)
        return next(receipts(self._ledger, client, self._ledger.signer, before[-1]))[1] if before else None


def _number(key: bytes) -> int:
    return int.from_bytes(key[:8], "big") >> (64 - _SEED_BITS)
