"""Proofs of version 4: leaves that are closed, and the slots of withdrawals."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from disavow.proof import canonical
from disavow.proof.envelope import PACKED_TYPE, to_be_signed
from disavow.proof.leaves import MAPPED
from disavow.proof.validation import to_base64
from tests.proof.made_proofs import SERVER, Made, client
from tests.proof.vectors.hostile.forging import Edit, edited, in_cluster, in_predicate, vector_of
from tests.proof.vectors.short import among_others, purged, rolled_back, same_models, short
from tests.proof.vectors.valid import LEAVER, OTHER
from tests.proof.vectors.vector import Vector
from tests.proof.world import World

Leaves = list[dict[str, Any]]
_ROUND = 64


def short_refused() -> Iterator[Vector]:
    """By the check that refuses them."""
    yield from _files()
    yield from _logs()
    yield from _histories()
    yield from _replays()
    yield from _slots()
    yield from _clusters()
    yield from _survivors()
    yield from _purges()


def _purges() -> Iterator[Vector]:
    """A purge that leaves a withdrawn slot standing, and what a proof may not call one."""

    def said(place: int | None) -> Edit:
        return in_predicate(purge=place)

    world = purged()
    made, leaf = world.proof(LEAVER, purged=True), world.undone_at[2]
    for name, about, other in (
        ("short-purge-at-the-withdrawal", "the leaf of the withdrawal is called the purge", 3),
        ("short-purge-at-a-round", "a round is called the purge", leaf + 1),
        ("short-purge-beyond-the-log", "no leaf stands where the purge is said to be", 1_000),
    ):
        yield edited(made, name, about, "verdict", said(other))
    yield edited(made, "short-purge-null", "the purge is null", "statement", said(None))
    yield edited(among_others().proof(LEAVER), "short-purge-and-standing", "a slot stands", "verdict", said(6))
    yield edited(world.what_if(client(6)), "short-purge-of-a-what-if", "nobody left", "verdict", said(leaf))
    undone = short("short purge before").train(2).leave(OTHER, to=1).leave(LEAVER).train(1).proof(LEAVER)
    yield edited(undone, "short-purge-before", "its rounds were undone before it left", "verdict", said(4))
    for name, about, forged in (
        (
            "short-purge-too-late",
            "it leaves a round standing with a withdrawn slot",
            short("short late").train(3).leave(LEAVER).purge(2).train(2).proof(LEAVER),
        ),
        ("short-purge-of-no-round", "it undoes a round that does not stand", _purged_beyond()),
        (
            "short-purge-approximate",
            "the mechanism does not retrain exactly",
            short("short federaser", mechanism="federaser").train(2).leave(LEAVER).purge().train(2).proof(LEAVER),
        ),
    ):
        yield vector_of(forged, name, about, "rounds", forged.proof)
    mapped = World("purge of version 3").train(2).leave(LEAVER).purge().train(2).proof(LEAVER)
    yield vector_of(mapped, "purge-of-version-3", "logs of version 3 have no purge", "rounds", mapped.proof)


def _purged_beyond() -> Made:
    world = short("short beyond").train(2, without=[LEAVER]).leave(LEAVER)
    return world.purge(4).train(1).proof(LEAVER)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _in_leaves(change: Callable[[Leaves], object]) -> Edit:
    return lambda statement: change(statement["predicate"]["leaves"])


def _first(leaves: Leaves, kind: str) -> dict[str, Any]:
    return next(leaf for leaf in leaves if leaf["type"] == kind)


def _set(kind: str, **changes: Callable[[Any], Any]) -> Edit:
    """Change fields of the first item of a kind."""

    def change(leaves: Leaves) -> None:
        leaf = _first(leaves, kind)
        leaf.update({name: new(leaf.get(name)) for name, new in changes.items()})

    return _in_leaves(change)


def _in_bytes(change: Callable[[bytes], bytes]) -> Callable[[str], str]:
    return lambda text: to_base64(change(_bytes(text)))


def _files() -> Iterator[Vector]:
    made = among_others().proof(LEAVER)
    for name, about, edit in (
        (
            "short-half-a-round",
            "closed rounds of 63 bytes",
            _set("closed rounds", rounds=_in_bytes(lambda d: d[:63])),
        ),
        ("short-no-round", "closed rounds, and none of them", _set("closed rounds", rounds=lambda _: "")),
        ("short-cover-missing", "no cover", lambda said: said["predicate"].pop("cover")),
        ("short-with-maps", "maps, as version 3 has them", in_predicate(maps=[])),
        ("short-cluster-with-withdrawn", "what version 3 has in a cluster", in_cluster(withdrawn=[])),
        ("short-round-of-version-3", "a round leaf says version 3", _set("round", version=lambda _: MAPPED)),
        ("short-version-null", "the version of a round leaf is null", _set("round", version=lambda _: None)),
    ):
        yield edited(made, name, about, "statement", edit)
    packed = zlib.compress(made.payload, 9)
    for name, about, payload in (
        ("short-packed-and-more", "a byte behind the stream", packed + b"\0"),
        ("short-packed-and-cut", "the stream is cut short", packed[:-1]),
        ("short-packed-twice", "one stream behind the other", packed + packed),
        ("short-not-packed", "said to be packed, and is not", made.payload),
        ("short-packed-other-checksum", "the checksum is another", packed[:-1] + bytes([packed[-1] ^ 1])),
    ):
        yield vector_of(made, name, about, "statement", _signed(payload))


def _signed(payload: bytes) -> bytes:
    signature = {"keyid": SERVER.public.id, "sig": to_base64(SERVER.sign(to_be_signed(payload, PACKED_TYPE)))}
    return canonical.encode({"payload": to_base64(payload), "payloadType": PACKED_TYPE, "signatures": [signature]})


def _logs() -> Iterator[Vector]:
    made = among_others().proof(LEAVER)
    yield edited(
        made,
        "short-beyond-the-head",
        "a closed round more than the head covers",
        "checkpoint",
        _set("closed rounds", rounds=_in_bytes(lambda d: d + d[:64])),
    )
    yield edited(
        made,
        "short-gap",
        "a closed round is left out",
        "checkpoint",
        _in_leaves(lambda leaves: leaves.remove(_first(leaves, "closed rounds"))),
    )
    for name, about, edit in (
        ("short-split", "closed rounds that stand together are closed apart", _in_leaves(_split)),
        (
            "short-other-model",
            "a closed round ends in another model",
            _set("closed rounds", rounds=_in_bytes(_flip(0))),
        ),
        (
            "short-other-digest",
            "the digest of a closed round is another",
            _set("closed rounds", rounds=_in_bytes(_flip(40))),
        ),
        ("short-swapped", "two closed rounds in the other order", _in_leaves(_swapped)),
        ("short-withdrawal-as-round", "a withdrawal is closed as a round", _in_leaves(_withdrawal_as_round)),
        (
            "short-fewer-slots",
            "a closed withdrawal forgets what it took out",
            _set("closed withdrawal", slots=lambda _: ""),
        ),
        (
            "short-other-withdrawal",
            "the digest of a closed withdrawal is another",
            _set("closed withdrawal", digest=_in_bytes(_flip(0))),
        ),
    ):
        yield edited(made, name, about, "log", edit)
    yield edited(made, "short-split-and-signed", "the same, under a head that covers it", "log", _in_leaves(_split))
    yield edited(
        made,
        "short-log-of-version-3",
        "leaf 0 says version 3",
        "log",
        _set("run", version=lambda _: MAPPED),
        relogged=True,
    )
    rolled = rolled_back().proof(LEAVER)
    yield edited(
        rolled,
        "short-rollback-hidden",
        "the rollback behind a closed withdrawal is closed as a round",
        "log",
        _in_leaves(_rollback_as_round),
    )


def _flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _several(leaves: Leaves) -> dict[str, Any]:
    """Closed rounds that are more than one."""
    return next(leaf for leaf in leaves if leaf["type"] == "closed rounds" and len(_bytes(leaf["rounds"])) > _ROUND)


def _split(leaves: Leaves) -> None:
    at = next(
        at for at, leaf in enumerate(leaves) if leaf["type"] == "closed rounds" and len(_bytes(leaf["rounds"])) > 64
    )
    data = _bytes(leaves[at]["rounds"])
    leaves[at : at + 1] = [{"type": "closed rounds", "rounds": to_base64(part)} for part in (data[:64], data[64:])]


def _swapped(leaves: Leaves) -> None:
    leaf = _several(leaves)
    data = _bytes(leaf["rounds"])
    leaf["rounds"] = to_base64(data[64:128] + data[:64] + data[128:])


def _withdrawal_as_round(leaves: Leaves) -> None:
    at = leaves.index(_first(leaves, "closed withdrawal"))
    leaves[at] = {"type": "closed rounds", "rounds": to_base64(bytes(64))}
    _join(leaves, at)


def _rollback_as_round(leaves: Leaves) -> None:
    at = leaves.index(_first(leaves, "rollback"))
    leaves[at] = {"type": "closed rounds", "rounds": to_base64(bytes(64))}
    _join(leaves, at)


def _join(leaves: Leaves, at: int) -> None:
    """Close rounds together that now stand beside each other."""
    for near in (at, at - 1):
        if near + 1 < len(leaves) and leaves[near]["type"] == leaves[near + 1]["type"] == "closed rounds":
            behind = leaves.pop(near + 1)
            leaves[near]["rounds"] = to_base64(_bytes(leaves[near]["rounds"]) + _bytes(behind["rounds"]))


def _histories() -> Iterator[Vector]:
    world = among_others()
    made = world.proof(LEAVER)

    def omitted(leaves: Leaves) -> None:
        leaves.remove(_first(leaves, "closed withdrawal"))

    def shifted(statement: dict[str, Any]) -> None:
        """Leave the withdrawal out, and tell all places as they are without it."""
        omitted(statement["predicate"]["leaves"])

    yield vector_of(
        made,
        "short-omitted-withdrawal",
        "a withdrawal is left out of a log that is signed again; whoever kept a head sees it",
        "history",
        made.forged(shifted, relogged=True),
        checkpoint=world.checkpoint(5),
    )
    other = short().train(1).train(1, without=[LEAVER]).train(1).train(2, without=[LEAVER]).leave(LEAVER).train(3)
    yield vector_of(
        other.proof(LEAVER),
        "short-another-story",
        "a log in which somebody never left, beside a head of the one in which it did",
        "history",
        checkpoint=world.checkpoint(5),
    )


def _replays() -> Iterator[Vector]:
    made = among_others().proof(LEAVER)
    rolled = rolled_back().proof(LEAVER)
    for name, about, proof, edit in (
        (
            "short-round-doubled",
            "a closed round stands twice",
            made,
            _set("closed rounds", rounds=_in_bytes(lambda d: d[:64] + d)),
        ),
        ("short-last-leaf-closed", "the last leaf is closed", made, _in_leaves(_close_last)),
        (
            "short-rollback-left-out",
            "the rollback behind a closed withdrawal is left out",
            rolled,
            _in_leaves(lambda leaves: leaves.remove(_first(leaves, "rollback"))),
        ),
        (
            "short-round-without-version",
            "a round leaf as version 3 has it",
            made,
            _in_leaves(lambda leaves: _first(leaves, "round").pop("version")),
        ),
        (
            "short-withdrawal-without-slots",
            "a withdrawal leaf as version 3 has it",
            made,
            _in_leaves(lambda leaves: _first(leaves, "withdrawal").pop("slots")),
        ),
        (
            "short-withdrawal-miscounted",
            "a withdrawal that counts a round too many",
            made,
            _set("withdrawal", rounds=lambda count: count + 1),
        ),
        (
            "short-number-changed",
            "a round that is shown has another number",
            made,
            _set("round", number=lambda number: number + 1),
        ),
    ):
        yield edited(proof, name, about, "rounds", edit, relogged=True)
    last = short("short last").train(3).leave(LEAVER).train(1).leave(OTHER)
    yield edited(
        last.proof(LEAVER),
        "short-last-round-closed",
        "the last round is closed, and nothing says when it was",
        "rounds",
        _in_leaves(_close_last_round),
        relogged=True,
    )
    yield edited(
        same_models().proof(LEAVER),
        "short-undone-model-closed",
        "a round that ends in an undone model is closed",
        "rounds",
        _in_leaves(_close_round_after_rollback),
        relogged=True,
    )


def _closed(world_leaf: dict[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(canonical.encode(world_leaf)).digest()
    if world_leaf["type"] == "withdrawal":
        return {"type": "closed withdrawal", "digest": to_base64(digest), "slots": world_leaf["slots"]}
    return {"type": "closed rounds", "rounds": to_base64(bytes.fromhex(world_leaf["after"]) + digest)}


def _close(leaves: Leaves, at: int) -> None:
    leaves[at] = _closed(leaves[at])
    _join(leaves, at)


def _close_last(leaves: Leaves) -> None:
    _close(leaves, len(leaves) - 1)


def _close_last_round(leaves: Leaves) -> None:
    _close(leaves, max(at for at, leaf in enumerate(leaves) if leaf["type"] == "round"))


def _close_round_after_rollback(leaves: Leaves) -> None:
    back = next(at for at, leaf in enumerate(leaves) if leaf["type"] == "rollback")
    _close(leaves, next(at for at, leaf in enumerate(leaves) if at > back and leaf["type"] == "round"))


def _instead(new: bytes, _: bytes) -> bytes:
    return new


def _slots() -> Iterator[Vector]:
    made = among_others().proof(LEAVER)
    for name, about, slots in (
        ("width-0", "positions of no bytes", b"\0\1"),
        ("width-5", "positions of five bytes", b"\5\1" + bytes(5)),
        ("without-entries", "a width, and no entries", b"\1"),
        ("half-an-entry", "the last position is missing", b"\1\1\0\2"),
        ("endless-number", "a number of six bytes", b"\1\x81\x80\x80\x80\x80\x00\0"),
        ("cut-number", "a number that does not end", b"\1\x81"),
        ("long-number", "a number that could be shorter", b"\1\x81\x00\0"),
        ("of-leaf-0", "a slot of no round", b"\1\0\0"),
        ("of-a-later-round", "a slot of a round behind the withdrawal", b"\1\5\0"),
        ("of-a-withdrawal", "a slot of the withdrawal itself", b"\1\4\0"),
        ("beyond-the-log", "a slot of a place beyond the log", b"\1\xff\xff\xff\xff\x0f\0"),
    ):
        description = f"entries of a closed withdrawal: {about}"
        edit = _set("closed withdrawal", slots=_in_bytes(partial(_instead, slots)))
        yield edited(made, f"short-slots-{name}", description, "rounds", edit, relogged=True)


def _clusters() -> Iterator[Vector]:
    world = among_others()
    made, together = world.proof(LEAVER), _together()
    cover = _bytes(together.predicate["cover"])
    for name, about, proof, edit in (
        ("short-entry-null", "the leaver's entry is not told", made, in_cluster(entry=None)),
        ("short-entry-without-salt", "the leaver's entry is not opened", made, in_cluster(salt=None)),
        ("short-entry-of-another-round", "the entry is of another round", made, in_cluster(entry=1)),
        ("short-entry-beyond", "there is no such entry", made, in_cluster(entry=9)),
        ("short-entry-other-salt", "the salt is another", made, in_cluster(salt=to_base64(bytes(32)))),
        ("short-entry-of-another", "the entry of somebody who left with the leaver", together, _entry_of_another),
        (
            "short-cover-other",
            "a hash of the cover is another",
            together,
            in_predicate(cover=to_base64(_flip(0)(cover))),
        ),
        ("short-cover-cut", "a hash of the cover is left out", together, in_predicate(cover=to_base64(cover[32:]))),
        (
            "short-cover-more",
            "a hash too many in the cover",
            together,
            in_predicate(cover=to_base64(cover + cover[:32])),
        ),
        ("short-cover-half", "half a hash in the cover", together, in_predicate(cover=to_base64(cover[:-1]))),
        (
            "short-cover-swapped",
            "two hashes of the cover in the other order",
            together,
            in_predicate(cover=to_base64(cover[32:64] + cover[:32] + cover[64:])),
        ),
        ("short-slot-of-a-mate", "a slot of the cluster that was not withdrawn", made, _slot_of_a_mate),
        ("short-withdrawal-null", "no withdrawal is told", made, in_predicate(withdrawal=None)),
        (
            "short-withdrawal-of-another",
            "the withdrawal of another, which is closed",
            made,
            in_predicate(withdrawal=4),
        ),
        (
            "short-round-of-a-cluster-closed",
            "the round of a cluster is closed",
            made,
            _in_leaves(lambda leaves: _close(leaves, 1)),
        ),
    ):
        yield edited(proof, name, about, "clusters", edit, relogged=name == "short-round-of-a-cluster-closed")
    what_if = world.what_if(LATER_STILL)
    yield edited(what_if, "short-what-if-with-entry", "a what-if shows an entry", "clusters", in_cluster(entry=0))
    yield edited(
        what_if,
        "short-what-if-with-salt",
        "a what-if opens an entry",
        "clusters",
        in_cluster(salt=to_base64(bytes(32))),
    )
    yield edited(
        what_if,
        "short-what-if-with-cover",
        "a what-if has a cover",
        "clusters",
        in_predicate(cover=to_base64(bytes(32))),
    )
    yield edited(
        made,
        "short-entry-of-no-cluster",
        "a slot is withdrawn from a cluster that is not there",
        "clusters",
        _set("closed withdrawal", slots=_in_bytes(lambda d: d[:2] + bytes([d[2] ^ 0x80]) + d[3:])),
        relogged=True,
    )


LATER_STILL = "client-04"


def _together() -> Made:
    return short("short together", x=2).train(3).leave(LEAVER, OTHER, "client-03").train(1).proof(OTHER)


def _entry_of_another(statement: dict[str, Any]) -> None:
    cluster = statement["predicate"]["clusters"][0]
    cluster["entry"] = (cluster["entry"] + 1) % 3


def _slot_of_a_mate(statement: dict[str, Any]) -> None:
    cluster = statement["predicate"]["clusters"][0]
    cluster["slot"] = cluster["first"] + (cluster["slot"] - cluster["first"] + 1) % cluster["size"]


def _survivors() -> Iterator[Vector]:
    world = _too_few()
    yield vector_of(
        world.proof(LEAVER),
        "short-too-few-left",
        "closed withdrawals took too many out of the leaver's cluster",
        "survivors",
    )
    yield vector_of(
        world.what_if(LATER_STILL if LATER_STILL in _mates(world) else _mates(world)[-1]),
        "short-what-if-too-few-left",
        "the same of somebody who is still in",
        "survivors",
    )


def _mates(world: World) -> list[str]:
    past = world.pasts[0]
    return [name for name in past.group_of(past.slots[LEAVER]).clients if name not in world.gone]


def _too_few() -> World:
    """After the leaver, all but one of its cluster in round 1 leave, and each time the verdict is a lie."""
    world = short("short few").train(2).leave(LEAVER)
    for name in _mates(world)[:-1]:
        world.leave(name, verdict="deniable")
    return world.train(1)
