"""Logs whose head, history, policy or key does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from disavow.proof.merkle import root_of
from disavow.proof.notes import Checkpoint, Signer
from disavow.proof.verify import TrustedKey
from tests.proof.made_proofs import NEXT, SERVER, STRANGER, moment
from tests.proof.vectors.hostile.forging import (
    edited,
    in_leaf,
    in_predicate,
    vector_of,
)
from tests.proof.vectors.valid import (
    LEAVER,
    OTHER,
    RENAMED,
    deniable,
)
from tests.proof.vectors.vector import Vector
from tests.proof.world import World


def checkpoints_refused() -> Iterator[Vector]:
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
        yield edited(made, name, about, "checkpoint", in_predicate(checkpoint=note))
    yield vector_of(
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
        yield edited(made, name, about, "log", in_predicate(checkpoint=false.signed(SERVER)))
    empty = replace(head, size=0, root=root_of([])).signed(SERVER)
    yield edited(made, "no-leaves", "an empty log", "log", in_predicate(leaves=[], checkpoint=empty))
    headless = replace(head, size=head.size - 1, root=root_of(world.hashes[1:])).signed(SERVER)
    yield edited(
        made,
        "without-promises",
        "leaf 0 is left out, and the head is of what remains",
        "log",
        in_predicate(leaves=world.leaves[1:], checkpoint=headless),
    )
    yield edited(made, "leaf-changed", "a model is changed under the old head", "log", in_leaf(1, after="0" * 64))


def histories_refused() -> Iterator[Vector]:
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
        yield vector_of(proof, name, about, "history", checkpoint=note)


DASH = "\u2014".encode()


def _false_signature(note: str) -> str:
    """The note with the signature of another text."""
    text, _, line = note.rpartition("\n\n")
    other = World("else").checkpoint().rpartition("\n\n")[2]
    assert line.split()[1] == other.split()[1]
    return f"{text}\n\n{other}"


def policies_refused() -> Iterator[Vector]:
    made = deniable().proof(LEAVER)
    promised = made.predicate["leaves"][0]["policy"]
    yield edited(
        made,
        "x-out-of-reach",
        "x is more than k",
        "policy",
        in_leaf(0, policy={**promised, "x": 4}),
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
        yield edited(made, name, about, "policy", in_leaf(0, policy={**promised, **changed}), relogged=True)
    for name, about, changed in (
        ("nobody-drawn", "no representative", {"representatives": 0}),
        ("statistics-that-nobody-knows", "of the running statistics neither mean nor drawn", {"statistics": "all"}),
        ("odds-without-quotes", "a number where a decimal is due", {"odds": 10}),
        ("relative-delta-with-x", "the setting, and not its number", {"relative_delta": "0.5x"}),
        ("criterion-in-the-policy", "a field of the version before", {"criterion": "neighbourhood"}),
    ):
        yield edited(made, name, about, "statement", in_leaf(0, policy={**promised, **changed}), relogged=True)
    for name, about, frozen in (
        ("frozen-parameters-of-null", "null, where the field is left out", None),
        ("frozen-parameters-in-capitals", "a digest in capital letters", "AB" * 32),
    ):
        yield edited(made, name, about, "statement", in_leaf(0, frozen=frozen), relogged=True)
    yield edited(
        made,
        "frozen-parameters-added",
        "frozen parameters that the log did not have, under the old head",
        "log",
        in_leaf(0, frozen="ab" * 32),
    )
    yield edited(
        made,
        "statistics-changed",
        "the policy says that statistics are those of the drawn, under the old head",
        "log",
        in_leaf(0, policy={**promised, "statistics": "drawn"}),
    )
    world = World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER)
    both = (TrustedKey(SERVER.public, moment(0)), TrustedKey(NEXT.public, moment(0)))
    old = replace(world.proof(LEAVER), signer=SERVER)
    yield vector_of(
        old,
        "signed-with-the-old-key",
        "the key was replaced, and the old one signs",
        "policy",
        old.forged(lambda statement: None, relogged=True),
        trusted=both,
    )
    yield vector_of(
        made,
        "key-out-of-use",
        "the key was out of use when the last leaf was written",
        "policy",
        trusted=(TrustedKey(SERVER.public, moment(0), moment(1)),),
    )
    yield vector_of(
        made,
        "key-not-in-use-yet",
        "the key came into use after the last leaf was written",
        "policy",
        trusted=(TrustedKey(SERVER.public, moment(9), None),),
    )
    days = World("days", minutes=24 * 60).train(2).leave(LEAVER)
    yield vector_of(
        days.proof(LEAVER),
        "key-out-of-use-on-the-day",
        "the key was out of use the day before the withdrawal, the last leaf",
        "policy",
        trusted=(TrustedKey(SERVER.public, moment(0), moment(3 * 24 * 60 - 1)),),
    )
    yield vector_of(
        World("late", key=None).train(2).leave(LEAVER).proof(LEAVER),
        "signed-late-with-a-retired-key",
        "the log names no key, and the one that signed was replaced before the last leaf",
        "policy",
        trusted=(TrustedKey(SERVER.public, moment(0), moment(1)),),
    )


def revoked_keys_refused() -> Iterator[Vector]:
    world = World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER)
    made, stolen = world.proof(LEAVER), TrustedKey(SERVER.public, moment(0), moment(2), moment(9))
    good = TrustedKey(NEXT.public, moment(2), None)
    yield vector_of(
        made,
        "revoked-key",
        "the key that signed was revoked, long after it signed",
        "signature",
        trusted=(TrustedKey(SERVER.public, moment(0), moment(2)), replace(good, revoked=moment(9))),
    )
    yield vector_of(
        made,
        "revoked-key-listed-twice",
        "one entry of the key is revoked, another is not",
        "signature",
        trusted=(good, replace(good, revoked=moment(9))),
    )
    yield vector_of(
        made,
        "older-checkpoint-by-a-revoked-key",
        "the older checkpoint is signed with a key that was revoked",
        "history",
        trusted=(stolen, good),
        checkpoint=world.checkpoint(2, SERVER),
    )
    yield vector_of(
        made,
        "receipt-by-a-revoked-key",
        "the receipt is under a head that is signed with a key that was revoked",
        "receipts",
        trusted=(stolen, good),
        receipts=[world.receipt(LEAVER, 1, key=SERVER)],
    )
