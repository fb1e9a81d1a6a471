"""Hostile bytes of any kind: refused as a `VerificationError`, never as anything else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.errors import VerificationError
from disavow.proof import canonical
from disavow.proof.envelope import PAYLOAD_TYPE, Envelope, seal, to_be_signed
from disavow.proof.keys import trusted_keys
from disavow.proof.notes import PublicKey, open_checkpoint
from disavow.proof.opening import Opening
from disavow.proof.receipt import decode_receipt
from disavow.proof.statement import decode_statement
from disavow.proof.validation import to_base64
from disavow.proof.verify import TrustedKey, VerificationInputs, examine, verify
from tests.proof.made_proofs import SERVER, Made, client, moment, resign
from tests.proof.mutating import KINDS, changed, walk
from tests.proof.vectors.short import among_others
from tests.proof.vectors.short import rolled_back as undone_among_others
from tests.proof.vectors.valid import LEAVER, OTHER, deniable, limited, mate, relative, rolled_back, several
from tests.proof.world import World

PROPERTY = settings(deadline=None, derandomize=True, max_examples=300, print_blob=False)
PARTS = 10
"""Of a million inputs, so that two processes share them."""

WORDS: tuple[Any, ...] = (
    *KINDS,
    -1,
    2**32,
    10**15 - 1,
    "\ud800",
    "\x1b[31m",
    "٣",
    "1e308",
    "5e-324",
    "never present",
    "rollback",
    "deniable",
    "a" * 5000,
    to_base64(b"z" * 32),
    "0" * 64,
    moment(1),
    [[[[]]]],
)


class Sources:
    """Good proofs, openings, receipts and notes, to be damaged."""

    def __init__(self) -> None:
        world, back, two = deniable(), rolled_back(), several()
        self.made: list[Made] = [
            world.proof(LEAVER),
            back.proof(mate()),
            two.proof(LEAVER),
            two.train(1).what_if(OTHER),
            World("if").train(2).what_if(LEAVER),
            relative().proof(LEAVER),
            limited().leave(LEAVER).proof(LEAVER),
            among_others().proof(LEAVER),
            undone_among_others().proof(LEAVER),
            among_others().what_if(client(4)),
        ]
        self.receipts = [
            (world.proof(LEAVER), world.receipt(LEAVER, 1)),
            (back.proof(mate()), back.receipt(mate(), 2)),
            (among_others().proof(LEAVER), among_others().receipt(LEAVER, 3)),
        ]
        self.kept = (world.proof(LEAVER), world.checkpoint(3))


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes after one to four random changes."""
    changed_ = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed_) + 1)
        what = chance.randrange(6)
        if what == 0 and at < len(changed_):
            changed_[at] ^= chance.randrange(1, 256)
        elif what == 1:
            del changed_[at : at + chance.choice((1, 2, 8, 1000))]
        elif what == 2:
            changed_[at:at] = chance.randbytes(chance.choice((1, 2, 8)))
        elif what == 3:
            changed_[at:at] = chance.choice((b'"', b"\\", b"[", b"{", b"}", b",", b":", b"\n", b"null", b"1e9"))
        elif what == 4:
            end = at + chance.choice((1, 16, 200))
            changed_[at:at] = changed_[at:end]
        else:
            other = chance.randrange(len(changed_) + 1)
            changed_[at : at + 8] = changed_[other : other + 8]
    return bytes(changed_)


def rearranged(data: bytes, chance: random.Random) -> bytes:
    """A JSON text after one to three random changes to its structure."""
    value = json.loads(data)
    for _ in range(chance.randint(1, 3)):
        found = list(walk(value))
        path, old = chance.choice(found)
        what = chance.randrange(5)
        if what == 0 and isinstance(old, int) and not isinstance(old, bool):
            value = changed(value, path, max(old + chance.choice((-1, 1, 2, 2**31)), 0))
        elif what == 1 and isinstance(old, list):
            value = changed(value, path, chance.sample(old * 2, chance.randint(0, len(old) * 2)))
        elif what == 2:
            value = changed(value, path, chance.choice(found)[1])
        elif what == 3 and isinstance(old, dict) and old:
            gone = chance.choice(sorted(old))
            value = changed(value, path, {name: each for name, each in old.items() if name != gone})
        else:
            value = changed(value, path, chance.choice(WORDS))
    try:
        return canonical.encode(value)
    except (RecursionError, ValueError):
        return data


