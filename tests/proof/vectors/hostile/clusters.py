"""Clusters shown, who of them is left, and the numbers that are computed from them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from disavow.proof.leaves import UNTOUCHED, joined, map_root
from disavow.proof.validation import to_base64
from tests.proof.made_proofs import Made, hash_of, tell_bounds
from tests.proof.vectors.hostile.forging import (
    Edit,
    edited,
    in_cluster,
    in_leaf,
    in_predicate,
    mate_in_first,
    vector_of,
)
from tests.proof.vectors.valid import (
    CALIBRATED,
    LEAVER,
    OTHER,
    deniable,
    limited,
    rolled_back,
    several,
)
from tests.proof.vectors.vector import Vector
from tests.proof.world import World


def clusters_refused() -> Iterator[Vector]:
    world = deniable()
    made = world.proof(LEAVER)
    shown = made.predicate["clusters"][0]
    twice = World("deniable", x=1).train(2).leave(LEAVER).leave(mate_in_first(world))
    later = twice.proof(LEAVER)
    aside = World("aside").train(1).train(1, without=[LEAVER]).leave(LEAVER).proof(LEAVER)
    gone = later.predicate["clusters"][0]["withdrawn"]
    stayed = shown["first"] + (shown["slot"] == shown["first"])
    for name, about, proof, edit, relogged in (
        ("cluster-of-a-billion", "1,000,000,000 slots", made, in_cluster(size=10**9), False),
        ("slot-left-out", "a slot less than the size", made, in_cluster(slots=shown["slots"][1:]), False),
        ("slots-in-another-order", "two slots swapped", made, in_cluster(slots=shown["slots"][::-1]), False),
        ("spread-lowered", "narrower than the log says", made, in_cluster(spread="0.0625"), False),
        ("path-too-long", "a step too many", made, in_cluster(path=[*shown["path"], shown["path"][0]]), False),
        ("path-of-64", "64 steps", made, in_cluster(path=shown["path"] * 64), False),
        ("path-missing", "no step at all", made, in_cluster(path=[]), False),
        (
            "round-of-four-billion",
            "4,294,967,295 participants in 1,431,655,765 clusters",
            made,
            in_leaf(1, participants=2**32 - 1, clusters=1431655765),
            True,
        ),
        ("leaver-counted-as-survivor", "nobody is withdrawn", made, in_cluster(withdrawn=[]), False),
        (
            "leaver-withdrawn-behind-a-curtain",
            "the leaver's own slot stays closed",
            made,
            in_cluster(withdrawn=_closed(world, 0)),
            False,
        ),
        (
            "withdrawn-counted-as-survivor",
            "two left one after the other, and only the leaver is shown as withdrawn",
            later,
            in_cluster(withdrawn=gone[:1]),
            False,
        ),
        (
            "withdrawn-behind-a-curtain",
            "the slot of the second who left stays closed, though its cluster is shown",
            later,
            in_cluster(withdrawn=[gone[0], _closed(twice, 0)[1]]),
            False,
        ),
        (
            "withdrawn-from-elsewhere",
            "the second who left is said to have left another cluster",
            later,
            in_cluster(withdrawn=[gone[0], {**_closed(twice, 0)[1], "position": 1 - gone[1]["position"]}]),
            False,
        ),
        (
            "withdrawn-out-of-order",
            "the second who left comes first",
            later,
            in_cluster(withdrawn=gone[::-1]),
            False,
        ),
        (
            "withdrawn-by-another-leaf",
            "the leaver's slot was withdrawn when another left",
            later,
            in_predicate(withdrawal=4),
            False,
        ),
        (
            "another-withdrawn",
            "a survivor's slot is shown as withdrawn",
            made,
            in_cluster(withdrawn=[{**shown["withdrawn"][0], "slot": stayed}]),
            False,
        ),
        ("slot-of-a-survivor", "the leaver's slot is a survivor's", made, in_cluster(slot=stayed), False),
        ("cluster-of-no-round", "a cluster of the withdrawal", made, in_cluster(leaf=3), False),
        ("cluster-of-no-leaf", "a cluster of a leaf beyond the log", made, in_cluster(leaf=2**32 - 1), False),
        ("map-left-out", "no map of withdrawals", made, in_predicate(maps=[]), False),
        ("map-too-many", "a map more than there are withdrawals", made, in_predicate(maps=[[], []]), False),
        ("map-too-long", "a map of more rounds than there were", made, in_predicate(maps=[[None]]), False),
        ("map-too-short", "a map of fewer rounds than there were", aside, in_predicate(maps=[[]]), False),
        (
            "map-changed",
            "another value in the map of withdrawals",
            aside,
            in_predicate(maps=[[to_base64(b"v" * 32)]]),
            False,
        ),
        (
            "map-told-twice",
            "a value that has not changed is given again",
            aside,
            in_predicate(maps=[[to_base64(UNTOUCHED)]]),
            False,
        ),
    ):
        yield edited(proof, name, about, "clusters", edit, relogged=relogged)
    yield edited(
        made,
        "leaver-never-withdrawn",
        "the map in the log forgets the leaver, and the proof agrees with it",
        "clusters",
        _forgotten,
        relogged=True,
    )
    yield vector_of(
        _amnesia(),
        "withdrawn-forgotten-later",
        "a later map in the log forgets somebody who left before, who is counted as a survivor",
        "clusters",
    )
    what_if = World("if").train(2).what_if(LEAVER)
    yield replace(
        edited(what_if, "what-if-retyped", "a what-if under the type of an erasure", "clusters", _retype),
        what_if=False,
    )
    back = rolled_back().proof(LEAVER)
    superseded = {**back.predicate["clusters"][0], "leaf": back.predicate["rounds"]["superseded"][0]}
    yield edited(
        back,
        "cluster-of-a-superseded-round",
        "a cluster of a round that does not stand",
        "clusters",
        in_predicate(clusters=[*back.predicate["clusters"], superseded]),
    )
    alone = World("alone", clients=3, k=3, x=1, **CALIBRATED).train(1).leave(LEAVER)
    yield edited(
        alone.proof(LEAVER),
        "only-cluster-of-half-the-data",
        "the round has one cluster, said to have half the data: the odds look smaller than they are",
        "clusters",
        _halved,
        relogged=True,
    )


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


def survivors_refused() -> Iterator[Vector]:
    few = World("deniable", x=3).train(2).leave(LEAVER, verdict="deniable").proof(LEAVER)
    yield vector_of(few, "too-few-survivors", "the log says deniable, and x - 1 are left", "survivors")
    for name, about, x, drawn in (
        ("one-survivor-too-few-beside-the-drawn", "x are left, and two were drawn: x + 1 are needed", 3, 2),
        ("one-survivor-too-few-beside-two", "x + 1 are left, and three were drawn: x + 2 are needed", 2, 3),
    ):
        world = World("several", clients=8, k=4, x=x, representatives=drawn).train(1)
        yield vector_of(world.leave(LEAVER, verdict="deniable").proof(LEAVER), name, about, "survivors")
        yield vector_of(world.what_if(OTHER), f"what-if-{name}", f"{about}, if somebody asked", "survivors")
    for name, about, together in (
        ("all-members-gone", "all members of a cluster left one after the other, and the log says deniable", False),
        ("all-members-gone-together", "the same, all at once", True),
    ):
        world, last = all_gone(together=together)
        yield vector_of(world.proof(last), name, about, "survivors")
        if not together:
            yield vector_of(
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


def numbers_refused() -> Iterator[Vector]:
    wide = World("wide", delta=0.1).train(2).leave(LEAVER, verdict="deniable").proof(LEAVER)
    yield vector_of(wide, "cluster-too-wide", "the log says deniable, and a cluster is wider than Δ", "spread")
    made = deniable().proof(LEAVER)
    for name, about, edit in (
        ("displacement-lowered", "a smaller displacement", in_cluster(displacement="0.001")),
        ("odds-lowered", "smaller odds", in_cluster(log10_odds="0.5")),
        ("odds-left-out", "no odds, though there is noise", in_cluster(log10_odds=None)),
        ("total-lowered", "a smaller total", in_predicate(bounds={**made.predicate["bounds"], "ratio": "0.1"})),
        ("drawn-lowered", "a smaller chance to have been drawn", _in_bounds(made, drawn="0.25")),
        ("drawn-raised", "a chance to have been drawn above 1", _in_bounds(made, drawn="1.5")),
        ("drawn-once", "the chance of one of two rounds", _in_bounds(made, drawn="0.333333")),
    ):
        yield edited(made, name, about, "bounds", edit)

    def quieter(statement: dict[str, Any]) -> None:
        statement["predicate"]["leaves"][1]["tau"] = "0.0001"
        tell_bounds(statement["predicate"])

    yield edited(made, "drawn-left-out", "no chance to have been drawn", "statement", _without_drawn)
    yield from _odds()
    yield from _drawn()
    yield from _loud()
    yield edited(
        made,
        "noise-not-of-the-policy",
        "less noise in the log than one cluster alone adds",
        "bounds",
        quieter,
        relogged=True,
    )


def _in_bounds(made: Made, **values: str) -> Edit:
    return in_predicate(bounds={**made.predicate["bounds"], **values})


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
        yield vector_of(world.leave(LEAVER, verdict="deniable").proof(LEAVER), name, about, "bounds")
    yield vector_of(limited(1.4).what_if(LEAVER), "what-if-odds-exceeded", "the same, if somebody asked", "bounds")


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
        (
            "noise-above-the-sensitivity",
            "it is scaled by the widest cluster, and none is wider than Δ",
            World("sensitivity", noise="sensitivity", sigma=6.0, statistics="drawn"),
        ),
    ):
        made = world.train(2).leave(LEAVER, verdict="deniable").proof(LEAVER)
        yield edited(made, name, f"more noise than there can be: {about}", "bounds", louder, relogged=True)


def _drawn() -> Iterator[Vector]:
    """Two are drawn of each cluster, and the bounds or the noise are those of one."""
    world = several()
    made = world.proof(LEAVER)

    def of_one(statement: dict[str, Any]) -> None:
        _claim_one_representative(statement["predicate"])

    def louder(statement: dict[str, Any]) -> None:
        for leaf in statement["predicate"]["leaves"]:
            if leaf["type"] == "round":
                leaf["tau"] = repr(2 * float(leaf["tau"]))
        tell_bounds(statement["predicate"])

    yield edited(made, "bounds-of-one-drawn", "displacement is that of one representative", "bounds", of_one)
    yield edited(
        made,
        "chance-of-one-drawn",
        "the chance is that of one representative",
        "bounds",
        _in_bounds(made, drawn="0.4"),
    )
    yield edited(
        made, "noise-of-one-drawn", "τ is not divided by the number drawn", "bounds", louder, relogged=True
    )


def _claim_one_representative(predicate: dict[str, Any]) -> None:
    """The bounds as they would be with one representative of each cluster."""
    policy = predicate["leaves"][0]["policy"]
    drawn, policy["representatives"] = policy["representatives"], 1
    tell_bounds(predicate)
    policy["representatives"] = drawn
