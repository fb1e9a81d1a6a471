"""Verdicts, openings, receipts and models, and several bad files at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from disavow.proof.envelope import seal
from disavow.proof.leaves import commit_rounds
from disavow.proof.opening import Opening
from disavow.proof.validation import to_base64
from tests.proof.made_proofs import SERVER, STRANGER, Made, client
from tests.proof.vectors.hostile.forging import (
    EMPTY,
    Edit,
    changed_receipt,
    edited,
    hidden,
    in_cluster,
    in_predicate,
    mate_in_first,
    vector_of,
)
from tests.proof.vectors.valid import (
    LEAVER,
    OTHER,
    deniable,
    mate,
    rolled_back,
)
from tests.proof.vectors.vector import Vector
from tests.proof.world import World


def verdicts_refused() -> Iterator[Vector]:
    world = deniable()
    made, back = world.proof(LEAVER), rolled_back().proof(mate())
    together = World("together", x=1).train(2).leave(LEAVER, OTHER, client(3)).proof(OTHER)
    never = World("never").train(2, without=[LEAVER]).leave(LEAVER).proof(LEAVER)
    rollback = {"kind": "rollback", "from": 1}
    for name, about, proof, edit in (
        ("rollback-called-deniable", "the log says rollback", back, in_predicate(verdict=_kind("deniable"))),
        ("rollback-from-another-round", "the log says round 2", back, in_predicate(verdict=rollback)),
        ("deniable-called-rollback", "the log says deniable", made, in_predicate(verdict=rollback)),
        ("deniable-called-never-present", "it was present", made, in_predicate(verdict=_kind("never present"))),
        ("never-present-called-deniable", "the log says never", never, in_predicate(verdict=_kind("deniable"))),
        ("request-of-another", "the request of somebody else", together, in_predicate(request=0)),
        ("request-of-nobody", "a request beyond the last", together, in_predicate(request=3)),
        ("no-withdrawal", "an erasure without its withdrawal", never, in_predicate(withdrawal=None)),
        ("withdrawal-of-no-leaf", "a leaf beyond the log", never, in_predicate(withdrawal=2**32 - 1)),
        ("hidden-cluster", "a round of the leaver is left out, with its bounds", made, hidden(world, 1)),
        ("hidden-superseded-round", "a superseded round is left out", back, _without_superseded(back)),
        ("standing-called-superseded", "a standing round is hidden among others", made, _called_superseded(world)),
        ("hidden-everywhere", "every round is left out", made, hidden(world, 2)),
    ):
        yield edited(proof, name, about, "verdict", edit)
    what_if = World("if").train(2).what_if(LEAVER)
    for name, about, edit in (
        ("what-if-with-withdrawal", "a what-if with a withdrawal", in_predicate(withdrawal=1)),
        ("what-if-rollback", "a what-if whose verdict is a rollback", in_predicate(verdict=_kind("rollback"))),
        ("what-if-absent", "present, and called never present", in_predicate(verdict=_kind("never present"))),
    ):
        yield edited(what_if, name, about, "verdict", edit)


def _kind(kind: str) -> dict[str, Any]:
    return {"kind": kind, "from": None}


def _called_superseded(world: World) -> Edit:
    def edit(statement: dict[str, Any]) -> None:
        leaf = statement["predicate"]["clusters"][0]["leaf"]
        hidden(world, 1)(statement)
        statement["predicate"]["rounds"]["superseded"] = [leaf]

    return edit


def _without_superseded(made: Made) -> Edit:
    return in_predicate(rounds={**made.predicate["rounds"], "superseded": []})


def openings_refused() -> Iterator[Vector]:
    world = World("together", x=1).train(2).leave(LEAVER, OTHER)
    made, other = world.proof(LEAVER), world.proof(OTHER)
    for name, about, expected in (
        ("about-another-client", "another client was asked for", OTHER),
        ("about-a-homoglyph", "the client who was asked for only looks the same", "\u0441lient-01"),
    ):
        yield vector_of(made, name, about, "opening", client=expected)
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
        yield vector_of(made, name, about, "opening", opening=opening.encode())
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
        yield vector_of(later, name, about, "opening", opening=opening.encode())
    data = right.encode()
    for name, about, broken in (
        ("opening-empty", "no bytes", b""),
        ("opening-truncated", "the first half", data[: len(data) // 2]),
        ("opening-spaced", "another spacing", json.dumps(json.loads(data)).encode()),
        ("opening-duplicate-key", "an id stands twice", data.replace(b'{"client":', b'{"client":"x","client":')),
        ("opening-deeply-nested", "2,000 brackets", b"[" * 2000),
    ):
        yield vector_of(made, name, about, "opening", opening=broken)
    proof, moved = _sharing()
    yield vector_of(
        proof,
        "slot-of-another-leaver",
        "the slot of somebody who left too, with the leaver's opening moved there",
        "opening",
        proof.forged(in_cluster(slot=moved.rounds[0].slot)),
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


def receipts_refused() -> Iterator[Vector]:
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
        (
            "receipt-with-another-slot",
            "the slot beside it",
            changed_receipt(good, slot=json.loads(good)["slot"] ^ 1),
        ),
        ("receipt-with-another-leaf", "another place in the log", changed_receipt(good, leaf=2)),
        ("receipt-with-another-salt", "it opens nothing", changed_receipt(good, salt=to_base64(b"s" * 32))),
        (
            "receipt-with-longer-path",
            "a step too many",
            changed_receipt(good, inclusion=json.loads(good)["inclusion"] * 2),
        ),
        ("receipt-for-no-round", "for the promises", changed_receipt(good, header=world.leaves[0])),
        ("receipt-truncated", "the first half", good[: len(good) // 2]),
        ("receipt-of-version-1", "of the version before", changed_receipt(good, type="disavow/receipt/v1")),
        (
            "receipt-with-lists",
            "with a field of the version before",
            changed_receipt(good, cluster={**json.loads(good)["cluster"], "lists": None}),
        ),
        ("receipt-with-surrogate", "an id that is no proper text", changed_receipt(good, client="\ud800")),
        ("receipt-deeply-nested", "2,000 brackets", b"[" * 2000),
    ):
        yield vector_of(made, name, about, "receipts", receipts=[receipt])
    yield _hidden_but_receipted(world)


def _hidden_but_receipted(world: World) -> Vector:
    """The server commits to one round less, and everything agrees with that but the receipt."""
    made = world.proof(LEAVER)

    def edit(statement: dict[str, Any]) -> None:
        hidden(world, 1)(statement)
        predicate = statement["predicate"]
        commitment = commit_rounds(world.requests[LEAVER].rounds_salt, [2])
        predicate["leaves"][3]["requests"][0]["rounds"] = to_base64(commitment)

    return vector_of(
        made,
        "hidden-cluster-in-a-forged-log",
        "the withdrawal itself leaves a round out, for which the leaver has a receipt",
        "receipts",
        made.forged(edit, relogged=True),
        opening=replace(made.opening, rounds=made.opening.rounds[1:]).encode(),
        receipts=[world.receipt(LEAVER, 1)],
    )


def models_refused() -> Iterator[Vector]:
    world = rolled_back()
    made = world.proof(mate())
    superseded = world.leaves[2]["after"]

    def subject(statement: dict[str, Any]) -> None:
        statement["subject"][0]["digest"]["sha256"] = superseded

    yield edited(made, "superseded-model-as-subject", "the model from before the rollback", "model", subject)
    yield vector_of(made, "superseded-model-served", "the file is the model from before", "model", model=superseded)
    for name, about, model in (
        ("model-of-nothing", "the file is empty: no round of the log made it", EMPTY),
        ("model-of-an-earlier-round", "the file is the model of a round that stands", world.leaves[1]["after"]),
        ("initial-model", "the file is the model from which round 1 started", world.initial),
        ("model-of-a-later-round", "training went on after the proof", rolled_back().train(1).model),
    ):
        yield vector_of(made, name, about, "model", model=model)


def several_files_refused() -> Iterator[Vector]:
    """Where several files are bad, the first check that looks at one of them refuses it."""
    world = deniable()
    made, good = world.proof(LEAVER), world.receipt(LEAVER, 1)
    few = World("deniable", x=3).train(2).leave(LEAVER, verdict="deniable").proof(LEAVER)
    another = World("deniable").train(2).leave(OTHER).proof(OTHER).opening.encode()
    invalid = changed_receipt(good, salt=to_base64(b"s" * 32))
    broken = changed_receipt(good, checkpoint="no note")
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
        yield vector_of(made, name, about, fails, proof, **more)
    for name, about, key in (
        ("key-unreadable", "every file is unreadable, the key too: no check is made", b"no key\n"),
        ("key-list-unreadable", "a key list of an unknown type", b'{"type":"disavow/keys/v0","keys":[]}'),
        ("key-behind-a-form-feed", "a byte before the key that is no space", b"\x0c" + str(SERVER.public).encode()),
    ):
        yield Vector(name, about, b"[", "", key=key, **unreadable)
