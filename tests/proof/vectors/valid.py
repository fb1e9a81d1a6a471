"""Proofs that hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from disavow.proof.verify import TrustedKey
from tests.proof.made_proofs import NEXT, SERVER, Made, client, moment
from tests.proof.vectors.vector import TRUSTED, Vector, genuine
from tests.proof.world import World

LEAVER, OTHER = client(1), client(2)
RENAMED = replace(SERVER.public, name="example.org/renamed")
CALIBRATED: dict[str, Any] = {"noise": "calibrated", "tau": 0.5, "clip": 1.0, "statistics": "drawn"}
FROZEN = hashlib.sha256(b"frozen").hexdigest()
BRACKETS = '[{"' * 100


def deniable() -> World:
    """Two rounds in clusters of three and four, then one leaves and two are left in each of its clusters."""
    return World("deniable").train(2).leave(LEAVER)


def rolled_back() -> World:
    """Two leave one after the other; the second leaves too few behind in round 2, which is trained again."""
    return World("rolled back", clients=8).train(2).leave(LEAVER).leave(mate(), to=2).train(1)


def mate() -> str:
    """Somebody in the leaver's cluster of round 2."""
    past = World("rolled back", clients=8).train(2).pasts[1]
    group = past.group_of(past.slots[LEAVER])
    return next(name for name in group.clients if name != LEAVER)


def several() -> World:
    """Two members are drawn of each cluster of four or more; one leaves, and x + 1 are left beside it."""
    return World("several", clients=9, k=4, representatives=2).train(2).leave(LEAVER)


def relative() -> World:
    """Δ is 0.4 times the median update norm of each round."""
    return World("relative", relative_delta=0.4).train(2).leave(LEAVER)


def limited(odds: float = 10.0, **policy: Any) -> World:
    """The odds over all rounds have a limit, and noise that keeps them below 2."""
    return World("limited", **{**CALIBRATED, "odds": odds, **policy}).train(2)


def rebuilt() -> World:
    """Round 1 of three is undone; two rounds are rebuilt in their place, and one is trained after that."""
    return World("rebuilt", mechanism="federaser").train(3).leave(LEAVER, to=1).rebuild(2).train(1)


def rebuilt_again() -> World:
    """Somebody who contributed to a rebuilt round leaves too: back to it, and rebuilt again."""
    return rebuilt().leave(OTHER).rebuild(2)


def _interrupted() -> World:
    """Of four rounds the last three are undone; two are rebuilt, and the second of them is undone in its turn."""
    world = (
        World("twice", mechanism="federaser").train(4).leave(LEAVER, to=2).rebuild(1, without=[OTHER]).rebuild(1)
    )
    return world.leave(OTHER, to=3).rebuild(2)


def bracketed() -> World:
    """A client whose id is made of brackets leaves."""
    world = World("brackets")
    world.clients[1] = BRACKETS
    return world.train(2).leave(BRACKETS)


def vectors() -> Iterator[Vector]:
    """One for each kind of world."""
    yield from _answers()
    yield from _policies()
    yield from _rebuilt()
    yield from _keys()
    yield from _key_lists()
    yield from _evidence()


def _answers() -> Iterator[Vector]:
    world = deniable()
    yield genuine("deniable", "at least x are left in each of the leaver's clusters", world.proof(LEAVER))
    yield Vector(
        "deniable-without-opening",
        "the same proof, about nobody in particular",
        world.proof(LEAVER).proof,
        named=False,
    )
    yield genuine(
        "deniable-and-trained-on",
        "a round was recorded after the withdrawal, of which the map of withdrawals knows nothing",
        deniable().train(1).proof(LEAVER),
    )
    yield genuine(
        "asked-on-another-day",
        "a day passes from leaf to leaf: it was asked before midnight, and judged after it",
        World("days", minutes=24 * 60).train(2).leave(LEAVER).train(1).proof(LEAVER),
    )
    yield genuine(
        "round-on-the-day-of-a-withdrawal",
        "a withdrawal has no time of day, and a round follows on the same day",
        World("hours", minutes=60).train(2).leave(LEAVER).train(2).leave(OTHER).train(1).proof(LEAVER),
    )
    world = rolled_back()
    yield genuine("rollback", "round 2 was superseded and trained again", world.proof(mate()))
    yield genuine("rollback-of-another", "a later rollback superseded one of its rounds", world.proof(LEAVER))
    earlier = World("rolled back", clients=8).train(2).leave(LEAVER)
    yield genuine(
        "renewed",
        "the same, with the opening from before the rollback: it opens a round that was superseded since",
        replace(world.proof(LEAVER), opening=earlier.proof(LEAVER).opening),
    )
    yield genuine(
        "rollback-not-retrained",
        "the model went back to the initial one and stayed there",
        World("back").train(2).leave(LEAVER, verdict="rollback", to=1).proof(LEAVER),
    )
    world = World("same", noise="none").train(2)
    undone = [leaf["after"] for leaf in world.leaves[1:]]
    yield genuine(
        "rollback-to-the-same-models",
        "without noise, the rounds after the rollback end in the very models that were undone; a rendering says so",
        world.leave(LEAVER, to=1).train(2, after=undone).proof(LEAVER),
    )
    yield genuine(
        "never-present",
        "the leaver was in no round",
        World("never").train(2, without=[LEAVER]).leave(LEAVER).proof(LEAVER),
    )
    yield genuine(
        "brackets-in-an-id",
        "brackets and quotes inside strings are not nested and not counted",
        bracketed().proof(BRACKETS),
    )
    together = World("together", x=1).train(2).leave(LEAVER, OTHER, client(3))
    yield genuine("together", "three left at once; this is the second of them", together.proof(OTHER))
    yield genuine("what-if", "somebody who is still in could be denied", World("if").train(2).what_if(LEAVER))
    yield genuine(
        "what-if-after-a-withdrawal",
        "the same, where somebody else has left",
        deniable().train(1).what_if(client(5)),
    )
    yield genuine(
        "what-if-never-present",
        "somebody who was in no round: nothing in the log tells who it is",
        World("if").train(2, without=[LEAVER]).what_if(LEAVER),
        named=False,
    )


