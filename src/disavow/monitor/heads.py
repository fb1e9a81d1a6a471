"""Read the heads that somebody holds: checkpoints, and receipts, proofs and serving statements, which have one.

Beside its root, most of these tell more of the log under it. A path or a list of leaves gives the hashes of whole
subtrees (of 2^n leaves, from a multiple of 2^n on), which stay the same however the log grows: two logs that differ
in one of them are two logs, whatever their sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disavow.errors import Unreadable, VerificationError
from disavow.proof.envelope import LARGEST, Envelope
from disavow.proof.merkle import node_hash, root_of
from disavow.proof.notes import Checkpoint, KeyIndex, TrustedKey, open_checkpoint, open_with_any
from disavow.proof.receipt import Receipt, check_receipt, decode_receipt
from disavow.proof.serving import PAYLOAD_TYPE as SERVING
from disavow.proof.serving import SignedServing
from disavow.proof.statement import decode_statement, leaf_hashes

Subtree = tuple[int, int]
"""A whole subtree by its height and its number among those: (0, 5) is leaf 5, (2, 1) are leaves 4 to 7."""


@dataclass(frozen=True)
class HeldHead:
    """A head that a file holds, signed by a trusted key.

    Args:
        file: The file.
        kind: What the file is.
        head: The head.
        subtrees: The hashes of whole subtrees that the file shows under it.

    """

    file: Path
    kind: str
    head: Checkpoint
    subtrees: dict[Subtree, bytes] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class RefusedFile:
    """A file that is of a kind of ours and does not hold: it is evidence of nothing.

    Args:
        file: The file.
        reason: Why it does not hold.

    """

    file: Path
    reason: str


def read_held(paths: Sequence[Path], trusted: Sequence[TrustedKey]) -> tuple[list[HeldHead], list[RefusedFile]]:
    """Read the heads in files and folders.

    Args:
        paths: Files, and folders that are searched to their end; there, files of other kinds are passed over.
        trusted: The keys of which one must have signed.

    Returns:
        The heads, and the files that do not hold, both in the order of the files.

    Raises:
        Unreadable: A file that was named is of no kind that has a head, or cannot be read.

    """
    held: list[HeldHead] = []
    refused: list[RefusedFile] = []
    for path, named in _files(paths):
        data = _read(path)
        kind = None if data is None else _kind_of(data)
        if data is None or kind is None:
            if named:
                raise Unreadable(f"{path} is no checkpoint, receipt, proof or serving statement, or cannot be read")
            continue
        try:
            held.append(_held_in(path, kind, data, trusted))
        except VerificationError as error:
            refused.append(RefusedFile(path, str(error)))
    return held, refused


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Each file once, and whether it was named itself."""
    seen: set[Path] = set()
    for path in paths:
        found = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        for each in found:
            if each not in seen:
                seen.add(each)
                yield each, not path.is_dir()


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError:
        return None
    return data if len(data) <= LARGEST else None


def _kind_of(data: bytes) -> str | None:
    if data.startswith(b"disavow/run/"):
        return "checkpoint"
    if b'"type":"disavow/receipt/' in data:
        return "receipt"
    if b'"payloadType":"' in data:
        return "serving statement" if SERVING.encode() in data else "proof"
    return None


def _held_in(path: Path, kind: str, data: bytes, trusted: Sequence[TrustedKey]) -> HeldHead:
    keys = KeyIndex.of(trusted)
    if kind == "checkpoint":
        return HeldHead(path, kind, _checkpoint(data, keys))
    if kind == "receipt":
        receipt = decode_receipt(data)
        head = check_receipt(receipt, keys)
        return HeldHead(path, kind, head, _of_receipt(receipt, head.size))
    if kind == "serving statement":
        signed = SignedServing.decode(data)
        signer = signed.signer([each.key for each in trusted])
        keys.refuse_revoked(signer, "the serving statement")
        return HeldHead(path, kind, open_checkpoint(signed.said.checkpoint, signer, cosigned=True))
    envelope = Envelope.decode(data)
    signer = envelope.signer([each.key for each in trusted])
    keys.refuse_revoked(signer, "the proof")
    statement = decode_statement(envelope.statement)
    head = open_checkpoint(statement.predicate.checkpoint, signer)
    hashes = leaf_hashes(statement)
    if len(hashes) != head.size or root_of(hashes) != head.root:
        raise VerificationError("the leaves of the proof do not have the root that was signed")
    return HeldHead(path, kind, head, _of_leaves(hashes))


def _checkpoint(data: bytes, keys: KeyIndex) -> Checkpoint:
    try:
        note = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("the checkpoint is not UTF-8") from None
    return open_with_any(note, keys, "the checkpoint", cosigned=True)


def _of_receipt(receipt: Receipt, size: int) -> dict[Subtree, bytes]:
    """The whole subtrees on and beside the path from a receipt's leaf to the root of a log of so many leaves."""
    found: dict[Subtree, bytes] = {}
    value, at, width, height = receipt.header.hash, receipt.leaf, size, 0
    steps = iter(receipt.inclusion)
    while width > 1:
        if at + 1 << height <= size:
            found[height, at] = value
        if (beside := at ^ 1) < width:
            step = next(steps)
            if beside + 1 << height <= size:
                found[height, beside] = step
            value = node_hash(step, value) if at & 1 else node_hash(value, step)
        at, width, height = at // 2, (width + 1) // 2, height + 1
    return found


def _of_leaves(hashes: Sequence[bytes]) -> dict[Subtree, bytes]:
    """All whole subtrees over leaves."""
    found: dict[Subtree, bytes] = {}
    level, height = list(hashes), 0
    while level:
        found |= {(height, at): value for at, value in enumerate(level)}
        level = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        height += 1
    return found
