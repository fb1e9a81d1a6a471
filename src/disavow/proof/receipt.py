"""A receipt: what a client keeps of a round, so that it can later hold the server to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from disavow.errors import Unreadable, VerificationError
from disavow.proof import canonical
from disavow.proof.commitment import commit
from disavow.proof.leaves import OpenCluster, RebuiltLeaf, RoundLeaf
from disavow.proof.merkle import leaf_hash, root_by_path
from disavow.proof.notes import Checkpoint, KeyIndex, open_with_any, origin_of
from disavow.proof.record import (
    RECEIPT,
    AtMost,
    Decimal,
    Hash,
    Key,
    Positive,
    Record,
    RunId,
    Text,
    Whole,
    constant,
    expecting,
)

TYPE = "disavow/receipt/v2"
_MOST_BYTES = 1 << 20
_MOST_SLOTS = 1 << 20
_MOST_STEPS = 64


@dataclass(frozen=True, kw_only=True)
class ReceiptCluster(Record, OpenCluster):
    """The client's cluster, all its slots open."""

    position: Whole
    first: Whole
    size: Positive
    weight: Decimal
    spread: Decimal
    slots: Annotated[tuple[Hash, ...], AtMost(_MOST_SLOTS)]
    path: Annotated[tuple[Hash, ...], AtMost(_MOST_STEPS)]


@dataclass(frozen=True, kw_only=True)
class RoundReceipt(Record):
    """A receipt for a round; the client's slot leads to the round's root through its cluster."""

    type: Annotated[str, constant(TYPE)] = TYPE
    run_id: Annotated[RunId, Key("run")]
    client: Text
    leaf: Positive
    header: RoundLeaf
    cluster: ReceiptCluster
    slot: Whole
    salt: Hash
    update: Hash
    inclusion: Annotated[tuple[Hash, ...], AtMost(_MOST_STEPS)]
    checkpoint: Text

    def root(self, commitment: bytes) -> bytes:
        """Compute the root to which the cluster leads.

        Args:
            commitment: That to the client's slot.

        Raises:
            VerificationError: The slot is not in the cluster, or it is another's.
            ValueError: No path can be that long.

        """
        slots, first, number = self.cluster.slots, self.cluster.first, self.header.number
        if len(slots) != self.cluster.size or not first <= self.slot < first + len(slots):
            raise VerificationError(f"the receipt for round {number} shows a slot that is not in its cluster")
        if commitment != slots[self.slot - first]:
            raise VerificationError(f"the receipt for round {number} does not open its slot")
        return self.cluster.root(self.header.clusters)


@dataclass(frozen=True, kw_only=True)
class RebuiltReceipt(Record):
    """A receipt for a rebuilt round, which has no clusters; the client's slot leads to its root by itself."""

    type: Annotated[str, constant(TYPE)] = TYPE
    run_id: Annotated[RunId, Key("run")]
    client: Text
    leaf: Positive
    header: RebuiltLeaf
    path: Annotated[tuple[Hash, ...], AtMost(_MOST_STEPS)]
    slot: Whole
    salt: Hash
    update: Hash
    inclusion: Annotated[tuple[Hash, ...], AtMost(_MOST_STEPS)]
    checkpoint: Text

    def root(self, commitment: bytes) -> bytes:
        """Compute the root to which the slot leads.

        Args:
            commitment: That to the client's slot.

        Raises:
            ValueError: No path can be that long.

        """
        return root_by_path(leaf_hash(commitment), self.slot, self.header.participants, self.path)


Receipt = RoundReceipt | RebuiltReceipt


def decode_receipt(data: bytes) -> Receipt:
    """Read a receipt; nothing of it is believed yet.

    Args:
        data: The file.

    Raises:
        Unreadable: It is no receipt.

    """
    with expecting(data, RECEIPT):
        value = canonical.decode(data, what="the receipt", most=_MOST_BYTES)
        header = value.get("header") if isinstance(value, dict) else None
        kind = header.get("type") if isinstance(header, dict) else None
        if kind == "round":
            return RoundReceipt.parse(value, "the receipt")
        if kind == "rebuilt":
            return RebuiltReceipt.parse(value, "the receipt")
        raise Unreadable("the receipt is not for a round")


def check_receipt(receipt: Receipt, trusted: KeyIndex) -> Checkpoint:
    """Check that everything in a receipt leads to a signed head of the run's log; that head.

    Args:
        receipt: What a client kept.
        trusted: The keys of which one must have signed.

    Raises:
        VerificationError: It does not.

    """
    number = receipt.header.number
    head = open_with_any(receipt.checkpoint, trusted, "the receipt's checkpoint")
    if head.origin != origin_of(receipt.run_id):
        raise VerificationError("the receipt's checkpoint is of another run's log")
    commitment = commit(
        run_id=receipt.run_id,
        round_number=number,
        salt=receipt.salt,
        client=receipt.client,
        update_digest=receipt.update,
    )
    try:
        root = receipt.root(commitment)
        logged = root_by_path(receipt.header.hash, receipt.leaf, head.size, receipt.inclusion)
    except ValueError as error:
        raise VerificationError(f"a path in the receipt for round {number} cannot be: {error}") from None
    if root != receipt.header.root or logged != head.root:
        raise VerificationError(f"the receipt for round {number} does not lead to the signed head")
    return head