def _policies() -> Iterator[Vector]:
    policies: dict[str, dict[str, Any]] = {
        "calibrated": CALIBRATED,
        "laplace": {"distribution": "laplace"},
        "without-noise": {"noise": "none"},
        "fixed-delta": {"delta": 0.5},
        "fixed-clusters": {"clustering": "fixed", **CALIBRATED},
        "statistics-of-the-drawn": {"statistics": "drawn"},
    }
    for name, policy in policies.items():
        about = f"the policy says {', '.join(f'{key} {value}' for key, value in policy.items())}"
        yield genuine(name, about, World(name, **policy).train(2).leave(LEAVER).proof(LEAVER))
    yield genuine(
        "relative-delta",
        "Δ is 0.4 times the median update norm, another number in each round",
        relative().proof(LEAVER),
    )
    yield from _several()
    yield from _limited()
    yield genuine(
        "frozen-parameters",
        "leaf 0 has the digest of the parameters that are not trained",
        World("frozen", frozen=FROZEN).train(2).leave(LEAVER).proof(LEAVER),
    )


def _several() -> Iterator[Vector]:
    yield genuine(
        "two-representatives",
        "two are drawn of each cluster: x + 1 survivors are left, and the noise is half of that of one",
        several().proof(LEAVER),
    )
    yield genuine(
        "two-representatives-and-just-enough",
        "x is k - 1, and everybody beside the leaver is left in clusters of four",
        World("just enough", clients=8, k=4, x=2, representatives=2).train(2).leave(LEAVER).proof(LEAVER),
    )
    yield genuine(
        "two-representatives-rollback",
        "a second leaves too few in round 1: x of them, and x + 1 are needed",
        _leaves_one_too_few(),
    )
    yield genuine(
        "two-representatives-what-if",
        "somebody who is still in could be denied",
        World("several", clients=9, k=4, representatives=2).train(2).what_if(LEAVER),
    )
    yield genuine(
        "clusters-of-one",
        "k is 1: the one representative need not be fewer than k",
        World("alone", clients=2, k=1, x=1).train(1, without=[LEAVER]).leave(LEAVER).proof(LEAVER),
    )


def _leaves_one_too_few() -> Made:
    """With x = 2 and two drawn, three must be left in a cluster of four; the second who leaves takes the third."""
    world = World("one too few", clients=8, k=4, representatives=2).train(2).leave(LEAVER)
    past = world.pasts[0]
    second = next(name for name in past.group_of(past.slots[LEAVER]).clients if name != LEAVER)
    world.leave(second)
    assert world.requests[second].to == 1
    return world.train(1).proof(second)


def _limited() -> Iterator[Vector]:
    yield genuine(
        "odds-within-the-limit", "the odds over all rounds stay below 10", limited().leave(LEAVER).proof(LEAVER)
    )
    yield genuine(
        "odds-beyond-the-limit",
        "they do not stay below 1.4: back to the round with which they exceed it",
        limited(1.4).leave(LEAVER).train(1).proof(LEAVER),
    )
    yield genuine(
        "odds-of-who-was-never-present",
        "of somebody who was in no round the odds are even, whatever the noise is",
        World("limited", odds=1.0, noise="none").train(2, without=[LEAVER]).leave(LEAVER).proof(LEAVER),
    )


