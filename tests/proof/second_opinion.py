"""Both verifiers on one proof, and proofs signed for them."""

import base64
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.proof.notes import PublicKey
from disavow.proof.verify import TrustedKey, VerificationInputs, examine
from disavow.proof.witness_keys import witnesses_in
from tests.proof import second_verifier as second

ROOT = Path(__file__).parents[2]
VECTORS = Path(__file__).parent / "vectors"
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEY = second.Key("example.org", PRIVATE.public_key().public_bytes_raw())
SALT = bytes(range(32))

Object = dict[str, Any]
Path_ = tuple[str | int, ...]


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


KEY_TEXT = f"{KEY.name}+{KEY.short.hex()}+{encode(bytes([1]) + KEY.public)}"


# Both verifiers, asked the same


def first(
    proof: bytes,
    keys: bytes,
    opening: bytes | None = None,
    receipts: list[bytes] | None = None,
    checkpoint: bytes | None = None,
    model: str | None = None,
    what_if: bool = False,
    client: str | None = None,
    word: bytes | None = None,
    witnesses: bytes | None = None,
    quorum: int | None = None,
    serving: bytes | None = None,
) -> tuple[int, int | None]:
    """What disavow's own verifier says, in the second's words."""
    trusted = [
        TrustedKey(PublicKey(each.key.name, each.key.public), each.start, each.end, each.revoked)
        for each in second.parse_keys(keys)
    ]
    named = () if witnesses is None else witnesses_in(witnesses)
    report = examine(
        VerificationInputs(
            proof,
            trusted,
            opening,
            receipts or [],
            model,
            checkpoint,
            what_if,
            client,
            word,
            serving=serving,
            witnesses=named,
            quorum=quorum,
        )
    )
    if report.failed is None:
        return (0 if report.named else 3), None
    assert report.failure is not None
    return report.failure.exit_code, report.failed.number


def sign_note(origin: str, leaves: list[Object]) -> str:
    if leaves[0].get("version") == 4:
        hashes = [second.hash_in_log(leaf) for leaf in second.opened_log(leaves)]
    else:
        hashes = [second.leaf_hash(second.canonical(leaf)) for leaf in leaves]
    text = f"{origin}\n{len(hashes)}\n{encode(second.root_of(hashes))}\n"
    return f"{text}\n\u2014 {KEY.name} {encode(KEY.short + PRIVATE.sign(text.encode()))}\n"


def sign(statement: Object) -> bytes:
    payload = second.canonical(statement)
    message = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    signature = {"keyid": KEY.id, "sig": encode(PRIVATE.sign(message))}
    envelope = {"payload": encode(payload), "payloadType": second.PAYLOAD_TYPE, "signatures": [signature]}
    return second.canonical(envelope)


# (1) The worked examples


def read(name: str | None) -> bytes | None:
    return None if name is None else (VECTORS / name).read_bytes()


def vectors() -> list[Object]:
    listed: list[Object] = json.loads((VECTORS / "vectors.json").read_bytes())
    return listed


def name_of(vector: Object) -> str:
    return f"{Path(vector['file']).stem}: {vector['about']}"
