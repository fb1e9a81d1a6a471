"""A receipt: what a client keeps of a round, so that it can later hold the server to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from disavow.errors import Unreadable, VerificationError
from disavow.proof import canonical
from disavow.proof.commitment import commit
from disavow.proof.kinds import RECEIPT, expecting
from disavow.proof.leaves import Leaf, cluster_leaf, hash_of, joined, read_leaf
from disavow.proof.merkle import leaf_hash, root_by_path
from disavow.proof.notes import Checkpoint, KeyIndex, open_with_any, origin_of
from disavow.proof.reading import (
    decimal,
    exactly,
    fields,
    hashed,
    list_of,
    positive,
    record,
    run_id,
    text,
    whole,
)

TYPE = "disavow/receipt/v2"
_MOST_BYTES = 1 << 20
_PATH = 64

_CLUSTER = {
    "position": whole,
    "first": whole,
    "size": positive,
    "weight": decimal,
    "spread": decimal,
    "slots": list_of(hashed, most=1 << 20),
    "path": list_of(hashed, most=_PATH),
}


@dataclass(frozen=True)
class Receipt:
    """A receipt that was read; `head` is known once it was checked."""

    run_id: str
    client: str
    leaf: int
    header: Leaf
    slot: int
    head: Checkpoint
    told: dict[str, Any]
    written: dict[str, Any]


def read_receipt(data: bytes) -> Receipt:
    """Read a receipt; nothing of it is believed yet."""
    with expecting(data, RECEIPT):
        return _read(data)


def _read(data: bytes) -> Receipt:
    value = canonical.decode(data, what="the receipt", most=_MOST_BYTES)
    # a rebuilt round has no clusters: there a slot leads to the root by a path of its own
    way = {"cluster": record(_CLUSTER)} if _kind(value) == "round" else {"path": list_of(hashed, most=_PATH)}
    told = fields(
        value,
        "the receipt",
        {
            "type": exactly(TYPE),
            "run": run_id,
            "client": text,
            "leaf": positive,
            "header": read_leaf,
            **way,
            "slot": whole,
            "salt": hashed,
            "update": hashed,
            "inclusion": list_of(hashed, most=_PATH),
            "checkpoint": text,
        },
    )
    unsigned = Checkpoint("", 0, b"")
    header = told["header"]
    return Receipt(told["run"], told["client"], told["leaf"], header, told["slot"], unsigned, told, value)


def _kind(value: Any) -> str:
    """What the receipt is for: a round, or a rebuilt one."""
    header = value.get("header") if isinstance(value, dict) else None
    kind = header.get("type") if isinstance(header, dict) else None
    if kind not in ("round", "rebuilt"):
        raise Unreadable("the receipt is not for a round")
    return str(kind)


def check_receipt(receipt: Receipt, trusted: KeyIndex) -> Receipt:
    """The receipt with its signed head, once everything in it leads there."""
    told, number = receipt.told, receipt.header["number"]
    head = open_with_any(told["checkpoint"], trusted, "the receipt's checkpoint")
    if head.origin != origin_of(receipt.run_id):
        raise VerificationError("the receipt's checkpoint is of another run's log")
    made = commit(
        run_id=receipt.run_id,
        round_number=number,
        salt=told["salt"],
        client=receipt.client,
        update_digest=told["update"],
    )
    try:
        root = _root_of_rebuilt(receipt, made) if "path" in told else _root_of_round(receipt, made)
        logged = root_by_path(hash_of(receipt.written["header"]), receipt.leaf, head.size, told["inclusion"])
    except ValueError as error:
        raise VerificationError(f"a path in the receipt for round {number} cannot be: {error}") from None
    if root != receipt.header["root"] or logged != head.root:
        raise VerificationError(f"the receipt for round {number} does not lead to the signed head")
    return replace(receipt, head=head)


def _root_of_round(receipt: Receipt, made: bytes) -> bytes:
    """The root to which the receipt's cluster leads, if the client's slot is in it."""
    cluster, number = receipt.told["cluster"], receipt.header["number"]
    slots, first = cluster["slots"], cluster["first"]
    if len(slots) != cluster["size"] or not first <= receipt.slot < first + len(slots):
        raise VerificationError(f"the receipt for round {number} shows a slot that is not in its cluster")
    if made != slots[receipt.slot - first]:
        raise VerificationError(f"the receipt for round {number} does not open its slot")
    leaf = cluster_leaf(
        **{name: cluster[name] for name in ("position", "first", "size", "weight", "spread")},
        slots=joined(slots),
    )
    return root_by_path(hash_of(leaf), cluster["position"], receipt.header["clusters"], cluster["path"])


def _root_of_rebuilt(receipt: Receipt, made: bytes) -> bytes:
    """The root to which the client's slot leads by itself."""
    return root_by_path(leaf_hash(made), receipt.slot, receipt.header["participants"], receipt.told["path"])
