"""Envelopes are those of DSSE: what is signed, how it is written, and that nothing else is accepted."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from disavow.errors import ProofTooLarge, Unreadable, VerificationError
from disavow.proof import canonical
from disavow.proof.envelope import LARGEST, PACKED_TYPE, PAYLOAD_TYPE, Envelope, seal, to_be_signed
from disavow.proof.notes import PublicKey, Signer
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY

SERVER = Signer("server", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = Signer("other", Ed25519PrivateKey.from_private_bytes(b"o" * 32))
PAYLOAD = b"hello world"
SEALED = seal(PAYLOAD, SERVER)


def changed(**fields: Any) -> bytes:
    return canonical.encode({**json.loads(SEALED), **fields})


def test_what_is_signed_is_dsses_encoding() -> None:
    # the example of the specification is DSSEv1 29 http://example.com/HelloWorld 11 hello world
    assert PAYLOAD_TYPE == "application/vnd.in-toto+json"
    assert to_be_signed(PAYLOAD) == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"
    assert to_be_signed(b"") == b"DSSEv1 28 application/vnd.in-toto+json 0 "


def test_lengths_are_counted_in_bytes() -> None:
    payload = "é".encode()
    assert to_be_signed(payload) == b"DSSEv1 28 application/vnd.in-toto+json 2 \xc3\xa9"


@PROPERTY
@given(st.binary(max_size=30), st.binary(max_size=30))
def test_no_two_payloads_are_signed_alike(one: bytes, two: bytes) -> None:
    assert (to_be_signed(one) == to_be_signed(two)) == (one == two)


def test_an_envelope_is_what_any_reader_of_dsse_understands() -> None:
    document = json.loads(SEALED)
    assert document.keys() == {"payload", "payloadType", "signatures"}
    assert base64.b64decode(document["payload"]) == PAYLOAD
    [signature] = document["signatures"]
    assert signature.keys() == {"keyid", "sig"}
    key = Ed25519PublicKey.from_public_bytes(SERVER.public.raw)
    key.verify(base64.b64decode(signature["sig"]), b"DSSEv1 28 application/vnd.in-toto+json 11 hello world")


@PROPERTY
@given(st.binary(max_size=200))
def test_a_payload_comes_back_under_the_key_that_sealed_it(payload: bytes) -> None:
    envelope = Envelope.decode(seal(payload, SERVER))
    assert envelope.payload == payload
    assert envelope.signer([OTHER.public, SERVER.public]) == SERVER.public


def test_sealing_twice_gives_the_same_bytes() -> None:
    assert seal(PAYLOAD, SERVER) == SEALED


def test_a_key_that_was_not_given_is_not_trusted() -> None:
    for trusted in ([], [OTHER.public]):
        with refuses(VerificationError, SERVER.public.id[:16], "not among"):
            Envelope.decode(SEALED).signer(trusted)


def test_a_signature_that_does_not_fit_is_refused() -> None:
    [signature] = json.loads(SEALED)["signatures"]
    false = {**signature, "sig": base64.b64encode(OTHER.sign(to_be_signed(PAYLOAD))).decode()}
    raw = {**signature, "sig": base64.b64encode(SERVER.sign(PAYLOAD)).decode()}
    for data in (
        changed(payload=base64.b64encode(b"hello World").decode()),
        changed(signatures=[false]),
        changed(signatures=[raw]),
        changed(signatures=[{**signature, "sig": ""}]),
    ):
        with refuses(VerificationError, "the signature of server"):
            Envelope.decode(data).signer([SERVER.public, OTHER.public])


def test_a_signature_that_names_another_key_is_refused_though_a_given_key_made_it() -> None:
    [signature] = json.loads(SEALED)["signatures"]
    envelope = Envelope.decode(changed(signatures=[{**signature, "keyid": OTHER.public.id}]))
    with refuses(VerificationError, f"the signature of {OTHER.name}"):
        envelope.signer([SERVER.public, OTHER.public])


def test_an_envelope_without_a_signature_is_not_signed() -> None:
    with refuses(VerificationError, "not signed") as caught:
        Envelope.decode(changed(signatures=[]))
    assert not isinstance(caught.value, Unreadable)


def _envelopes_that_cannot_be_read() -> list[bytes]:
    document = json.loads(SEALED)
    [signature] = document["signatures"]
    return [
        b"",
        b"{}",
        b"[]",
        b"null",
        SEALED + b"\n",
        SEALED[:-1],
        json.dumps(document).encode(),
        canonical.encode({**document, "more": 1}),
        canonical.encode({name: document[name] for name in ("payload", "payloadType")}),
        changed(payloadType="application/json"),
        changed(payloadType="http://example.com/HelloWorld"),
        changed(payload=None),
        changed(payload="not base64"),
        changed(payload=document["payload"] + "\n"),
        changed(payload=base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode()),
        changed(signatures=None),
        changed(signatures={}),
        changed(signatures=[signature, signature]),
        changed(signatures=[{"sig": signature["sig"]}]),
        changed(signatures=[{**signature, "cert": ""}]),
        changed(signatures=[{**signature, "keyid": signature["keyid"].upper()}]),
        changed(signatures=[{**signature, "sig": None}]),
        b'"' + b"a" * LARGEST + b'"',
    ]


@pytest.mark.parametrize("data", _envelopes_that_cannot_be_read())
def test_any_other_form_cannot_be_read(data: bytes) -> None:
    with pytest.raises(Unreadable):
        Envelope.decode(data)


def test_a_key_of_the_same_bytes_and_another_name_is_told_by_the_name_it_was_given_under() -> None:
    renamed = PublicKey("renamed", SERVER.public.raw)
    assert Envelope.decode(SEALED).signer([renamed]) == renamed


def test_a_packed_statement_is_unpacked_and_signed_as_it_is_packed() -> None:
    statement = b"x" * 10_000
    sealed = seal(statement, SERVER, packed=True)
    envelope = Envelope.decode(sealed)
    assert (envelope.payload_type, envelope.statement) == (PACKED_TYPE, statement)
    assert envelope.signer([SERVER.public]) == SERVER.public
    assert len(sealed) < 500
    plain = canonical.encode({**json.loads(sealed), "payloadType": PAYLOAD_TYPE})
    with refuses(VerificationError):
        Envelope.decode(plain).signer([SERVER.public])


@pytest.mark.parametrize("more", [1, 40 * LARGEST], ids=["a byte", "a bomb"])
def test_what_unpacks_to_more_than_is_read_is_refused(more: int) -> None:
    stream = zlib.compressobj(9)
    packed = b"".join(stream.compress(bytes(1 << 20)) for _ in range((LARGEST + more) >> 20))
    packed += stream.compress(bytes((LARGEST + more) % (1 << 20))) + stream.flush()
    with refuses(Unreadable):
        _ = Envelope(payload=packed, payload_type=PACKED_TYPE, signatures=()).statement


def test_no_more_is_sealed_than_is_read_packed_or_not() -> None:
    with pytest.raises(ProofTooLarge):
        seal(bytes(LARGEST + 1), SERVER, packed=True)