def relogged(payload: bytes, made: Made) -> bytes:
    """A payload under a new checkpoint, if it still has anything to put one over."""
    statement = json.loads(payload)
    try:
        resign(statement["predicate"], made.signer)
    except (TypeError, KeyError, IndexError, ValueError, VerificationError):
        return payload
    return canonical.encode(statement)


def inputs(sources: Sources, seed: int, count: int) -> Iterator[VerificationInputs]:
    """Damaged questions. Most proofs are signed again with the right key, some of them under a new checkpoint."""
    chance = random.Random(seed)
    for _ in range(count):
        damage = chance.choice((damaged, rearranged))
        what = chance.randrange(9)
        if what < 2:
            made = chance.choice(sources.made)
            yield made.inputs(proof=damage(made.proof, chance))
        elif what < 5:
            made = chance.choice(sources.made)
            opening = chance.choice((None, made.opening.encode()))
            yield made.inputs(proof=seal(damage(made.payload, chance), made.signer), opening=opening)
        elif what == 5:
            made = chance.choice(sources.made)
            yield made.inputs(opening=damage(made.opening.encode(), chance))
        elif what == 6:
            made, receipt = chance.choice(sources.receipts)
            yield made.inputs(receipts=[damage(receipt, chance)])
        elif what == 7:
            made = chance.choice(sources.made)
            yield made.inputs(proof=seal(relogged(rearranged(made.payload, chance), made), made.signer))
        else:
            made, note = sources.kept
            yield made.inputs(checkpoint=damaged(note.encode(), chance))


