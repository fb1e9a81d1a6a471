"""Proofs about records of clients that stay, those that hold and those that must be refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256K1, SECP256R1, SECP384R1, derive_private_key

from disavow.proof import canonical
from disavow.proof.opening import OpenedRecords
from disavow.proof.validation import to_base64
from tests.proof.made_proofs import CLIENT, Made, signed_word
from tests.proof.vectors.hostile.forging import Edit, edited, in_predicate, vector_of
from tests.proof.vectors.short import short
from tests.proof.vectors.valid import LEAVER, OTHER, deniable
from tests.proof.vectors.vector import Vector, genuine
from tests.proof.world import World

KEYS = ("patient-17", "patient-4")
ONE = 0x5EED


def few_records() -> World:
    """Two records of a client that was in two rounds are erased; somebody leaves with it, and a round follows."""
    world = short("records").train(2).leave(LEAVER, OTHER, records={LEAVER: KEYS})
    return world.train(1)


def vectors() -> Iterator[Vector]:
    """Those that hold."""
    world = few_records()
    made = world.proof(LEAVER)
    yield genuine("records", "two records of a client that stays", made)
    yield genuine("records-beside", "somebody who left altogether with it", world.proof(OTHER))
    yield Vector("records-without-opening", "the same, about nobody in particular", made.proof, named=False)
    yield genuine(
        "records-removed", "with the client's word that it removed them", world.proof(LEAVER, world.word(LEAVER))
    )
    for curve in (SECP256R1(), SECP384R1()):
        word = world.word(LEAVER, derive_private_key(ONE, curve))
        yield genuine(
            f"records-removed-{curve.name}", f"the word is signed on {curve.name}", world.proof(LEAVER, word)
        )
    yield replace(
        genuine("records-word-not-given", "the proof has a word, and nobody shows it", world.proof(LEAVER, word)),
        word=None,
    )
    back = short("records back").train(3).leave(LEAVER, records={LEAVER: ["a"]}, to=2).train(2)
    yield genuine("records-rollback", "two rounds are trained again without the record", back.proof(LEAVER))
    never = short("records never").train(2, without=[LEAVER]).leave(LEAVER, records={LEAVER: ["a"]})
    yield genuine("records-never-present", "the client was in no round", never.proof(LEAVER))


def refused() -> Iterator[Vector]:
    """Those that must be refused."""
    world = few_records()
    made, beside, vouched = world.proof(LEAVER), world.proof(OTHER), world.proof(LEAVER, world.word(LEAVER))
    records = made.predicate["records"]
    for name, about, proof, edit in (
        ("records-called-one", "one of two records", made, _records(count=1)),
        ("records-called-others", "another list", made, _records(closed=to_base64(bytes(32)))),
        ("records-called-a-client", "records, and the proof says a client", made, _dropped),
        (
            "records-of-a-whole-client",
            "a client, and the proof says records",
            beside,
            in_predicate(records=records),
        ),
    ):
        yield edited(proof, name, about, "verdict", edit)
    what_if = short("records if").train(2).what_if(LEAVER)
    yield edited(what_if, "records-of-a-what-if", "nobody asked", "verdict", in_predicate(records=records))
    for name, about, edit in (
        ("records-none", "no record", _records(count=0)),
        ("records-null", "null in the place of records", in_predicate(records=None)),
        ("records-word-null", "null in the place of a word", _records(word=None)),
        ("records-word-short", "a word of 31 bytes", _records(word=to_base64(bytes(31)))),
    ):
        yield edited(made, name, about, "statement", edit)
    old = deniable().proof(LEAVER)
    yield edited(
        old, "records-in-version-3", "version 3 has no records", "statement", in_predicate(records=records)
    )
    yield from _openings(made, beside)
    yield from _words(world, vouched, beside)


def _records(**values: Any) -> Edit:
    return lambda statement: statement["predicate"]["records"].update(values)


def _dropped(statement: dict[str, Any]) -> None:
    del statement["predicate"]["records"]


def _openings(made: Made, beside: Made) -> Iterator[Vector]:
    named = made.opening.records
    assert named is not None
    for name, about, records in (
        ("records-opening-of-one", "it names one of them", replace(named, keys=KEYS[:1])),
        ("records-opening-of-others", "it names another", replace(named, keys=("patient-17", "patient-5"))),
        ("records-opening-twice", "it names one twice", replace(named, keys=("patient-4", "patient-4"))),
        ("records-opening-other-salt", "another salt", replace(named, salt=bytes(32))),
        ("records-opening-of-a-client", "it names none", None),
    ):
        opening = replace(made.opening, records=records).encode()
        yield vector_of(made, name, about, "opening", opening=opening)
    wrong = replace(beside.opening, records=OpenedRecords(salt=bytes(32), keys=("a",))).encode()
    yield vector_of(beside, "records-opening-for-a-client", "it names some of a client", "opening", opening=wrong)


def _words(world: World, made: Made, beside: Made) -> Iterator[Vector]:
    word = world.word(LEAVER)
    payload = canonical.decode(word.payload, what="a word", most=10_000)
    other = signed_word(canonical.encode({**payload, "records": to_base64(bytes(32))}), CLIENT)
    elsewhere = signed_word(canonical.encode({**payload, "run": "other"}), CLIENT)
    forged = replace(word, signature=bytes(64))
    koblitz = world.word(LEAVER, derive_private_key(ONE, SECP256K1()))
    unreadable = signed_word(canonical.encode({**payload, "more": 1}), CLIENT)
    for name, about, found in (
        ("records-word-forged", "its signature does not hold", forged),
        ("records-word-of-others", "about other records", other),
        ("records-word-of-another-run", "about another run", elsewhere),
        ("records-word-other-curve", "signed on a curve that is not read", koblitz),
        ("records-word-no-key", "the key is none", replace(word, public_key=b"key")),
        ("records-word-with-more", "a field too many in what is signed", unreadable),
    ):
        yield vector_of(world.proof(LEAVER, found), name, about, "word", word=found.encode())
    yield vector_of(made, "records-word-unreadable", "it is no word", "word", word=word.payload)
    again = world.word(LEAVER, derive_private_key(ONE, SECP256R1()))
    yield vector_of(made, "records-word-another", "another word than the proof has", "word", word=again.encode())
    yield vector_of(
        world.proof(LEAVER), "records-word-too-late", "the proof has no word", "word", word=word.encode()
    )
    yield vector_of(beside, "records-word-of-a-client", "the proof is about a client", "word", word=word.encode())
