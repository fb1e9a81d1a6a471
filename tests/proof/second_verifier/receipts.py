"""Packed payloads, entries of a proof, and receipts."""

import zlib
from collections.abc import Sequence

from tests.proof.second_verifier.keys import Trusted, not_revoked
from tests.proof.second_verifier.reading import (
    MIB,
    Object,
    UnreadableError,
    need,
    parse_canonical,
    require,
    unbase64,
)
from tests.proof.second_verifier.shapes import RECEIPTS
from tests.proof.second_verifier.trees import (
    Note,
    cluster_hash,
    follow,
    hash_in_log,
    leaf_hash,
    parse_note,
    slot_commitment,
    withdrawn_entry,
    withdrawn_inner,
)


def unpack(data: bytes) -> bytes:
    """The statement of a compressed payload ("Version 4", the file)."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, 16 * MIB + 1)
    except zlib.error as error:
        raise UnreadableError("no zlib stream") from error
    need(len(found) <= 16 * MIB and stream.eof and not stream.unused_data, "too large, or not one stream")
    return found


def is_closed(leaf: Object) -> bool:
    return leaf["type"] in ("closed round", "closed withdrawal")


def moment_of(leaf: Object) -> str:
    return str(leaf["created_at" if leaf["type"] == "run" else "at"])


def has_slot(cluster: Object, slot: int) -> bool:
    return bool(cluster["first"] <= slot < cluster["first"] + cluster["size"])


def entry_hash(entry: Object) -> bytes:
    if entry["inner"] is not None:
        return withdrawn_entry(entry["position"], unbase64(entry["inner"]))
    return withdrawn_entry(entry["position"], withdrawn_inner(unbase64(entry["salt"]), entry["slot"]))


def parse_receipt(data: bytes) -> Object:
    """Read a receipt ("The receipt", 1)."""
    receipt: Object = parse_canonical(data, MIB)
    need(isinstance(receipt, dict) and isinstance(receipt.get("header"), dict), "no receipt")
    kind = receipt["header"].get("type")
    need(isinstance(kind, str) and kind in RECEIPTS, "a receipt of no round")
    RECEIPTS[kind](receipt)
    return receipt


def require_receipt(receipt: Object, keys: Sequence[Trusted]) -> Note:
    """Whether a receipt holds ("The receipt", 2 to 6); its checkpoint."""
    note = parse_note(receipt["checkpoint"])
    require(note.is_signed_by(not_revoked(keys)), "no trusted key opens the receipt's checkpoint")
    require(note.origin == "disavow/run/" + receipt["run"], "the receipt's origin is another")
    header, slot = receipt["header"], receipt["slot"]
    salt, update = unbase64(receipt["salt"]), unbase64(receipt["update"])
    found = slot_commitment(receipt["run"], header["number"], salt, receipt["client"], update)
    if header["type"] == "round":
        cluster = receipt["cluster"]
        require(len(cluster["slots"]) == cluster["size"] and has_slot(cluster, slot), "no such slot")
        require(found == unbase64(cluster["slots"][slot - cluster["first"]]), "another was in the slot")
        root = follow(cluster_hash(cluster), cluster["position"], header["clusters"], cluster["path"])
    else:
        root = follow(leaf_hash(found), slot, header["participants"], receipt["path"])
    require(root == unbase64(header["root"]), "the slot is not the round's")
    head = follow(hash_in_log(header), receipt["leaf"], note.size, receipt["inclusion"])
    require(head == note.root, "the round is not in the log")
    return note