def _rebuilt() -> Iterator[Vector]:
    world = rebuilt()
    yield genuine("rebuilt", "two rounds were rebuilt approximately after the rollback", world.proof(LEAVER))
    yield genuine(
        "rebuilt-and-receipts",
        "the rounds that the receipts are for were superseded, and rebuilt without the leaver",
        world.proof(LEAVER),
        receipts=[world.receipt(LEAVER, 1), world.receipt(LEAVER, 3)],
    )
    later = rebuilt_again()
    yield genuine(
        "rebuilt-again",
        "a contributor to rebuilt rounds left; its receipts for them are of superseded rounds",
        later.proof(OTHER),
        receipts=[later.receipt(OTHER, leaf) for leaf in (1, 6, 7, 8)],
    )
    yield genuine(
        "rebuilt-after-another",
        "rounds after the leaver's own were rebuilt when somebody else left; its clusters stand before them",
        World("rebuilt later", mechanism="federaser")
        .train(3)
        .leave(LEAVER)
        .leave(client(5), to=3)
        .rebuild(1)
        .proof(LEAVER),
    )
    yield genuine(
        "rebuilt-and-interrupted",
        "a second rollback came while rounds were being rebuilt",
        _interrupted().proof(OTHER),
    )
    yield genuine(
        "rebuilt-and-trained-what-if",
        "a newcomer, who was in no rebuilt round, could be denied",
        World("newcomer", mechanism="federaser")
        .train(2, without=[OTHER])
        .leave(LEAVER, to=1)
        .rebuild(2, without=[OTHER])
        .train(1)
        .what_if(OTHER),
    )


def _keys() -> Iterator[Vector]:
    late = World("late", key=None).train(2).leave(LEAVER)
    yield genuine("signed-late", "the log names no key at all", late.proof(LEAVER))
    yield genuine(
        "signed-late-from-a-key-on",
        "the run began without a key and got one",
        World("late", key=None).train(1).rotate(SERVER).train(1).leave(LEAVER).proof(LEAVER),
    )
    days = World("days", minutes=24 * 60).train(2).leave(LEAVER)
    yield genuine(
        "key-in-use-on-the-day",
        "the key was replaced on the day of the withdrawal, the last leaf, nobody knows whether before it",
        days.proof(LEAVER),
        trusted=(TrustedKey(SERVER.public, moment(0), moment(3 * 24 * 60 + 1)),),
    )
    world = World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER)
    dated = (TrustedKey(SERVER.public, moment(0), moment(2)), TrustedKey(NEXT.public, moment(2), None))
    yield genuine(
        "rotated-key",
        "the key was replaced; the older checkpoint and the receipt are signed with the one before",
        world.proof(LEAVER),
        trusted=dated,
        checkpoint=world.checkpoint(2, SERVER),
        receipts=[world.receipt(LEAVER, 1, key=SERVER)],
    )
    yield genuine(
        "rotated-key-after-revocation",
        "the key before was revoked; the one that replaced it answers for the whole log",
        world.proof(LEAVER),
        trusted=(TrustedKey(SERVER.public, moment(0), moment(2), moment(9)), dated[1]),
    )
    yield genuine(
        "signed-late-with-a-younger-key",
        "the log names no key, and is older than the key that signed",
        late.proof(LEAVER),
        trusted=(TrustedKey(SERVER.public, moment(9), None),),
    )


def _key_lists() -> Iterator[Vector]:
    world = World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER)
    yield genuine(
        "key-list-newest-first",
        "the order of a key list says nothing",
        world.proof(LEAVER),
        trusted=(TrustedKey(NEXT.public, moment(2), None), TrustedKey(SERVER.public, moment(0), moment(2))),
    )
    yield genuine(
        "key-list-with-two-names",
        "one key under two names: the first of them is the signer",
        deniable().proof(LEAVER),
        trusted=(TrustedKey(SERVER.public, moment(0)), TrustedKey(RENAMED, moment(0))),
    )


def _evidence() -> Iterator[Vector]:
    world = deniable()
    yield genuine(
        "with-receipts",
        "both receipts that the leaver was given are opened",
        world.proof(LEAVER),
        receipts=[world.receipt(LEAVER, 1), world.receipt(LEAVER, 2)],
    )
    yield genuine("with-client", "the client who was asked for", world.proof(LEAVER), client=LEAVER)
    yield genuine("with-model", "the model file is the one served", world.proof(LEAVER), model=world.model)
    yield genuine(
        "with-older-checkpoint", "an older head is a prefix", world.proof(LEAVER), checkpoint=world.checkpoint(2)
    )
    yield genuine(
        "with-this-checkpoint", "a head is a prefix of itself", world.proof(LEAVER), checkpoint=world.checkpoint()
    )
    world = rolled_back()
    yield genuine(
        "with-receipt-of-a-superseded-round",
        "a round that the receipt is for was superseded, which the log shows",
        world.proof(mate()),
        receipts=[world.receipt(mate(), 1), world.receipt(mate(), 2)],
    )
    yield Vector(
        "with-receipts-without-opening",
        "receipts can be held against a proof that names nobody",
        deniable().proof(LEAVER).proof,
        named=False,
        receipts=[deniable().receipt(LEAVER, 2)],
        trusted=TRUSTED,
    )
