"""Proofs that do not hold. Where content is wrong, the right key has signed it, and a forged log's head too."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import nextafter
from typing import Any

from disavow.proof import canonical
from disavow.proof.envelope import PAYLOAD_TYPE, seal, to_be_signed
from disavow.proof.leaves import UNTOUCHED, commit_rounds, joined, map_root
from disavow.proof.merkle import root_of
from disavow.proof.notes import Checkpoint, Signer
from disavow.proof.opening import Opening
from disavow.proof.validation import to_base64
from disavow.proof.verify import TrustedKey
from tests.proof.vectors.valid import (
    CALIBRATED,
    LEAVER,
    OTHER,
    RENAMED,
    deniable,
    limited,
    mate,
    rebuilt,
    rebuilt_again,
    relative,
    rolled_back,
    several,
)
from tests.proof.vectors.vector import Vector
from tests.proof.world import NEXT, SERVER, STRANGER, Made, World, client, hash_of, moment, tell_bounds

Edit = Callable[[dict[str, Any]], object]


def vectors() -> Iterator[Vector]:
    """By the check that refuses them."""
    yield from _unreadable()
    yield from _signatures()
    yield from _statements()
    yield from _checkpoints()
    yield from _histories()
    yield from _policies()
    yield from _revoked()
    yield from _rounds()
    yield from _times()
    yield from _rebuilt()
    yield from _clusters()
    yield from _survivors()
    yield from _numbers()
    yield from _verdicts()
    yield from _openings()
    yield from _receipts()
    yield from _models()
    yield from _several()


def _with(made: Made, name: str, about: str, fails: str, proof: bytes | None = None, **more: Any) -> Vector:
    told = {"opening": made.opening.encode(), "what_if": made.what_if, **more}
    if isinstance(told.get("checkpoint"), str):
        told["checkpoint"] = told["checkpoint"].encode()
    return Vector(name, about, made.proof if proof is None else proof, fails, **told)


def _edited(made: Made, name: str, about: str, fails: str, edit: Edit, *, relogged: bool = False) -> Vector:
    return _with(made, name, about, fails, made.forged(edit, relogged=relogged))


def _in_predicate(**values: Any) -> Edit:
    return lambda statement: statement["predicate"].update(values)


def _in_cluster(**values: Any) -> Edit:
    return lambda statement: statement["predicate"]["clusters"][0].update(values)


def _in_leaf(place: int, **values: Any) -> Edit:
    return lambda statement: statement["predicate"]["leaves"][place].update(values)


def _without_leaf(place: int) -> Edit:
    return lambda statement: statement["predicate"]["leaves"].pop(place)


def _leaf_without(place: int, name: str) -> Edit:
    return lambda statement: statement["predicate"]["leaves"][place].pop(name)


def _raw(payload: bytes) -> bytes:
    """A well-formed envelope around anything, signed with the right key."""
    return seal(payload, SERVER)


def _unreadable() -> Iterator[Vector]:
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
        yield _with(made, name, about, "readable", data)


def _hollow(payload: str) -> bytes:
    return canonical.encode({"payload": payload, "payloadType": PAYLOAD_TYPE, "signatures": []})


def _signatures() -> Iterator[Vector]:
    made = deniable().proof(LEAVER)
    yield _with(
        made, "by-a-stranger", "sealed with a key that nobody trusts", "signature", seal(made.payload, STRANGER)
    )
    yield _with(
        made,
        "by-a-stranger-in-disguise",
        "a stranger's signature under the server's key id",
        "signature",
        _disguised(made),
    )
    yield _with(made, "key-list-empty", "a key list without a key trusts nobody", "signature", trusted=())
    swapped = json.loads(made.proof)
    swapped["payload"] = to_base64(deniable().train(1).proof(LEAVER).payload)
    yield _with(
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


def _statements() -> Iterator[Vector]:
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
        yield _with(made, name, about, "statement", _raw(payload))
    what_if = World("if").train(2).what_if(LEAVER)
    yield replace(
        _with(what_if, "what-if-as-erasure", "a what-if where an erasure is asked for", "statement"), what_if=False
    )
    yield replace(
        _with(made, "erasure-as-what-if", "an erasure where a what-if is asked for", "statement"), what_if=True
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


def _checkpoints() -> Iterator[Vector]:
    world = deniable()
    made = world.proof(LEAVER)
    head = Checkpoint(made.predicate["checkpoint"].split("\n")[0], len(world.leaves), root_of(world.hashes))
    good, namesake = head.signed(SERVER), Signer(SERVER.name, STRANGER.private)
    for name, about, note in (
        ("tree-too-large", "a head over one leaf more", replace(head, size=head.size + 1).signed(SERVER)),
        ("tree-too-small", "a head over one leaf less", replace(head, size=head.size - 1).signed(SERVER)),
        ("tree-of-a-billion", "a head over 1,000,000,000 leaves", replace(head, size=10**9).signed(SERVER)),
        ("tree-of-15-digits", "a head over 10^15 - 1 leaves", replace(head, size=10**15 - 1).signed(SERVER)),
        ("tree-of-30-digits", "a head over more leaves than are read", replace(head, size=10**30).signed(SERVER)),
        ("replayed-checkpoint", "a head from before the withdrawal", world.checkpoint(3)),
        ("checkpoint-unsigned", "a head that nobody signed", head.body),
        ("checkpoint-by-a-stranger", "a head that a stranger signed", head.signed(STRANGER)),
        ("checkpoint-by-a-namesake", "a stranger's head under the server's name", head.signed(namesake)),
        ("checkpoint-signed-twice", "a second signature below", good + head.signed(NEXT).split("\n\n")[1]),
        ("checkpoint-broken-note", "no empty line before the signature", good.replace("\n\n", "\n")),
    ):
        yield _edited(made, name, about, "checkpoint", _in_predicate(checkpoint=note))
    yield _with(
        made,
        "checkpoint-under-another-name",
        "the first of two entries with the signer's bytes has a name that the checkpoint does not bear",
        "checkpoint",
        trusted=(TrustedKey(RENAMED, moment(0)), TrustedKey(SERVER.public, moment(0))),
    )
    for name, about, false in (
        ("root-of-another-tree", "a head that the leaves do not have", replace(head, root=world.hashes[0])),
        ("checkpoint-of-another-run", "the same root under another origin", replace(head, origin="disavow/run/x")),
    ):
        yield _edited(made, name, about, "log", _in_predicate(checkpoint=false.signed(SERVER)))
    empty = replace(head, size=0, root=root_of([])).signed(SERVER)
    yield _edited(made, "no-leaves", "an empty log", "log", _in_predicate(leaves=[], checkpoint=empty))
    headless = replace(head, size=head.size - 1, root=root_of(world.hashes[1:])).signed(SERVER)
    yield _edited(
        made,
        "without-promises",
        "leaf 0 is left out, and the head is of what remains",
        "log",
        _in_predicate(leaves=world.leaves[1:], checkpoint=headless),
    )
    yield _edited(made, "leaf-changed", "a model is changed under the old head", "log", _in_leaf(1, after="0" * 64))


def _histories() -> Iterator[Vector]:
    world = deniable()
    made, kept = world.proof(LEAVER), world.checkpoint(3)
    fork = World("deniable").train(1).train(1, without=[OTHER]).leave(LEAVER).proof(LEAVER)
    for name, about, proof, note in (
        ("forked-log", "a log that goes another way after leaf 1", fork, kept),
        (
            "replayed-log",
            "a log from before a later withdrawal, of which somebody kept a head",
            made,
            deniable().leave(OTHER).checkpoint(),
        ),
        (
            "lowered-x",
            "x was 3 when the round was recorded, and 2 in the log that the proof shows",
            World("lowered", x=2).train(2).leave(LEAVER).proof(LEAVER),
            World("lowered", x=3).train(2).checkpoint(),
        ),
        (
            "left-out-earlier-withdrawal",
            "somebody who left before is a survivor in a log written anew",
            World("earlier", x=1).train(2).leave(OTHER).proof(OTHER),
            World("earlier", x=1).train(2).leave(LEAVER).checkpoint(),
        ),
        ("kept-of-another-run", "the head that somebody kept is of another run", made, World("else").checkpoint()),
        ("kept-unsigned", "the head that somebody kept is not signed", made, kept.split("\n\n")[0] + "\n"),
        ("kept-by-a-stranger", "the head that somebody kept is a stranger's", made, world.checkpoint(3, STRANGER)),
        ("kept-empty", "the head that somebody kept is an empty file", made, ""),
        ("kept-not-text", "the head that somebody kept is no UTF-8", made, kept.encode() + b"\xff"),
        ("kept-in-latin-1", "its dash is written in another encoding", made, kept.encode().replace(DASH, b"\x97")),
        ("kept-with-a-hollow-signature", "a cosignature of no byte", made, kept + "\u2014 x AAAAAA==\n"),
        (
            "kept-with-a-false-signature-and-no-line",
            "a false signature of the right key stands before a line that is no signature",
            made,
            f"{_false_signature(kept)}no signature\n",
        ),
        ("kept-with-a-false-signature", "a false signature of the right key", made, _false_signature(kept)),
        (
            "kept-with-a-false-signature-and-a-good-one",
            "a false signature of the right key stands beside a good one",
            made,
            kept + _false_signature(kept).rpartition("\n\n")[2],
        ),
    ):
        yield _with(proof, name, about, "history", checkpoint=note)


DASH = "\u2014".encode()


def _false_signature(note: str) -> str:
    """The note with the signature of another text."""
    text, _, line = note.rpartition("\n\n")
    other = World("else").checkpoint().rpartition("\n\n")[2]
    assert line.split()[1] == other.split()[1]
    return f"{text}\n\n{other}"


def _policies() -> Iterator[Vector]:
    made = deniable().proof(LEAVER)
    promised = made.predicate["leaves"][0]["policy"]
    yield _edited(
        made,
        "x-out-of-reach",
        "x is more than k",
        "policy",
        _in_leaf(0, policy={**promised, "x": 4}),
        relogged=True,
    )
    for name, about, changed in (
        ("as-many-drawn-as-k", "all members of a cluster of k are drawn", {"representatives": 3, "x": 1}),
        ("more-drawn-than-k", "more are drawn than a cluster of k has", {"representatives": 4, "x": 1}),
        ("x-out-of-reach-beside-the-drawn", "x + s - 1 is more than k", {"representatives": 2, "x": 3}),
        ("drawn-of-four-billion", "x + s - 1 is beyond four bytes", {"representatives": 2**32 - 1}),
        ("delta-fixed-and-relative", "Δ is said twice", {"delta": "0.25", "relative_delta": "0.4"}),
        ("odds-below-one", "a limit that nobody can keep to", {"odds": "0.5"}),
        ("odds-of-zero", "a limit that has no logarithm", {"odds": "0.0"}),
    ):
        yield _edited(made, name, about, "policy", _in_leaf(0, policy={**promised, **changed}), relogged=True)
    for name, about, changed in (
        ("nobody-drawn", "no representative", {"representatives": 0}),
        ("statistics-that-nobody-knows", "of the running statistics neither mean nor drawn", {"statistics": "all"}),
        ("odds-without-quotes", "a number where a decimal is due", {"odds": 10}),
        ("relative-delta-with-x", "the setting, and not its number", {"relative_delta": "0.5x"}),
        ("criterion-in-the-policy", "a field of the version before", {"criterion": "neighbourhood"}),
    ):
        yield _edited(made, name, about, "statement", _in_leaf(0, policy={**promised, **changed}), relogged=True)
    for name, about, frozen in (
        ("frozen-parameters-of-null", "null, where the field is left out", None),
        ("frozen-parameters-in-capitals", "a digest in capital letters", "AB" * 32),
    ):
        yield _edited(made, name, about, "statement", _in_leaf(0, frozen=frozen), relogged=True)
    yield _edited(
        made,
        "frozen-parameters-added",
        "frozen parameters that the log did not have, under the old head",
        "log",
        _in_leaf(0, frozen="ab" * 32),
    )
    yield _edited(
        made,
        "statistics-changed",
        "the policy says that statistics are those of the drawn, under the old head",
        "log",
        _in_leaf(0, policy={**promised, "statistics": "drawn"}),
    )
    world = World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER)
    both = (TrustedKey(SERVER.public, moment(0)), TrustedKey(NEXT.public, moment(0)))
    old = replace(world.proof(LEAVER), signer=SERVER)
    yield _with(
        old,
        "signed-with-the-old-key",
        "the key was replaced, and the old one signs",
        "policy",
        old.forged(lambda statement: None, relogged=True),
        trusted=both,
    )
    yield _with(
        made,
        "key-out-of-use",
        "the key was out of use when the last leaf was written",
        "policy",
        trusted=(TrustedKey(SERVER.public, moment(0), moment(1)),),
    )
    yield _with(
        made,
        "key-not-in-use-yet",
        "the key came into use after the last leaf was written",
        "policy",
        trusted=(TrustedKey(SERVER.public, moment(9), None),),
    )
    days = World("days", minutes=24 * 60).train(2).leave(LEAVER)
    yield _with(
        days.proof(LEAVER),
        "key-out-of-use-on-the-day",
        "the key was out of use the day before the withdrawal, the last leaf",
        "policy",
        trusted=(TrustedKey(SERVER.public, moment(0), moment(3 * 24 * 60 - 1)),),
    )
    yield _with(
        World("late", key=None).train(2).leave(LEAVER).proof(LEAVER),
        "signed-late-with-a-retired-key",
        "the log names no key, and the one that signed was replaced before the last leaf",
        "policy",
        trusted=(TrustedKey(SERVER.public, moment(0), moment(1)),),
    )


def _revoked() -> Iterator[Vector]:
    world = World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER)
    made, stolen = world.proof(LEAVER), TrustedKey(SERVER.public, moment(0), moment(2), moment(9))
    good = TrustedKey(NEXT.public, moment(2), None)
    yield _with(
        made,
        "revoked-key",
        "the key that signed was revoked, long after it signed",
        "signature",
        trusted=(TrustedKey(SERVER.public, moment(0), moment(2)), replace(good, revoked=moment(9))),
    )
    yield _with(
        made,
        "revoked-key-listed-twice",
        "one entry of the key is revoked, another is not",
        "signature",
        trusted=(good, replace(good, revoked=moment(9))),
    )
    yield _with(
        made,
        "older-checkpoint-by-a-revoked-key",
        "the older checkpoint is signed with a key that was revoked",
        "history",
        trusted=(stolen, good),
        checkpoint=world.checkpoint(2, SERVER),
    )
    yield _with(
        made,
        "receipt-by-a-revoked-key",
        "the receipt is under a head that is signed with a key that was revoked",
        "receipts",
        trusted=(stolen, good),
        receipts=[world.receipt(LEAVER, 1, key=SERVER)],
    )


def _rounds() -> Iterator[Vector]:
    made, back = deniable().proof(LEAVER), rolled_back().proof(mate())
    kinds = [leaf["type"] for leaf in back.predicate["leaves"]]
    rollback = kinds.index("rollback")
    for name, about, proof, edit in (
        ("gap-in-rounds", "round 1 is left out", made, _without_leaf(1)),
        (
            "left-out-withdrawal",
            "the withdrawal is left out, its rollback is not",
            back,
            _without_leaf(rollback - 1),
        ),
        ("left-out-rollback", "the rollback is left out", back, _without_leaf(rollback)),
        ("rollback-too-far", "the rollback is to a round that does not stand", back, _in_leaf(rollback, to=3)),
        ("rollback-of-another-withdrawal", "it points elsewhere", back, _in_leaf(rollback, withdrawal=3)),
        ("round-twice", "round 1 stands twice", made, _in_leaf(2, number=1)),
        ("attempt-skipped", "a round that was recorded before is not shown", made, _in_leaf(2, attempt=2)),
        ("chain-broken", "round 2 does not start from the model of round 1", made, _in_leaf(2, before="0" * 64)),
        ("clusters-below-k", "more clusters than k allows", made, _in_leaf(1, clusters=3)),
        ("clusters-above-2k", "fewer clusters than 2k allows", made, _in_leaf(1, clusters=1)),
        ("miscounted-withdrawal", "a withdrawal that forgets a round", made, _in_leaf(3, rounds=1)),
        ("withdrawal-of-nobody", "a withdrawal without a request", made, _in_leaf(3, requests=[])),
        ("second-beginning", "the promises are made again", made, _in_predicate(leaves=_promised_again(made))),
    ):
        yield _edited(proof, name, about, "rounds", edit, relogged=True)
    fixed = World("fixed-delta", delta=0.5).train(2).leave(LEAVER).proof(LEAVER)
    yield _edited(
        fixed, "delta-changed", "a round with another Δ", "rounds", _in_leaf(2, delta="0.75"), relogged=True
    )
    made = relative().proof(LEAVER)
    delta = float(made.predicate["leaves"][2]["delta"])
    for name, about, edit in (
        ("relative-delta-changed", "a wider Δ than the update norm gives", _in_leaf(2, delta="0.75")),
        (
            "relative-delta-rounded",
            "Δ is not the product to its last bit",
            _in_leaf(2, delta=repr(nextafter(delta, 1))),
        ),
        ("update-norm-changed", "another update norm beside the same Δ", _in_leaf(2, update_norm="0.7")),
        ("update-norm-too-large", "the product is no float64", _in_leaf(2, update_norm="1.7976931348623157e+308")),
        ("pairs-beyond-all", "more pairs within Δ than there are", _in_leaf(2, pairs_within="1.0000000000000002")),
    ):
        yield _edited(made, name, about, "rounds", edit, relogged=True)
    for name, about, edit in (
        ("update-norm-left-out", "a round without its update norm", _leaf_without(2, "update_norm")),
        (
            "pairs-left-out",
            "a round that does not say how many pairs are within Δ",
            _leaf_without(2, "pairs_within"),
        ),
        ("pairs-below-none", "fewer pairs than none", _in_leaf(2, pairs_within="-0.5")),
    ):
        yield _edited(made, name, about, "statement", edit, relogged=True)


def _times() -> Iterator[Vector]:
    made = deniable().train(1).proof(LEAVER)
    days = World("days", minutes=24 * 60).train(2).leave(LEAVER).train(1).proof(LEAVER)
    for name, about, proof, edit in (
        ("withdrawal-before-a-round", "a day before the round before it", days, _in_leaf(3, at="2026-01-02")),
        ("round-before-a-withdrawal", "a round on the day before", days, _in_leaf(4, at=moment(3 * 24 * 60 - 1))),
        (
            "round-before-a-round",
            "on the day of the withdrawal between them, and before the first of them",
            made,
            _in_leaf(4, at=moment(1)),
        ),
        ("judged-before-asked", "asked the day after the withdrawal", made, _asked_on("2026-01-02")),
    ):
        yield _edited(proof, name, about, "rounds", edit, relogged=True)
    for name, about, edit in (
        ("withdrawal-with-a-time", "a time where a day is due", _in_leaf(3, at=moment(3))),
        ("withdrawal-on-no-day", "a day that no calendar has", _in_leaf(3, at="2026-02-30")),
        ("request-with-a-time", "a time where a day is due", _asked_on(moment(3))),
        ("round-with-a-day", "a day where a time is due", _in_leaf(1, at="2026-01-01")),
        ("times-with-days", "days where times are due", _in_times(made, asked_at="2026-01-01")),
    ):
        yield _edited(made, name, about, "statement", edit)
    for name, about, edit in (
        ("times-left-out", "an erasure without its times", _in_predicate(times=None)),
        ("asked-after-it-was-judged", "later on the same day", _in_times(made, asked_at=moment(60))),
        ("answered-before-it-was-judged", "a minute earlier", _in_times(made, answered_at=moment(2))),
        ("asked-on-a-day-before", "the log has another day", _in_times(made, asked_at=moment(-1))),
        (
            "judged-on-a-day-after",
            "the log has another day",
            _in_times(made, judged_at=moment(24 * 60), answered_at=moment(24 * 60)),
        ),
    ):
        yield _edited(made, name, about, "verdict", edit)
    what_if = World("if").train(2).what_if(LEAVER)
    yield _edited(
        what_if,
        "what-if-with-times",
        "nobody asked",
        "verdict",
        _in_predicate(times=made.predicate["times"]),
    )


def _in_times(made: Made, **values: str) -> Edit:
    return _in_predicate(times={**made.predicate["times"], **values})


def _asked_on(day: str) -> Edit:
    return lambda statement: statement["predicate"]["leaves"][3]["requests"][0].update(asked_at=day)


def _promised_again(made: Made) -> list[dict[str, Any]]:
    leaves = made.predicate["leaves"]
    return [*leaves[:2], leaves[0], *leaves[2:]]


def _clusters() -> Iterator[Vector]:
    world = deniable()
    made = world.proof(LEAVER)
    shown = made.predicate["clusters"][0]
    twice = World("deniable", x=1).train(2).leave(LEAVER).leave(mate_in_first(world))
    later = twice.proof(LEAVER)
    aside = World("aside").train(1).train(1, without=[LEAVER]).leave(LEAVER).proof(LEAVER)
    gone = later.predicate["clusters"][0]["withdrawn"]
    stayed = shown["first"] + (shown["slot"] == shown["first"])
    for name, about, proof, edit, relogged in (
        ("cluster-of-a-billion", "1,000,000,000 slots", made, _in_cluster(size=10**9), False),
        ("slot-left-out", "a slot less than the size", made, _in_cluster(slots=shown["slots"][1:]), False),
        ("slots-in-another-order", "two slots swapped", made, _in_cluster(slots=shown["slots"][::-1]), False),
        ("spread-lowered", "narrower than the log says", made, _in_cluster(spread="0.0625"), False),
        ("path-too-long", "a step too many", made, _in_cluster(path=[*shown["path"], shown["path"][0]]), False),
        ("path-of-64", "64 steps", made, _in_cluster(path=shown["path"] * 64), False),
        ("path-missing", "no step at all", made, _in_cluster(path=[]), False),
        (
            "round-of-four-billion",
            "4,294,967,295 participants in 1,431,655,765 clusters",
            made,
            _in_leaf(1, participants=2**32 - 1, clusters=1431655765),
            True,
        ),
        ("leaver-counted-as-survivor", "nobody is withdrawn", made, _in_cluster(withdrawn=[]), False),
        (
            "leaver-withdrawn-behind-a-curtain",
            "the leaver's own slot stays closed",
            made,
            _in_cluster(withdrawn=_closed(world, 0)),
            False,
        ),
        (
            "withdrawn-counted-as-survivor",
            "two left one after the other, and only the leaver is shown as withdrawn",
            later,
            _in_cluster(withdrawn=gone[:1]),
            False,
        ),
        (
            "withdrawn-behind-a-curtain",
            "the slot of the second who left stays closed, though its cluster is shown",
            later,
            _in_cluster(withdrawn=[gone[0], _closed(twice, 0)[1]]),
            False,
        ),
        (
            "withdrawn-from-elsewhere",
            "the second who left is said to have left another cluster",
            later,
            _in_cluster(withdrawn=[gone[0], {**_closed(twice, 0)[1], "position": 1 - gone[1]["position"]}]),
            False,
        ),
        (
            "withdrawn-out-of-order",
            "the second who left comes first",
            later,
            _in_cluster(withdrawn=gone[::-1]),
            False,
        ),
        (
            "withdrawn-by-another-leaf",
            "the leaver's slot was withdrawn when another left",
            later,
            _in_predicate(withdrawal=4),
            False,
        ),
        (
            "another-withdrawn",
            "a survivor's slot is shown as withdrawn",
            made,
            _in_cluster(withdrawn=[{**shown["withdrawn"][0], "slot": stayed}]),
            False,
        ),
        ("slot-of-a-survivor", "the leaver's slot is a survivor's", made, _in_cluster(slot=stayed), False),
        ("cluster-of-no-round", "a cluster of the withdrawal", made, _in_cluster(leaf=3), False),
        ("cluster-of-no-leaf", "a cluster of a leaf beyond the log", made, _in_cluster(leaf=2**32 - 1), False),
        ("map-left-out", "no map of withdrawals", made, _in_predicate(maps=[]), False),
        ("map-too-many", "a map more than there are withdrawals", made, _in_predicate(maps=[[], []]), False),
        ("map-too-long", "a map of more rounds than there were", made, _in_predicate(maps=[[None]]), False),
        ("map-too-short", "a map of fewer rounds than there were", aside, _in_predicate(maps=[[]]), False),
        (
            "map-changed",
            "another value in the map of withdrawals",
            aside,
            _in_predicate(maps=[[to_base64(b"v" * 32)]]),
            False,
        ),
        (
            "map-told-twice",
            "a value that has not changed is given again",
            aside,
            _in_predicate(maps=[[to_base64(UNTOUCHED)]]),
            False,
        ),
    ):
        yield _edited(proof, name, about, "clusters", edit, relogged=relogged)
    yield _edited(
        made,
        "leaver-never-withdrawn",
        "the map in the log forgets the leaver, and the proof agrees with it",
        "clusters",
        _forgotten,
        relogged=True,
    )
    yield _with(
        _amnesia(),
        "withdrawn-forgotten-later",
        "a later map in the log forgets somebody who left before, who is counted as a survivor",
        "clusters",
    )
    what_if = World("if").train(2).what_if(LEAVER)
    yield replace(
        _edited(what_if, "what-if-retyped", "a what-if under the type of an erasure", "clusters", _retype),
        what_if=False,
    )
    back = rolled_back().proof(LEAVER)
    superseded = {**back.predicate["clusters"][0], "leaf": back.predicate["rounds"]["superseded"][0]}
    yield _edited(
        back,
        "cluster-of-a-superseded-round",
        "a cluster of a round that does not stand",
        "clusters",
        _in_predicate(clusters=[*back.predicate["clusters"], superseded]),
    )
    alone = World("alone", clients=3, k=3, x=1, **CALIBRATED).train(1).leave(LEAVER)
    yield _edited(
        alone.proof(LEAVER),
        "only-cluster-of-half-the-data",
        "the round has one cluster, said to have half the data: the odds look smaller than they are",
        "clusters",
        _halved,
        relogged=True,
    )


def mate_in_first(world: World) -> str:
    """Somebody who shared the leaver's cluster in round 1."""
    past = world.pasts[0]
    return next(name for name in past.group_of(past.slots[LEAVER]).clients if name not in world.gone)


