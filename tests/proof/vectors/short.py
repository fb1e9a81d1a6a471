"""Proofs of version 4 that hold: most leaves of their logs are closed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from disavow.proof.envelope import seal
from disavow.proof.leaves import VERSION
from disavow.proof.verify import TrustedKey
from tests.proof.made_proofs import NEXT, SERVER, client, moment
from tests.proof.vectors.valid import LEAVER, OTHER
from tests.proof.vectors.vector import Vector, genuine
from tests.proof.world import World

LATER = client(5)


def short(seed: str = "short", **more: Any) -> World:
    """A world whose log is of version 4."""
    return World(seed, **{"clients": 12, "k": 5, "version": VERSION, **more})


def among_others() -> World:
    """The leaver was in rounds 1 and 3 of six; others left before it, with it and after it."""
    world = short().train(1).train(1, without=[LEAVER]).train(1).leave(OTHER)
    return world.train(2, without=[LEAVER]).leave(LEAVER).train(1).leave(LATER).train(2)


def rolled_back() -> World:
    """The second who leaves undoes round 3 of four; two rounds are trained again, and others leave."""
    world = short("short rollback").train(4).leave(LEAVER).leave(OTHER, to=3)
    return world.train(3).leave(LATER).train(1)


def vectors() -> Iterator[Vector]:
    """One for each kind of world."""
    world = among_others()
    made = world.proof(LEAVER)
    yield genuine("short", "rounds and withdrawals that need not be shown are closed", made)
    yield Vector("short-without-opening", "the same proof, about nobody in particular", made.proof, named=False)
    yield Vector(
        "short-unpacked",
        "the same statement, not compressed",
        seal(made.payload, SERVER),
        opening=made.opening.encode(),
    )
    yield genuine(
        "short-with-evidence",
        "receipts of rounds that are shown, and a head from before the withdrawal",
        made,
        receipts=[world.receipt(LEAVER, 1), world.receipt(LEAVER, 3, size=5)],
        checkpoint=world.checkpoint(6),
        model=world.model,
        client=LEAVER,
    )
    yield genuine("short-what-if", "somebody who is still in could be denied", world.what_if(client(4)))
    yield genuine(
        "short-what-if-never-present",
        "somebody who was in no round",
        short().train(2, without=[LEAVER]).what_if(LEAVER),
        named=False,
    )
    yield genuine(
        "short-never-present",
        "the leaver was in no round, and withdraws nothing",
        short().train(2, without=[LEAVER]).leave(LEAVER).train(2).proof(LEAVER),
    )
    yield genuine(
        "short-together",
        "three left at once; the cover stands for the entries of the others",
        short("short together", x=2).train(3).leave(LEAVER, OTHER, client(3)).train(1).proof(OTHER),
    )
    yield from _rollbacks()
    yield from _purges()
    yield from _rest()


def _rollbacks() -> Iterator[Vector]:
    world = rolled_back()
    yield genuine("short-rollback", "rounds 3 and 4 were superseded and trained again", world.proof(OTHER))
    yield genuine("short-rollback-of-another", "two of its rounds are superseded, and closed", world.proof(LEAVER))
    before = short("short rollback").train(4).leave(LEAVER).proof(LEAVER)
    yield genuine(
        "short-renewed",
        "the same, with the opening from before the rollback",
        replace(world.proof(LEAVER), opening=before.opening),
    )
    yield genuine(
        "short-receipt-of-a-superseded-round",
        "the receipt is for a round that was superseded, and is closed",
        world.proof(OTHER),
        receipts=[world.receipt(OTHER, 3), world.receipt(OTHER, 1)],
    )
    yield genuine(
        "short-rollback-to-the-same-models",
        "without noise, rounds after the rollback end in models that were undone: they are shown",
        same_models().proof(LEAVER),
    )
    yield genuine(
        "short-rebuilt",
        "rounds that were rebuilt are shown",
        short("short rebuilt", mechanism="federaser")
        .train(4)
        .leave(LEAVER, to=2)
        .rebuild(3)
        .train(2)
        .proof(LEAVER),
    )
    yield genuine(
        "short-entry-of-a-rebuilt-round",
        "somebody who contributed to a rebuilt round left",
        short("short rebuilt", mechanism="federaser")
        .train(3, without=[LEAVER])
        .leave(OTHER, to=2)
        .rebuild(2, without=[LEAVER])
        .train(2)
        .leave(LATER, to=3)
        .rebuild(2, without=[LEAVER])
        .train(1)
        .what_if(LEAVER),
    )


def purged() -> World:
    """Two left, deniable, the second after another round; a purge undoes all three, and two are trained again."""
    world = short("short purge").train(1, without=[LEAVER]).train(1).leave(LEAVER).train(1).leave(OTHER)
    return world.purge().train(2).leave(LATER).train(1)


def _purges() -> Iterator[Vector]:
    world = purged()
    yield genuine("short-purge", "a purge undid the leaver's last round", world.proof(LEAVER, purged=True))
    before = short("short purge").train(1, without=[LEAVER]).train(1).leave(LEAVER).proof(LEAVER)
    yield genuine(
        "short-purge-renewed",
        "the same, with the opening from before the purge",
        replace(world.proof(LEAVER, purged=True), opening=before.opening),
    )
    yield genuine("short-purge-not-said", "the same, without the place of the purge", world.proof(LEAVER))
    yield genuine("short-purge-of-others", "somebody left after it", world.proof(LATER))
    yield genuine(
        "short-purge-by-rollback",
        "the rollback of another undid the leaver's last round",
        short("short purge")
        .train(1, without=[LEAVER])
        .train(1)
        .leave(LEAVER)
        .leave(OTHER, to=2)
        .train(1)
        .proof(LEAVER, purged=True),
    )
    yield genuine(
        "short-purge-later",
        "a purge from round 2 on: nobody was withdrawn from round 1",
        short("short later")
        .train(1, without=[LEAVER])
        .train(2)
        .leave(LEAVER)
        .purge()
        .train(2)
        .proof(LEAVER, purged=True),
    )


def same_models() -> World:
    """Rounds after a rollback end in the very models that it undid."""
    world = short("short same", noise="none").train(3)
    undone = [leaf["after"] for leaf in world.leaves[1:]]
    return world.leave(LEAVER, to=1).train(3, after=undone).train(1)


def _rest() -> Iterator[Vector]:
    yield genuine(
        "short-rotated-key",
        "the key was replaced between closed rounds",
        short("short rotated").train(2).rotate(NEXT).train(3).leave(LEAVER).train(1).proof(LEAVER),
        trusted=(TrustedKey(SERVER.public, moment(0), moment(3)), TrustedKey(NEXT.public, moment(3), None)),
    )
    yield genuine(
        "short-fixed-clusters",
        "the policy says fixed clusters and calibrated noise",
        short("short fixed", clustering="fixed", noise="calibrated", tau=0.5, clip=1.0, statistics="drawn")
        .train(2)
        .leave(LEAVER)
        .train(2)
        .proof(LEAVER),
    )
    yield genuine(
        "short-sensitivity",
        "noise is scaled by the widest cluster: two rounds at σ = 6 stay within odds of 2",
        short("short sensitivity", noise="sensitivity", sigma=6.0, statistics="drawn", odds=2.0)
        .train(2)
        .leave(LEAVER)
        .train(2)
        .proof(LEAVER),
    )
    far = short("short far").train(140, without=[LEAVER]).train(1).train(1, without=[LEAVER]).leave(LEAVER)
    yield genuine("short-far", "the place of a round needs two bytes in the entries", far.train(1).proof(LEAVER))
