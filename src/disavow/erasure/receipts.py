"""Receipts: what the server hands to a client for a round, so that the client can hold it to that later."""

from __future__ import annotations

from collections.abc import Iterator

from disavow.errors import ConfigError, UnknownClient
from disavow.ledger import Ledger, Reader
from disavow.ledger.log import LoggedSlot
from disavow.proof.leaves import RebuiltLeaf
from disavow.proof.merkle import leaf_hash, path_to
from disavow.proof.notes import Signer
from disavow.proof.receipt import RebuiltReceipt, Receipt, ReceiptCluster, RoundReceipt


def receipts(
    ledger: Ledger, client: str, signer: Signer | None, number: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Make a client's receipts for its standing rounds.

    Args:
        ledger: The run.
        client: The client's id.
        signer: Who signs the head, where that was not done when the rounds were recorded.
        number: The one round asked for; None for all.

    Yields:
        The round's number, and the file.

    Raises:
        UnknownClient: The run has no such client.
        ConfigError: Nobody signs.

    """
    with ledger.snapshot() as snapshot:
        known = snapshot.numbers_of([client]).get(client)
        if known is None:
            raise UnknownClient(
                f"{client!r} is not a client of this run, so there is nothing to give a receipt for"
            )
        head = snapshot.signed_head()
        if head is None:
            if signer is None:
                raise ConfigError("this run has no signing key, so nothing binds it; `disavow keygen` makes one")
            head = snapshot.log_head().signed(signer)
        hashes = snapshot.log_hashes()
        for filled in snapshot.logged_slots(known):
            if number in (None, filled.number):
                maker = _ReceiptMaker(snapshot, filled, hashes, head)
                yield filled.number, maker.receipt(client, filled).encode()


def receipts_of_round(ledger: Ledger, number: int) -> dict[str, bytes]:
    """Make the receipts of all who took part in a standing round and are still in.

    Args:
        ledger: The run.
        number: The round.

    Returns:
        The files by client id; none where nothing is signed.

    """
    with ledger.snapshot() as snapshot:
        head, found = snapshot.signed_head(), snapshot.logged_slots_of_round(number)
        if head is None or not found:
            return {}
        maker = _ReceiptMaker(snapshot, next(iter(found.values())), snapshot.log_hashes(), head)
        return {client: maker.receipt(client, filled).encode() for client, filled in found.items()}


class _ReceiptMaker:
    """Makes receipts for one round under one head. Slots come in order, so that each cluster is read once."""

    def __init__(self, reader: Reader, filled: LoggedSlot, hashes: list[bytes], head: str) -> None:
        self._reader, self._head = reader, head
        self._logged = reader.logged_round(filled.place)
        self._inclusion = tuple(path_to(hashes, filled.place))
        self._cluster: ReceiptCluster | None = None

    def receipt(self, client: str, filled: LoggedSlot) -> Receipt:
        """The receipt of one client. Its slot leads to the round's root through its cluster, or by itself."""
        header = self._logged.leaf
        if isinstance(header, RebuiltLeaf):
            hashes = [leaf_hash(commitment) for commitment in self._reader.commitments(filled.round_id)]
            return RebuiltReceipt(
                run_id=self._reader.run_id,
                client=client,
                leaf=filled.place,
                header=header,
                path=tuple(path_to(hashes, filled.slot)),
                slot=filled.slot,
                salt=filled.salt,
                update=filled.update_digest,
                inclusion=self._inclusion,
                checkpoint=self._head,
            )
        return RoundReceipt(
            run_id=self._reader.run_id,
            client=client,
            leaf=filled.place,
            header=header,
            cluster=self._cluster_of(filled),
            slot=filled.slot,
            salt=filled.salt,
            update=filled.update_digest,
            inclusion=self._inclusion,
            checkpoint=self._head,
        )

    def _cluster_of(self, filled: LoggedSlot) -> ReceiptCluster:
        cluster = self._cluster
        if cluster is None or filled.slot >= cluster.first + cluster.size:
            stored = self._reader.cluster_at(filled.round_id, filled.slot)
            cluster = self._cluster = ReceiptCluster(
                position=stored.position,
                first=stored.first_slot,
                size=stored.size,
                weight=stored.weight,
                spread=stored.spread,
                slots=tuple(stored.commitments),
                path=tuple(path_to(self._logged.cluster_hashes, stored.position)),
            )
        return cluster