def _halved(statement: dict[str, Any]) -> None:
    """Half the weight for the only cluster of round 1, in the log as in the proof."""
    predicate = statement["predicate"]
    (shown,) = predicate["clusters"]
    shown["weight"] = "0.5"
    slots = joined([base64.b64decode(slot) for slot in shown["slots"]])
    plain = {name: shown[name] for name in ("first", "position", "size", "spread", "weight")}
    predicate["leaves"][1]["root"] = to_base64(hash_of({**plain, "slots": to_base64(slots)}))
    tell_bounds(predicate)


def _retype(statement: dict[str, Any]) -> None:
    statement["predicateType"] = "urn:disavow:proof-of-deniability:v3"


def _closed(world: World, number: int) -> list[dict[str, Any]]:
    """Those withdrawn from a round, none of them open."""
    return world.withdrawn(world.pasts[number], [])


def _forgotten(statement: dict[str, Any]) -> None:
    """The map of withdrawals without anybody in it, in the log as in the proof."""
    predicate = statement["predicate"]
    predicate["leaves"][3]["root"] = to_base64(map_root([UNTOUCHED, UNTOUCHED]))
    for cluster in predicate["clusters"]:
        cluster["withdrawn"] = []


def _amnesia() -> Made:
    """The first who left is forgotten in the map of the second withdrawal."""
    world = deniable()
    first = mate_in_first(world)
    world = World("deniable").train(2).leave(first, verdict="deniable")
    for past in world.pasts:
        past.withdrawn.clear()
    return world.leave(LEAVER, verdict="deniable").proof(LEAVER)


