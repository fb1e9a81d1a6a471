"""What cannot be read, whose signature does not fit, or which is no statement of this version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from disavow.proof import canonical
from disavow.proof.envelope import PAYLOAD_TYPE, seal, to_be_signed
from disavow.proof.validation import to_base64
from tests.proof.made_proofs import SERVER, STRANGER, Made
from tests.proof.vectors.hostile.forging import (
    vector_of,
)
from tests.proof.vectors.valid import (
    LEAVER,
    deniable,
)
from tests.proof.vectors.vector import Vector
from tests.proof.world import World


def _raw(payload: bytes) -> bytes:
    """A well-formed envelope around anything, signed with the right key."""
    return seal(payload, SERVER)


def unreadable_refused() -> Iterator[Vector]:
    made = deniable().proof(LEAVER)
    proof = made.proof
    stripped = json.loads(proof)
    stripped["signatures"] = []
    doubled = json.loads(proof)
    doubled["signatures"] *= 2
    for name, about, data in (
        ("empty", "no bytes at all", b""),
        ("truncated", "the first half of a file", proof[: len(proof) // 2]),
        ("truncated-by-one", "all but the last byte", proof[:-1]),
        ("trailing-newline", "a byte more than the canonical form", proof + b"\n"),
        ("not-text", "bytes that are no UTF-8", b"\xff\xfe" + proof),
        ("byte-order-mark", "a mark before the first byte", b"\xef\xbb\xbf" + proof),
        ("deeply-nested", "2,000 brackets", b"[" * 2000 + b"]" * 2000),
        ("deeply-nested-and-open", "objects that are never closed", b'{"payload":' * 300),
        ("endless-string", "a text that does not end", b'{"payload":"' + b'\\"' * 500),
        ("endless-number", "a number of 2,000 digits", b'{"payload":' + b"9" * 2000 + b"}"),
        ("unsigned", "no signature", canonical.encode(stripped)),
        ("unsigned-around-nothing", "no signature, and no byte of a payload", _hollow("")),
        ("unsigned-and-damaged", "no signature, and a payload that is no base64", _hollow("?")),
        ("signed-twice", "two signatures", canonical.encode(doubled)),
        (
            "duplicate-key",
            "the payload stands twice",
            proof.replace(b'{"payload":', b'{"payload":"",' + b'"payload":', 1),
        ),
        ("spaced", "another spacing of the same envelope", json.dumps(json.loads(proof)).encode()),
        (
            "loose-base64",
            "a payload that does not fill its last group",
            proof.replace(b'","payloadType', b'=","payloadType'),
        ),
        ("raw-payload", "the statement without an envelope", made.payload),
    ):
        yield vector_of(made, name, about, "readable", data)


def _hollow(payload: str) -> bytes:
    return canonical.encode({"payload": payload, "payloadType": PAYLOAD_TYPE, "signatures": []})


def signatures_refused() -> Iterator[Vector]:
    made = deniable().proof(LEAVER)
    yield vector_of(
        made, "by-a-stranger", "sealed with a key that nobody trusts", "signature", seal(made.payload, STRANGER)
    )
    yield vector_of(
        made,
        "by-a-stranger-in-disguise",
        "a stranger's signature under the server's key id",
        "signature",
        _disguised(made),
    )
    yield vector_of(made, "key-list-empty", "a key list without a key trusts nobody", "signature", trusted=())
    swapped = json.loads(made.proof)
    swapped["payload"] = to_base64(deniable().train(1).proof(LEAVER).payload)
    yield vector_of(
        made, "payload-of-another", "a signature of another payload", "signature", canonical.encode(swapped)
    )


def _disguised(made: Made) -> bytes:
    false = {"keyid": SERVER.public.id, "sig": to_base64(STRANGER.sign(to_be_signed(made.payload)))}
    return canonical.encode(
        {"payload": to_base64(made.payload), "payloadType": PAYLOAD_TYPE, "signatures": [false]}
    )


def _unsorted(payload: bytes) -> bytes:
    value = json.loads(payload)
    return json.dumps(dict(reversed(value.items())), separators=(",", ":")).encode()


def statements_refused() -> Iterator[Vector]:
    made = deniable().proof(LEAVER)
    text = made.payload
    weight = json.loads(text)["predicate"]["clusters"][0]["weight"]
    size = b'"size":3'
    assert size in text
    for name, about, payload in (
        ("payload-deeply-nested", "a signed payload of 2,000 brackets", b"[" * 2000 + b"]" * 2000),
        ("payload-empty", "a signed payload of no bytes", b""),
        ("payload-of-brackets", "a signed list of 1,000 empty lists", b"[" + b"[]," * 999 + b"[]]"),
        ("payload-duplicate-key", "a field stands twice", text.replace(b'"request":0', b'"request":0,"request":0')),
        ("number-with-fraction", "3.0 for 3", text.replace(size, b'"size":3.0', 1)),
        ("number-with-exponent", "3e0 for 3", text.replace(size, b'"size":3e0', 1)),
        ("number-with-zero", "03 for 3", text.replace(size, b'"size":03', 1)),
        ("number-below-zero", "-0 for 0", text.replace(b'"request":0', b'"request":-0', 1)),
        ("number-not-a-number", "NaN for 3", text.replace(size, b'"size":NaN', 1)),
        ("number-in-quotes", "a text for 3", text.replace(size, b'"size":"3"', 1)),
        ("number-of-400-digits", "a size that no memory holds", text.replace(size, b'"size":' + b"9" * 400, 1)),
        ("number-of-15-digits", "a size beyond four bytes", text.replace(size, b'"size":999999999999999', 1)),
        ("true-for-one", "true where a number is due", text.replace(b'"version":3', b'"version":true', 1)),
        (
            "decimal-with-zero",
            "a weight with a zero behind it",
            text.replace(f'"weight":"{weight}"'.encode(), f'"weight":"{weight}0"'.encode(), 1),
        ),
        (
            "decimal-in-other-digits",
            "a weight in Arabic digits",
            text.replace(f'"weight":"{weight}"'.encode(), rb'"weight":"\u0660.\u0665"', 1),
        ),
        ("decimal-not-finite", "a spread of 1e999", text.replace(b'"spread":"0.125"', b'"spread":"1e999"', 1)),
        (
            "field-too-many",
            "a field that nobody knows",
            text.replace(b'"request":0', b'"remark":"","request":0', 1),
        ),
        ("not-sorted", "fields in another order", _unsorted(text)),
        (
            "text-with-surrogate",
            "a checkpoint with half a character, of which there is no UTF-8",
            text.replace(b'"checkpoint":"', rb'"checkpoint":"\ud800', 1),
        ),
        ("not-ascii", "a letter that is not escaped", text.replace(b'"mdav"', '"mdäv"'.encode(), 1)),
        ("time-without-zone", "a time that could be anywhere", text.replace(b"+00:00", b"", 1)),
        (
            "unknown-leaf",
            "a leaf of a type that nobody knows",
            text.replace(b'"type":"withdrawal"', b'"type":"amnesty"'),
        ),
        ("unknown-version", "a later version of the predicate", text.replace(b"deniability:v3", b"deniability:v4")),
        ("version-1", "the first version of the predicate", text.replace(b"deniability:v3", b"deniability:v1")),
        ("version-2", "a proof of the version before", _second_version(text)),
        ("log-of-version-2", "the version before of the log", text.replace(b'"version":3', b'"version":2')),
        ("policy-of-version-2", "a policy as the version before has it", _old_policy(text)),
        ("neighbours-shown", "what the version before showed of neighbours", _with_neighbours(text)),
    ):
        assert payload != text, name
        yield vector_of(made, name, about, "statement", _raw(payload))
    what_if = World("if").train(2).what_if(LEAVER)
    yield replace(
        vector_of(what_if, "what-if-as-erasure", "a what-if where an erasure is asked for", "statement"),
        what_if=False,
    )
    yield replace(
        vector_of(made, "erasure-as-what-if", "an erasure where a what-if is asked for", "statement"), what_if=True
    )


def _second_version(payload: bytes) -> bytes:
    """The statement as version 2 had it, where the criterion was `cluster`."""
    statement = json.loads(_with_neighbours(_old_policy(payload)))
    statement["predicateType"] = "urn:disavow:proof-of-deniability:v2"
    statement["predicate"]["leaves"][0]["version"] = 2
    del statement["predicate"]["bounds"]["drawn"]
    for leaf in statement["predicate"]["leaves"]:
        leaf.pop("update_norm", None)
        leaf.pop("pairs_within", None)
    return canonical.encode(statement)


def _old_policy(payload: bytes) -> bytes:
    statement = json.loads(payload)
    policy = statement["predicate"]["leaves"][0]["policy"]
    for name in ("representatives", "relative_delta", "odds", "statistics"):
        del policy[name]
    policy["criterion"] = "cluster"
    return canonical.encode(statement)


def _with_neighbours(payload: bytes) -> bytes:
    statement = json.loads(payload)
    for cluster in statement["predicate"]["clusters"]:
        cluster.update(lists=None, neighbours=None)
    return canonical.encode(statement)