def complaints(sources: Sources, seed: int, count: int) -> list[str]:
    """What was raised that is no `VerificationError`."""
    found = []
    for number, hostile in enumerate(inputs(sources, seed, count)):
        try:
            examine(hostile)
        except Exception as error:  # a crash is what is looked for
            found.append(f"seed {seed}, input {number}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("part", range(4))
def test_damaged_inputs_are_refused_and_nothing_else_is_raised(sources: Sources, part: int) -> None:
    assert complaints(sources, part, 1_000) == []


@pytest.mark.torture
@pytest.mark.parametrize("part", range(PARTS))
def test_a_million_damaged_inputs_are_refused(sources: Sources, part: int) -> None:
    assert complaints(sources, 1_000 + part, 1_000_000 // PARTS) == []


def test_damaged_keys_and_lists_of_keys_are_refused(tmp_path: Path) -> None:
    chance = random.Random(5)
    entries = [{"key": str(SERVER.public), "from": moment(0), "until": None, "revoked": None}]
    listed = canonical.encode({"type": "disavow/keys/v2", "keys": entries})
    path = tmp_path / "key"
    path.write_bytes(listed)
    assert trusted_keys(path) == [TrustedKey(SERVER.public, moment(0), None)]
    for number in range(1_000):
        damage = chance.choice((damaged, rearranged))
        good = f"{SERVER.public}\n".encode() if number % 2 else listed
        path.write_bytes(damaged(good, chance) if number % 2 else damage(good, chance))
        try:
            trusted_keys(path)
        except VerificationError:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)

READERS: dict[str, Callable[[bytes], object]] = {
    "envelope": Envelope.decode,
    "statement": decode_statement,
    "opening": Opening.decode,
    "receipt": decode_receipt,
}


@pytest.mark.parametrize("reader", READERS)
def test_any_bytes_are_read_or_refused(reader: str) -> None:
    @PROPERTY
    @given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
    def property_holds(data: bytes) -> None:
        try:
            READERS[reader](data)
        except VerificationError:
            return

    property_holds()


def test_any_signed_payload_is_refused() -> None:
    @PROPERTY
    @given(JSON)
    def property_holds(value: object) -> None:
        report = examine(VerificationInputs(seal(canonical.encode(value), SERVER), [TrustedKey(SERVER.public)]))
        assert report.failed is not None
        assert report.failed.name == "statement"

    property_holds()


def test_any_text_is_no_key_and_no_note() -> None:
    @PROPERTY
    @given(st.text(max_size=200) | st.builds("{}\n{}\n{}\n\n— {} {}\n".format, *[st.text(max_size=50)] * 5))
    def property_holds(text: str) -> None:
        for read in (PublicKey.parse, lambda note: open_checkpoint(note, SERVER.public)):
            with pytest.raises(VerificationError):
                read(text)

    property_holds()


# -- a million bytes and more --------------------------------------------------------------------------------------

LARGE, LARGEST = 1_000_000, 10_000_000

_KEY_LEAF = {"type": "key", "key": str(SERVER.public), "at": moment(1)}
_ROLLBACK = {"type": "rollback", "withdrawal": 1, "to": 1, "at": moment(1)}

SHAPES: dict[str, Callable[[int], bytes]] = {
    "zeros": bytes,
    "one long string": lambda size: b'"' + b"a" * (size - 2) + b'"',
    "a string that does not end": lambda size: b'"' + b"a" * (size - 1),
    "deep nesting": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "deep nesting of objects": lambda size: b'{"a":' * (size // 5),
    "millions of brackets": lambda size: b"[" + b"[]," * (size // 3 - 1) + b"[]]",
    "brackets that close first": lambda size: b"]" * (size // 2) + b"[" * (size // 2),
    "pairs of brackets": lambda size: b"[]" * (size // 2),
    "empty objects": lambda size: b"[" + b"{}," * (size // 3 - 1) + b"{}]",
    "escaped quotes": lambda size: b'"' + b'\\"' * (size // 2 - 1) + b'"',
    "escaped quotes without a string": lambda size: b'\\"' * (size // 2),
    "backslashes": lambda size: b'"' + b"\\" * (size - 2) + b'"',
    "quotes": lambda size: b'"' * size,
    "unicode escapes": lambda size: b'"' + b"\\ud83d" * (size // 6) + b'"',
    "a huge array of numbers": lambda size: b"[" + b"1," * (size // 2 - 1) + b"1]",
    "one long number": lambda size: b"1" * size,
    "one long fraction": lambda size: b"0." + b"1" * size,
    "strings": lambda size: b"[" + b'"",' * (size // 3 - 1) + b'""]',
    "keys": lambda size: b"{" + b",".join(b'"%d":0' % number for number in range(size // 11)) + b"}",
    "one key over and over": lambda size: b"{" + b'"a":0,' * (size // 6) + b'"a":0}',
    "spaces": lambda size: b" " * size,
    "leaves of no type": lambda size: _in_statement(b'{"a":0},', size),
    "leaves of keys": lambda size: _in_statement(canonical.encode(_KEY_LEAF) + b",", size),
    "rollbacks": lambda size: _in_statement(canonical.encode(_ROLLBACK) + b",", size),
    "closed rounds": lambda size: _in_short(b'"closed rounds"', "rounds", bytes(64), size),
    "withdrawn slots": lambda size: _in_short(b'"closed withdrawal"', "slots", b"\0\0", size),
}


def _in_short(kind: bytes, field: str, data: bytes, size: int) -> bytes:
    """A good statement of version 4 but for closed leaves that are very many, or withdraw very much."""
    text = to_base64(
        b"\1\1\0" + data * (size // len(data) // 2) if field == "slots" else data * (size // len(data) // 2)
    )
    leaf = b'{"digest":"%s",' % to_base64(bytes(32)).encode() if field == "slots" else b"{"
    leaf += b'"%s":"%s","type":%s},' % (field.encode(), text.encode(), kind)
    payload = among_others().proof(LEAVER).payload
    start = payload.index(b",{", payload.index(b'"leaves":[')) + 1
    return payload[:start] + leaf + payload[start:]


def _in_statement(leaf: bytes, size: int) -> bytes:
    """A good statement but for its leaves."""
    payload = deniable().proof(LEAVER).payload
    start = payload.index(b'"leaves":[') + len(b'"leaves":[')
    return payload[:start] + leaf * (size // len(leaf)) + payload[start:]


def around(payload: bytes) -> bytes:
    """A well-formed envelope, signed with the right key."""
    signature = {"keyid": SERVER.public.id, "sig": to_base64(SERVER.sign(to_be_signed(payload)))}
    return canonical.encode({"payload": to_base64(payload), "payloadType": PAYLOAD_TYPE, "signatures": [signature]})


def questions(shape: str, size: int) -> Iterator[tuple[str, VerificationInputs]]:
    """A large input in each place where one can stand."""
    made, data = deniable().proof(LEAVER), SHAPES[shape](size)
    yield "proof", made.inputs(proof=data)
    yield "payload", made.inputs(proof=around(data))
    yield "opening", made.inputs(opening=data)
    yield "receipt", made.inputs(receipts=[data])
    yield "checkpoint", made.inputs(checkpoint=data)


@pytest.mark.parametrize("size", [LARGE, pytest.param(LARGEST, marks=pytest.mark.torture)])
@pytest.mark.parametrize("shape", SHAPES)
def test_millions_of_hostile_bytes_are_refused(shape: str, size: int) -> None:
    for where, hostile in questions(shape, size):
        with pytest.raises(VerificationError):
            verify(hostile)
        assert where