def _survivors() -> Iterator[Vector]:
    few = World("deniable", x=3).train(2).leave(LEAVER, verdict="deniable").proof(LEAVER)
    yield _with(few, "too-few-survivors", "the log says deniable, and x - 1 are left", "survivors")
    for name, about, x, drawn in (
        ("one-survivor-too-few-beside-the-drawn", "x are left, and two were drawn: x + 1 are needed", 3, 2),
        ("one-survivor-too-few-beside-two", "x + 1 are left, and three were drawn: x + 2 are needed", 2, 3),
    ):
        world = World("several", clients=8, k=4, x=x, representatives=drawn).train(1)
        yield _with(world.leave(LEAVER, verdict="deniable").proof(LEAVER), name, about, "survivors")
        yield _with(world.what_if(OTHER), f"what-if-{name}", f"{about}, if somebody asked", "survivors")
    for name, about, together in (
        ("all-members-gone", "all members of a cluster left one after the other, and the log says deniable", False),
        ("all-members-gone-together", "the same, all at once", True),
    ):
        world, last = all_gone(together=together)
        yield _with(world.proof(last), name, about, "survivors")
        if not together:
            yield _with(
                world.proof(LEAVER),
                "all-members-gone-since",
                "the proof of the first of them, renewed when all had left",
                "survivors",
            )


