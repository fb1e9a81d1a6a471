"""Rounds, their times and rounds that were rebuilt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import nextafter
from typing import Any

from disavow.proof import canonical
from disavow.proof.validation import to_base64
from tests.proof.made_proofs import Made, client, moment
from tests.proof.vectors.hostile.forging import (
    Edit,
    changed_receipt,
    edited,
    in_leaf,
    in_predicate,
    leaf_without,
    vector_of,
    without_leaf,
)
from tests.proof.vectors.valid import (
    LEAVER,
    OTHER,
    deniable,
    mate,
    rebuilt,
    rebuilt_again,
    relative,
    rolled_back,
)
from tests.proof.vectors.vector import Vector
from tests.proof.world import World


def rounds_refused() -> Iterator[Vector]:
    made, back = deniable().proof(LEAVER), rolled_back().proof(mate())
    kinds = [leaf["type"] for leaf in back.predicate["leaves"]]
    rollback = kinds.index("rollback")
    for name, about, proof, edit in (
        ("gap-in-rounds", "round 1 is left out", made, without_leaf(1)),
        (
            "left-out-withdrawal",
            "the withdrawal is left out, its rollback is not",
            back,
            without_leaf(rollback - 1),
        ),
        ("left-out-rollback", "the rollback is left out", back, without_leaf(rollback)),
        ("rollback-too-far", "the rollback is to a round that does not stand", back, in_leaf(rollback, to=3)),
        ("rollback-of-another-withdrawal", "it points elsewhere", back, in_leaf(rollback, withdrawal=3)),
        ("round-twice", "round 1 stands twice", made, in_leaf(2, number=1)),
        ("attempt-skipped", "a round that was recorded before is not shown", made, in_leaf(2, attempt=2)),
        ("chain-broken", "round 2 does not start from the model of round 1", made, in_leaf(2, before="0" * 64)),
        ("clusters-below-k", "more clusters than k allows", made, in_leaf(1, clusters=3)),
        ("clusters-above-2k", "fewer clusters than 2k allows", made, in_leaf(1, clusters=1)),
        ("miscounted-withdrawal", "a withdrawal that forgets a round", made, in_leaf(3, rounds=1)),
        ("withdrawal-of-nobody", "a withdrawal without a request", made, in_leaf(3, requests=[])),
        ("second-beginning", "the promises are made again", made, in_predicate(leaves=_promised_again(made))),
    ):
        yield edited(proof, name, about, "rounds", edit, relogged=True)
    fixed = World("fixed-delta", delta=0.5).train(2).leave(LEAVER).proof(LEAVER)
    yield edited(
        fixed, "delta-changed", "a round with another Δ", "rounds", in_leaf(2, delta="0.75"), relogged=True
    )
    made = relative().proof(LEAVER)
    delta = float(made.predicate["leaves"][2]["delta"])
    for name, about, edit in (
        ("relative-delta-changed", "a wider Δ than the update norm gives", in_leaf(2, delta="0.75")),
        (
            "relative-delta-rounded",
            "Δ is not the product to its last bit",
            in_leaf(2, delta=repr(nextafter(delta, 1))),
        ),
        ("update-norm-changed", "another update norm beside the same Δ", in_leaf(2, update_norm="0.7")),
        ("update-norm-too-large", "the product is no float64", in_leaf(2, update_norm="1.7976931348623157e+308")),
        ("pairs-beyond-all", "more pairs within Δ than there are", in_leaf(2, pairs_within="1.0000000000000002")),
    ):
        yield edited(made, name, about, "rounds", edit, relogged=True)
    for name, about, edit in (
        ("update-norm-left-out", "a round without its update norm", leaf_without(2, "update_norm")),
        (
            "pairs-left-out",
            "a round that does not say how many pairs are within Δ",
            leaf_without(2, "pairs_within"),
        ),
        ("pairs-below-none", "fewer pairs than none", in_leaf(2, pairs_within="-0.5")),
    ):
        yield edited(made, name, about, "statement", edit, relogged=True)


def times_refused() -> Iterator[Vector]:
    made = deniable().train(1).proof(LEAVER)
    days = World("days", minutes=24 * 60).train(2).leave(LEAVER).train(1).proof(LEAVER)
    for name, about, proof, edit in (
        ("withdrawal-before-a-round", "a day before the round before it", days, in_leaf(3, at="2026-01-02")),
        ("round-before-a-withdrawal", "a round on the day before", days, in_leaf(4, at=moment(3 * 24 * 60 - 1))),
        (
            "round-before-a-round",
            "on the day of the withdrawal between them, and before the first of them",
            made,
            in_leaf(4, at=moment(1)),
        ),
        ("judged-before-asked", "asked the day after the withdrawal", made, _requested_on("2026-01-02")),
    ):
        yield edited(proof, name, about, "rounds", edit, relogged=True)
    for name, about, edit in (
        ("withdrawal-with-a-time", "a time where a day is due", in_leaf(3, at=moment(3))),
        ("withdrawal-on-no-day", "a day that no calendar has", in_leaf(3, at="2026-02-30")),
        ("request-with-a-time", "a time where a day is due", _requested_on(moment(3))),
        ("round-with-a-day", "a day where a time is due", in_leaf(1, at="2026-01-01")),
        ("times-with-days", "days where times are due", _in_times(made, asked_at="2026-01-01")),
    ):
        yield edited(made, name, about, "statement", edit)
    for name, about, edit in (
        ("times-left-out", "an erasure without its times", in_predicate(times=None)),
        ("asked-after-it-was-judged", "later on the same day", _in_times(made, asked_at=moment(60))),
        ("answered-before-it-was-judged", "a minute earlier", _in_times(made, answered_at=moment(2))),
        ("asked-on-a-day-before", "the log has another day", _in_times(made, asked_at=moment(-1))),
        (
            "judged-on-a-day-after",
            "the log has another day",
            _in_times(made, judged_at=moment(24 * 60), answered_at=moment(24 * 60)),
        ),
    ):
        yield edited(made, name, about, "verdict", edit)
    what_if = World("if").train(2).what_if(LEAVER)
    yield edited(
        what_if,
        "what-if-with-times",
        "nobody asked",
        "verdict",
        in_predicate(times=made.predicate["times"]),
    )


def _in_times(made: Made, **values: str) -> Edit:
    return in_predicate(times={**made.predicate["times"], **values})


def _requested_on(day: str) -> Edit:
    return lambda statement: statement["predicate"]["leaves"][3]["requests"][0].update(asked_at=day)


def _promised_again(made: Made) -> list[dict[str, Any]]:
    leaves = made.predicate["leaves"]
    return [*leaves[:2], leaves[0], *leaves[2:]]


def rebuilt_rounds_refused() -> Iterator[Vector]:
    before = World("unasked", mechanism="federaser").train(1).rebuild(1, without=[LEAVER]).leave(LEAVER)
    yield vector_of(
        before.proof(LEAVER), "rebuilt-without-a-rollback", "nothing was undone that could be rebuilt", "rounds"
    )
    too_many = World("too many", mechanism="federaser").train(2).leave(LEAVER, to=1).rebuild(3)
    yield vector_of(too_many.proof(LEAVER), "rebuilt-too-often", "three rounds for two that were undone", "rounds")
    trained = World("trained", mechanism="federaser").train(3).leave(LEAVER, to=1).train(1).rebuild(1)
    yield vector_of(trained.proof(LEAVER), "rebuilt-after-training", "training went on before it", "rounds")
    same = World("same", mechanism="federaser").train(2)
    same.leave(LEAVER, to=1).rebuild(1, after=same.leaves[1]["after"])
    yield vector_of(same.proof(LEAVER), "rebuilt-to-the-same-model", "it ends in a model that was undone", "rounds")
    others = [client(number) for number in range(2, 7)]
    few = World("few", mechanism="federaser").train(2).leave(LEAVER, to=1).rebuild(1, without=others)
    yield vector_of(few.proof(LEAVER), "rebuilt-by-too-few", "fewer than k contributed to it", "rounds")
    still = (
        World("still", mechanism="federaser")
        .train(3)
        .leave(OTHER, to=2)
        .rebuild(1)
        .leave(LEAVER, verdict="deniable")
    )
    yield vector_of(
        still.proof(LEAVER),
        "deniable-in-a-rebuilt-round",
        "the leaver contributed to a standing rebuilt round",
        "clusters",
    )
    yield vector_of(
        World("if", mechanism="federaser").train(3).leave(OTHER, to=2).rebuild(1).what_if(LEAVER),
        "what-if-in-a-rebuilt-round",
        "the same, if somebody asked",
        "clusters",
    )
    other = World("promised otherwise").train(3).leave(LEAVER, to=1).rebuild(2)
    yield vector_of(other.proof(LEAVER), "rebuilt-by-another-mechanism", "the policy promises to retrain", "rounds")
    made = rebuilt().proof(LEAVER)
    promised = made.predicate["leaves"][0]["policy"]
    yield edited(
        made,
        "mechanism-that-nobody-knows",
        "the policy names a mechanism that is not known",
        "statement",
        in_leaf(0, policy={**promised, "mechanism": "magic"}),
    )
    yield edited(
        made,
        "mechanism-left-out",
        "the policy names no mechanism",
        "statement",
        in_leaf(0, policy={key: value for key, value in promised.items() if key != "mechanism"}),
    )
    yield edited(made, "rebuilt-as-a-round", "a rebuilt round called a round", "statement", _as_round(6))
    yield edited(
        made,
        "rebuilt-as-a-whole-round",
        "a rebuilt round with all fields of a round",
        "log",
        _as_round(6, whole=True),
    )
    yield edited(made, "round-as-rebuilt", "a round called a rebuilt one", "statement", in_leaf(8, type="rebuilt"))
    yield edited(
        made,
        "rebuilt-by-nobody-knows",
        "by a mechanism that is not known",
        "statement",
        in_leaf(6, mechanism="magic"),
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
            changed_receipt(good, slot=json.loads(good)["slot"] ^ 1),
        ),
        ("rebuilt-receipt-beyond-the-slots", "a slot that is not there", changed_receipt(good, slot=99)),
        ("rebuilt-receipt-with-another-salt", "it opens nothing", changed_receipt(good, salt=to_base64(b"s" * 32))),
        (
            "rebuilt-receipt-with-shorter-path",
            "a step too few",
            changed_receipt(good, path=json.loads(good)["path"][1:]),
        ),
        (
            "rebuilt-receipt-with-a-cluster",
            "a rebuilt round has none",
            canonical.encode(
                {**{k: v for k, v in json.loads(good).items() if k != "path"}, "cluster": ordinary["cluster"]}
            ),
        ),
        (
            "rebuilt-receipt-with-both",
            "a cluster beside the path",
            changed_receipt(good, cluster=ordinary["cluster"]),
        ),
    ):
        yield vector_of(made, name, about, "receipts", receipts=[receipt])
    hidden = World("still", mechanism="federaser").train(3).leave(OTHER, to=2).rebuild(1)
    kept = hidden.receipt(LEAVER, hidden.pasts[-1].leaf)
    hidden.pasts[-1].groups[0] = replace(hidden.pasts[-1].groups[0], clients=("somebody",) * 6)
    del hidden.pasts[-1].__dict__["slots"]
    yield vector_of(
        hidden.leave(LEAVER).proof(LEAVER),
        "hidden-rebuilt-round",
        "the log does not say that the leaver contributed to a standing rebuilt round; a receipt does",
        "receipts",
        receipts=[kept],
    )