def all_gone(*, together: bool) -> tuple[World, str]:
    """All members of the leaver's cluster of round 1 have left, and the server calls each of them deniable. The
    last of them too.
    """
    world = World("all gone", clients=8, k=4, x=1).train(1)
    past = world.pasts[0]
    names = [LEAVER, *(name for name in past.group_of(past.slots[LEAVER]).clients if name != LEAVER)]
    if together:
        return world.leave(*names, verdict="deniable"), names[-1]
    for name in names:
        world.leave(name, verdict="deniable")
    return world, names[-1]


def _numbers() -> Iterator[Vector]:
    wide = World("wide", delta=0.1).train(2).leave(LEAVER, verdict="deniable").proof(LEAVER)
    yield _with(wide, "cluster-too-wide", "the log says deniable, and a cluster is wider than Δ", "spread")
    made = deniable().proof(LEAVER)
    for name, about, edit in (
        ("displacement-lowered", "a smaller displacement", _in_cluster(displacement="0.001")),
        ("odds-lowered", "smaller odds", _in_cluster(log10_odds="0.5")),
        ("odds-left-out", "no odds, though there is noise", _in_cluster(log10_odds=None)),
        ("total-lowered", "a smaller total", _in_predicate(bounds={**made.predicate["bounds"], "ratio": "0.1"})),
        ("drawn-lowered", "a smaller chance to have been drawn", _in_bounds(made, drawn="0.25")),
        ("drawn-raised", "a chance to have been drawn above 1", _in_bounds(made, drawn="1.5")),
        ("drawn-once", "the chance of one of two rounds", _in_bounds(made, drawn="0.333333")),
    ):
        yield _edited(made, name, about, "bounds", edit)

    def quieter(statement: dict[str, Any]) -> None:
        statement["predicate"]["leaves"][1]["tau"] = "0.0001"
        tell_bounds(statement["predicate"])

    yield _edited(made, "drawn-left-out", "no chance to have been drawn", "statement", _without_drawn)
    yield from _odds()
    yield from _drawn()
    yield from _loud()
    yield _edited(
        made,
        "noise-not-of-the-policy",
        "less noise in the log than one cluster alone adds",
        "bounds",
        quieter,
        relogged=True,
    )


def _in_bounds(made: Made, **values: str) -> Edit:
    return _in_predicate(bounds={**made.predicate["bounds"], **values})


def _without_drawn(statement: dict[str, Any]) -> None:
    del statement["predicate"]["bounds"]["drawn"]


def _odds() -> Iterator[Vector]:
    """The log says deniable, and the odds over all rounds are more than the policy allows."""
    for name, about, world in (
        ("odds-exceeded", "each round stays below 1.4, and both together do not", limited(1.4)),
        ("odds-exceeded-in-one-round", "already one round exceeds 1.2", limited(1.2)),
        ("odds-without-noise", "there is no Gaussian noise, and the odds have no bound", limited(noise="none")),
        ("odds-with-laplace", "the noise is not Gaussian", limited(noise="paper", distribution="laplace")),
    ):
        yield _with(world.leave(LEAVER, verdict="deniable").proof(LEAVER), name, about, "bounds")
    yield _with(limited(1.4).what_if(LEAVER), "what-if-odds-exceeded", "the same, if somebody asked", "bounds")


def _loud() -> Iterator[Vector]:
    """More noise than there can be, so that odds look smaller than they are."""

    def louder(statement: dict[str, Any]) -> None:
        for leaf in statement["predicate"]["leaves"]:
            if leaf["type"] == "round":
                leaf["tau"] = "1000.0"
        tell_bounds(statement["predicate"])

    for name, about, world in (
        ("noise-without-sigma", "the policy has a sigma of 0", World("silent", sigma=0.0, delta=9.0)),
        ("noise-of-more-clusters", "the round has one cluster", World("alone", clients=3, delta=9.0, k=3, x=1)),
    ):
        made = world.train(2).leave(LEAVER, verdict="deniable").proof(LEAVER)
        yield _edited(made, name, f"more noise than there can be: {about}", "bounds", louder, relogged=True)


def _drawn() -> Iterator[Vector]:
    """Two are drawn of each cluster, and the bounds or the noise are those of one."""
    world = several()
    made = world.proof(LEAVER)

    def of_one(statement: dict[str, Any]) -> None:
        _told_of_one(statement["predicate"])

    def louder(statement: dict[str, Any]) -> None:
        for leaf in statement["predicate"]["leaves"]:
            if leaf["type"] == "round":
                leaf["tau"] = repr(2 * float(leaf["tau"]))
        tell_bounds(statement["predicate"])

    yield _edited(made, "bounds-of-one-drawn", "displacement is that of one representative", "bounds", of_one)
    yield _edited(
        made,
        "chance-of-one-drawn",
        "the chance is that of one representative",
        "bounds",
        _in_bounds(made, drawn="0.4"),
    )
    yield _edited(
        made, "noise-of-one-drawn", "τ is not divided by the number drawn", "bounds", louder, relogged=True
    )


def _told_of_one(predicate: dict[str, Any]) -> None:
    """The bounds as they would be with one representative of each cluster."""
    policy = predicate["leaves"][0]["policy"]
    drawn, policy["representatives"] = policy["representatives"], 1
    tell_bounds(predicate)
    policy["representatives"] = drawn


def _verdicts() -> Iterator[Vector]:
    world = deniable()
    made, back = world.proof(LEAVER), rolled_back().proof(mate())
    together = World("together", x=1).train(2).leave(LEAVER, OTHER, client(3)).proof(OTHER)
    never = World("never").train(2, without=[LEAVER]).leave(LEAVER).proof(LEAVER)
    rollback = {"kind": "rollback", "from": 1}
    for name, about, proof, edit in (
        ("rollback-called-deniable", "the log says rollback", back, _in_predicate(verdict=_kind("deniable"))),
        ("rollback-from-another-round", "the log says round 2", back, _in_predicate(verdict=rollback)),
        ("deniable-called-rollback", "the log says deniable", made, _in_predicate(verdict=rollback)),
        ("deniable-called-never-present", "it was present", made, _in_predicate(verdict=_kind("never present"))),
        ("never-present-called-deniable", "the log says never", never, _in_predicate(verdict=_kind("deniable"))),
        ("request-of-another", "the request of somebody else", together, _in_predicate(request=0)),
        ("request-of-nobody", "a request beyond the last", together, _in_predicate(request=3)),
        ("no-withdrawal", "an erasure without its withdrawal", never, _in_predicate(withdrawal=None)),
        ("withdrawal-of-no-leaf", "a leaf beyond the log", never, _in_predicate(withdrawal=2**32 - 1)),
        ("hidden-cluster", "a round of the leaver is left out, with its bounds", made, _hidden(world, 1)),
        ("hidden-superseded-round", "a superseded round is left out", back, _without_superseded(back)),
        ("standing-called-superseded", "a standing round is hidden among others", made, _called_superseded(world)),
        ("hidden-everywhere", "every round is left out", made, _hidden(world, 2)),
    ):
        yield _edited(proof, name, about, "verdict", edit)
    what_if = World("if").train(2).what_if(LEAVER)
    for name, about, edit in (
        ("what-if-with-withdrawal", "a what-if with a withdrawal", _in_predicate(withdrawal=1)),
        ("what-if-rollback", "a what-if whose verdict is a rollback", _in_predicate(verdict=_kind("rollback"))),
        ("what-if-absent", "present, and called never present", _in_predicate(verdict=_kind("never present"))),
    ):
        yield _edited(what_if, name, about, "verdict", edit)


def _kind(kind: str) -> dict[str, Any]:
    return {"kind": kind, "from": None}


def _hidden(world: World, count: int) -> Edit:
    """The first clusters left out, and everything else told as it must be then."""

    def edit(statement: dict[str, Any]) -> None:
        predicate = statement["predicate"]
        del predicate["clusters"][:count]
        predicate["maps"] = world.maps({cluster["leaf"] for cluster in predicate["clusters"]})
        tell_bounds(predicate)

    return edit


def _called_superseded(world: World) -> Edit:
    def edit(statement: dict[str, Any]) -> None:
        leaf = statement["predicate"]["clusters"][0]["leaf"]
        _hidden(world, 1)(statement)
        statement["predicate"]["rounds"]["superseded"] = [leaf]

    return edit


def _without_superseded(made: Made) -> Edit:
    return _in_predicate(rounds={**made.predicate["rounds"], "superseded": []})


def _openings() -> Iterator[Vector]:
    world = World("together", x=1).train(2).leave(LEAVER, OTHER)
    made, other = world.proof(LEAVER), world.proof(OTHER)
    for name, about, asked_for in (
        ("about-another-client", "another client was asked for", OTHER),
        ("about-a-homoglyph", "the client who was asked for only looks the same", "\u0441lient-01"),
    ):
        yield _with(made, name, about, "opening", client=asked_for)
    yield Vector("about-nobody", "a client was asked for, without an opening", made.proof, "opening", client=LEAVER)
    right = made.opening
    first = right.rounds[0]
    for name, about, opening in (
        ("opening-of-another-client", "whoever left at the same time", other.opening),
        ("opening-in-cyrillic", "the first letter is Cyrillic", replace(right, client="\u0441lient-01")),
        ("opening-in-wide-digits", "digits of full width", replace(right, client="client-\uff10\uff11")),
        ("opening-with-joiner", "an invisible character at the end", replace(right, client="client-01\u200d")),
        ("opening-with-soft-hyphen", "an invisible hyphen", replace(right, client="client\u00ad-01")),
        ("opening-in-capitals", "another case", replace(right, client="CLIENT-01")),
        ("opening-of-nobody", "an empty id", replace(right, client="")),
        ("opening-with-surrogate", "an id that is no proper text", replace(right, client="\ud800")),
        ("opening-of-another-run", "another run", replace(right, run_id="another")),
        ("opening-of-a-what-if", "no salt of a request", replace(right, salt=None)),
        ("opening-of-fewer-rounds", "a round less", replace(right, rounds=right.rounds[1:])),
        ("opening-in-another-order", "rounds in another order", replace(right, rounds=right.rounds[::-1])),
        (
            "opening-of-another-slot",
            "a slot beside the leaver's",
            replace(right, rounds=(replace(first, slot=first.slot + 1), *right.rounds[1:])),
        ),
        (
            "opening-with-another-update",
            "another update's digest",
            replace(right, rounds=(replace(first, update=b"u" * 32), *right.rounds[1:])),
        ),
    ):
        yield _with(made, name, about, "opening", opening=opening.encode())
    before = World("rolled back", clients=8).train(2).leave(LEAVER).proof(LEAVER).opening
    later = rolled_back().proof(LEAVER)  # one of the two rounds was superseded since
    for name, about, opening in (
        ("renewed-in-another-order", "rounds in another order", replace(before, rounds=before.rounds[::-1])),
        ("renewed-without-a-round", "only the superseded round", replace(before, rounds=before.rounds[1:])),
        (
            "renewed-with-another-round",
            "a round more, in which the leaver was not",
            replace(before, rounds=(*before.rounds, replace(before.rounds[-1], leaf=6))),
        ),
    ):
        yield _with(later, name, about, "opening", opening=opening.encode())
    data = right.encode()
    for name, about, broken in (
        ("opening-empty", "no bytes", b""),
        ("opening-truncated", "the first half", data[: len(data) // 2]),
        ("opening-spaced", "another spacing", json.dumps(json.loads(data)).encode()),
        ("opening-duplicate-key", "an id stands twice", data.replace(b'{"client":', b'{"client":"x","client":')),
        ("opening-deeply-nested", "2,000 brackets", b"[" * 2000),
    ):
        yield _with(made, name, about, "opening", opening=broken)
    proof, moved = _sharing()
    yield _with(
        proof,
        "slot-of-another-leaver",
        "the slot of somebody who left too, with the leaver's opening moved there",
        "opening",
        proof.forged(_in_cluster(slot=moved.rounds[0].slot)),
        opening=moved.encode(),
    )


def _sharing() -> tuple[Made, Opening]:
    """Two who left from one cluster, and the opening of one of them moved to the slot of the other."""
    world = deniable()
    other = mate_in_first(world)
    past = world.pasts[0]
    made = World("deniable", x=1).train(2).leave(LEAVER, other).proof(LEAVER)
    opened = replace(made.opening.rounds[0], slot=past.slots[other])
    return made, replace(made.opening, rounds=(opened, *made.opening.rounds[1:]))


def _receipts() -> Iterator[Vector]:
    world = deniable()
    made, good = world.proof(LEAVER), world.receipt(LEAVER, 1)
    fork = World("deniable", sigma=0.5).train(2)
    for name, about, receipt in (
        ("receipt-of-a-fork", "a round that this log tells differently", fork.receipt(LEAVER, 1)),
        ("receipt-of-another-client", "somebody else's", world.receipt(mate_in_first(world), 1)),
        ("receipt-of-another-run", "of another run", World("else").train(1).receipt(LEAVER, 1)),
        ("receipt-by-a-stranger", "under a stranger's head", world.receipt(LEAVER, 1, key=STRANGER)),
        (
            "receipt-of-later",
            "under a head that this log does not have",
            deniable().train(1).receipt(LEAVER, 1, size=5),
        ),
        ("receipt-with-another-slot", "the slot beside it", _changed(good, slot=json.loads(good)["slot"] ^ 1)),
        ("receipt-with-another-leaf", "another place in the log", _changed(good, leaf=2)),
        ("receipt-with-another-salt", "it opens nothing", _changed(good, salt=to_base64(b"s" * 32))),
        (
            "receipt-with-longer-path",
            "a step too many",
            _changed(good, inclusion=json.loads(good)["inclusion"] * 2),
        ),
        ("receipt-for-no-round", "for the promises", _changed(good, header=world.leaves[0])),
        ("receipt-truncated", "the first half", good[: len(good) // 2]),
        ("receipt-of-version-1", "of the version before", _changed(good, type="disavow/receipt/v1")),
        (
            "receipt-with-lists",
            "with a field of the version before",
            _changed(good, cluster={**json.loads(good)["cluster"], "lists": None}),
        ),
        ("receipt-with-surrogate", "an id that is no proper text", _changed(good, client="\ud800")),
        ("receipt-deeply-nested", "2,000 brackets", b"[" * 2000),
    ):
        yield _with(made, name, about, "receipts", receipts=[receipt])
    yield _hidden_but_receipted(world)


def _changed(receipt: bytes, **values: Any) -> bytes:
    return canonical.encode({**json.loads(receipt), **values})


def _rebuilt() -> Iterator[Vector]:
    before = World("unasked", mechanism="federaser").train(1).rebuild(1, without=[LEAVER]).leave(LEAVER)
    yield _with(
        before.proof(LEAVER), "rebuilt-without-a-rollback", "nothing was undone that could be rebuilt", "rounds"
    )
    too_many = World("too many", mechanism="federaser").train(2).leave(LEAVER, to=1).rebuild(3)
    yield _with(too_many.proof(LEAVER), "rebuilt-too-often", "three rounds for two that were undone", "rounds")
    trained = World("trained", mechanism="federaser").train(3).leave(LEAVER, to=1).train(1).rebuild(1)
    yield _with(trained.proof(LEAVER), "rebuilt-after-training", "training went on before it", "rounds")
    same = World("same", mechanism="federaser").train(2)
    same.leave(LEAVER, to=1).rebuild(1, after=same.leaves[1]["after"])
    yield _with(same.proof(LEAVER), "rebuilt-to-the-same-model", "it ends in a model that was undone", "rounds")
    others = [client(number) for number in range(2, 7)]
    few = World("few", mechanism="federaser").train(2).leave(LEAVER, to=1).rebuild(1, without=others)
    yield _with(few.proof(LEAVER), "rebuilt-by-too-few", "fewer than k contributed to it", "rounds")
    still = (
        World("still", mechanism="federaser")
        .train(3)
        .leave(OTHER, to=2)
        .rebuild(1)
        .leave(LEAVER, verdict="deniable")
    )
    yield _with(
        still.proof(LEAVER),
        "deniable-in-a-rebuilt-round",
        "the leaver contributed to a standing rebuilt round",
        "clusters",
    )
    yield _with(
        World("if", mechanism="federaser").train(3).leave(OTHER, to=2).rebuild(1).what_if(LEAVER),
        "what-if-in-a-rebuilt-round",
        "the same, if somebody asked",
        "clusters",
    )
    other = World("promised otherwise").train(3).leave(LEAVER, to=1).rebuild(2)
    yield _with(other.proof(LEAVER), "rebuilt-by-another-mechanism", "the policy promises to retrain", "rounds")
    made = rebuilt().proof(LEAVER)
    promised = made.predicate["leaves"][0]["policy"]
    yield _edited(
        made,
        "mechanism-that-nobody-knows",
        "the policy names a mechanism that is not known",
        "statement",
        _in_leaf(0, policy={**promised, "mechanism": "magic"}),
    )
    yield _edited(
        made,
        "mechanism-left-out",
        "the policy names no mechanism",
        "statement",
        _in_leaf(0, policy={key: value for key, value in promised.items() if key != "mechanism"}),
    )
    yield _edited(made, "rebuilt-as-a-round", "a rebuilt round called a round", "statement", _as_round(6))
    yield _edited(
        made,
        "rebuilt-as-a-whole-round",
        "a rebuilt round with all fields of a round",
        "log",
        _as_round(6, whole=True),
    )
    yield _edited(
        made, "round-as-rebuilt", "a round called a rebuilt one", "statement", _in_leaf(8, type="rebuilt")
    )
    yield _edited(
        made,
        "rebuilt-by-nobody-knows",
        "by a mechanism that is not known",
        "statement",
        _in_leaf(6, mechanism="magic"),
    )
    yield from _rebuilt_receipts()


def _as_round(place: int, *, whole: bool = False) -> Edit:
    """Change the type of a rebuilt round's leaf; and its fields too."""

    def edit(statement: dict[str, Any]) -> None:
        leaf = statement["predicate"]["leaves"][place]
        leaf["type"] = "round"
        if whole:
            del leaf["mechanism"]
            leaf.update(clusters=2, delta="0.25", update_norm="0.7", pairs_within="1.0", tau="0.0")

    return edit


def _rebuilt_receipts() -> Iterator[Vector]:
    world = rebuilt_again()
    made, good = world.proof(OTHER), world.receipt(OTHER, 6)
    ordinary = json.loads(world.receipt(OTHER, 1))
    for name, about, receipt in (
        (
            "rebuilt-receipt-with-another-slot",
            "the slot beside it",
            _changed(good, slot=json.loads(good)["slot"] ^ 1),
        ),
        ("rebuilt-receipt-beyond-the-slots", "a slot that is not there", _changed(good, slot=99)),
        ("rebuilt-receipt-with-another-salt", "it opens nothing", _changed(good, salt=to_base64(b"s" * 32))),
        ("rebuilt-receipt-with-shorter-path", "a step too few", _changed(good, path=json.loads(good)["path"][1:])),
        (
            "rebuilt-receipt-with-a-cluster",
            "a rebuilt round has none",
            canonical.encode(
                {**{k: v for k, v in json.loads(good).items() if k != "path"}, "cluster": ordinary["cluster"]}
            ),
        ),
        ("rebuilt-receipt-with-both", "a cluster beside the path", _changed(good, cluster=ordinary["cluster"])),
    ):
        yield _with(made, name, about, "receipts", receipts=[receipt])
    hidden = World("still", mechanism="federaser").train(3).leave(OTHER, to=2).rebuild(1)
    kept = hidden.receipt(LEAVER, hidden.pasts[-1].leaf)
    hidden.pasts[-1].groups[0] = replace(hidden.pasts[-1].groups[0], clients=("somebody",) * 6)
    del hidden.pasts[-1].__dict__["slots"]
    yield _with(
        hidden.leave(LEAVER).proof(LEAVER),
        "hidden-rebuilt-round",
        "the log does not say that the leaver contributed to a standing rebuilt round; a receipt does",
        "receipts",
        receipts=[kept],
    )


def _hidden_but_receipted(world: World) -> Vector:
    """The server commits to one round less, and everything agrees with that but the receipt."""
    made = world.proof(LEAVER)

    def edit(statement: dict[str, Any]) -> None:
        _hidden(world, 1)(statement)
        predicate = statement["predicate"]
        told = commit_rounds(world.requests[LEAVER].rounds_salt, [2])
        predicate["leaves"][3]["requests"][0]["rounds"] = to_base64(told)

    return _with(
        made,
        "hidden-cluster-in-a-forged-log",
        "the withdrawal itself leaves a round out, for which the leaver has a receipt",
        "receipts",
        made.forged(edit, relogged=True),
        opening=replace(made.opening, rounds=made.opening.rounds[1:]).encode(),
        receipts=[world.receipt(LEAVER, 1)],
    )


def _models() -> Iterator[Vector]:
    world = rolled_back()
    made = world.proof(mate())
    superseded = world.leaves[2]["after"]

    def subject(statement: dict[str, Any]) -> None:
        statement["subject"][0]["digest"]["sha256"] = superseded

    yield _edited(made, "superseded-model-as-subject", "the model from before the rollback", "model", subject)
    yield _with(made, "superseded-model-served", "the file is the model from before", "model", model=superseded)
    for name, about, model in (
        ("model-of-nothing", "the file is empty: no round of the log made it", EMPTY),
        ("model-of-an-earlier-round", "the file is the model of a round that stands", world.leaves[1]["after"]),
        ("initial-model", "the file is the model from which round 1 started", world.initial),
        ("model-of-a-later-round", "training went on after the proof", rolled_back().train(1).model),
    ):
        yield _with(made, name, about, "model", model=model)


def _several() -> Iterator[Vector]:
    """Where several files are bad, the first check that looks at one of them refuses it."""
    world = deniable()
    made, good = world.proof(LEAVER), world.receipt(LEAVER, 1)
    few = World("deniable", x=3).train(2).leave(LEAVER, verdict="deniable").proof(LEAVER)
    another = World("deniable").train(2).leave(OTHER).proof(OTHER).opening.encode()
    invalid = _changed(good, salt=to_base64(b"s" * 32))
    broken = _changed(good, checkpoint="no note")
    unreadable: dict[str, Any] = {"opening": b"[", "receipts": [b"["], "checkpoint": b"\xff"}
    for name, about, fails, proof, more in (
        ("several-all-unreadable", "every file is unreadable", "readable", b"[", unreadable),
        (
            "several-behind-a-signature",
            "a stranger signed it",
            "signature",
            seal(made.payload, STRANGER),
            unreadable,
        ),
        ("several-behind-the-log", "only the files beside the proof are unreadable", "history", None, unreadable),
        (
            "several-behind-survivors",
            "too few survivors, and an unreadable opening and receipt",
            "survivors",
            few.proof,
            {**unreadable, "checkpoint": None},
        ),
        (
            "several-behind-an-unreadable-opening",
            "an unreadable opening and an invalid receipt",
            "opening",
            None,
            {"opening": b"[", "receipts": [invalid], "model": EMPTY},
        ),
        (
            "several-behind-an-invalid-opening",
            "somebody else's opening and an unreadable receipt",
            "opening",
            None,
            {"opening": another, "receipts": [b"["], "model": EMPTY},
        ),
        (
            "several-receipts-one-unreadable",
            "an invalid receipt and an unreadable one: all are read before one is checked",
            "receipts",
            None,
            {"receipts": [invalid, b"["], "model": EMPTY},
        ),
        (
            "several-receipts-one-with-a-broken-note",
            "an invalid receipt and one whose checkpoint is no note, which is found in its turn",
            "receipts",
            None,
            {"receipts": [invalid, broken]},
        ),
        (
            "several-receipts-one-with-a-broken-note-first",
            "the same in the other order",
            "receipts",
            None,
            {"receipts": [broken, invalid]},
        ),
    ):
        yield _with(made, name, about, fails, proof, **more)
    for name, about, key in (
        ("key-unreadable", "every file is unreadable, the key too: no check is made", b"no key\n"),
        ("key-list-unreadable", "a key list of an unknown type", b'{"type":"disavow/keys/v0","keys":[]}'),
        ("key-behind-a-form-feed", "a byte before the key that is no space", b"\x0c" + str(SERVER.public).encode()),
    ):
        yield Vector(name, about, b"[", "", key=key, **unreadable)


EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
