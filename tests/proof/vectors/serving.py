"""Serving statements beside proofs: what is said to be served is a model that the proof is about, or not."""

from __future__ import annotations

from collections.abc import Iterator

from disavow.proof.notes import Signer
from disavow.proof.verify import TrustedKey
from tests.proof.made_proofs import NEXT, SERVER, STRANGER, Made, client, digest_of, moment
from tests.proof.vectors.short import LATER, among_others, purged, rolled_back, short
from tests.proof.vectors.valid import LEAVER, OTHER, deniable
from tests.proof.vectors.vector import Vector, genuine
from tests.proof.world import World

_DAY = 24 * 60
_ROTATED = (TrustedKey(SERVER.public, moment(0), moment(9)), TrustedKey(NEXT.public, moment(9), None))


def went_on() -> tuple[Made, int, World]:
    """A proof, its head, and the world three rounds later, in which somebody else has left."""
    world = among_others()
    made, size = world.proof(LEAVER), len(world.leaves)
    return made, size, world.train(2).leave(client(6)).train(1)


def vectors() -> Iterator[Vector]:
    """Statements that hold, beside proofs that hold of what they say is served."""
    world = among_others()
    made = world.proof(LEAVER)
    yield genuine(
        "serving", "what is served is the model proved, as of the same head", made, serving=world.serving()
    )
    yield genuine(
        "serving-with-model",
        "the same, and the model file",
        made,
        serving=world.serving(),
        model=world.model,
    )
    yield Vector("serving-names-nobody", "without opening", made.proof, named=False, serving=world.serving())
    older = deniable()
    yield genuine("serving-with-version-3", "a proof of version 3", older.proof(LEAVER), serving=older.serving())
    what_if = world.what_if(client(4))
    yield genuine("serving-what-if", "a what-if of the same head", what_if, serving=world.serving())
    before = len(world.leaves)
    world.leave(client(6))
    yield genuine(
        "serving-later-head",
        "somebody else has left since, and the model is the same",
        made,
        serving=world.serving(),
    )
    yield genuine(
        "serving-later-head-shown",
        "the same, with the leaves since the proof",
        made,
        serving=world.serving(since=before),
    )
    yield genuine(
        "serving-earlier-head",
        "the statement is older than the proof, and the model is the same",
        world.proof(LEAVER),
        serving=world.serving(size=before),
    )
    made, size, world = went_on()
    served = world.serving(since=size)
    yield genuine("serving-later-model", "the model is a later one of the same log", made, serving=served)
    yield genuine(
        "serving-later-model-file", "and the model file is that one", made, serving=served, model=world.model
    )
    yield from _rolled_back()
    key = short("serving rotated").train(2).leave(LEAVER).train(1)
    made, size = key.proof(LEAVER), len(key.leaves)
    key.train(3).rotate(NEXT).train(1)
    yield genuine(
        "serving-rotated-key",
        "the key was replaced behind the proof's head",
        made,
        serving=key.serving(since=size),
        trusted=_ROTATED,
    )
    world = among_others()
    cosigned = world.checkpoint() + _line(world, STRANGER)
    yield genuine(
        "serving-cosigned",
        "others signed its head, too",
        world.proof(LEAVER),
        serving=world.serving(checkpoint=cosigned),
    )


def _line(world: World, key: Signer) -> str:
    """A further signature of the head."""
    return world.checkpoint(key=key).rpartition("\n\n")[2]


def _rolled_back() -> Iterator[Vector]:
    world = rolled_back()
    made, size = world.proof(LEAVER), len(world.leaves)
    world.leave(client(6), to=2).train(2)
    yield genuine(
        "serving-after-rollback",
        "another leaver undid rounds since, and the model is one that was trained after it",
        made,
        serving=world.serving(since=size),
    )
    world = purged()
    made, size = world.proof(LEAVER, purged=True), len(world.leaves)
    yield genuine("serving-after-purge", "later than a purge", made, serving=world.train(1).serving(since=size))
    world = short("serving same", noise="none").train(2)
    undone = [leaf["after"] for leaf in world.leaves[1:]]
    world.leave(LEAVER, to=1)
    made, size = world.proof(LEAVER), len(world.leaves)
    yield genuine(
        "serving-the-model-undone",
        "without noise, the rounds since end in the models that were undone",
        made,
        serving=world.train(2, after=undone).serving(since=size),
    )


def refused() -> Iterator[Vector]:
    """Statements that do not hold, or say that another model is served."""
    yield from _forged()
    yield from _other_models()
    yield from _tails()
    yield from _keys()


def _refuse(name: str, about: str, made: Made, serving: bytes, **more: object) -> Vector:
    fields = {"opening": made.opening.encode(), "what_if": made.what_if, **more}
    return Vector(f"serving-{name}", about, made.proof, "serving", serving=serving, **fields)  # type: ignore[arg-type]


def _forged() -> Iterator[Vector]:
    world = among_others()
    made, good = world.proof(LEAVER), world.serving()
    yield _refuse("empty", "an empty file", made, b"")
    yield _refuse("spaced", "not in canonical form", made, good + b"\n")
    yield _refuse("is-a-proof", "a proof in its place", made, made.proof)
    yield _refuse("unsigned", "nobody signed it", made, _without_signature(good))
    yield _refuse("changed", "one letter of the payload is another", made, _changed(good))
    yield _refuse("extra-field", "a field too many", made, world.serving(about="x"))
    yield _refuse("no-moment", "a day in the place of a moment", made, world.serving(at="2026-01-31"))
    unsigned = world.checkpoint().rpartition("\n\n")[0] + "\n\n"
    yield _refuse("unsigned-head", "its checkpoint is unsigned", made, world.serving(checkpoint=unsigned))
    other = world.checkpoint(key=STRANGER)
    yield _refuse("head-of-a-stranger", "its checkpoint is by another key", made, world.serving(checkpoint=other))
    elsewhere = short("serving elsewhere").train(3)
    yield _refuse("of-another-run", "it is of another run", made, elsewhere.serving())
    yield _refuse("leaves-missing", "it has fewer leaves than it says", made, world.serving(since=3, leaves=[]))
    yield _refuse("leaves-beyond", "it says since a larger head", made, world.serving(since=10_000, leaves=[]))


def _without_signature(data: bytes) -> bytes:
    start = data.index(b'"signatures":[')
    return data[:start] + b'"signatures":[]}'


def _changed(data: bytes) -> bytes:
    at = data.index(b'"payload":"') + 40
    return data[:at] + (b"A" if data[at : at + 1] != b"A" else b"B") + data[at + 1 :]


def _other_models() -> Iterator[Vector]:
    world = among_others()
    made = world.proof(LEAVER)
    lie = world.serving(model=digest_of("another model").hex())
    yield _refuse("another-model", "of the same head, another model is said to be served", made, lie)
    initial = world.serving(model=world.initial)
    yield _refuse("the-initial-model", "of the same head, the initial model", made, initial)
    yield _refuse("no-head", "as of a head without leaves", made, world.serving(size=0, model=world.initial))
    before = world.serving(size=3, model=world.initial)
    yield _refuse("of-an-earlier-lie", "of an earlier head, a model that it did not have", made, before)
    past = world.serving(size=2, model=world.leaves[1]["after"])
    yield _refuse("older", "the statement is older, and of another model", made, past)
    fork = among_others_otherwise()
    yield _refuse("fork-before", "its head is smaller, and no prefix of the proof's", made, fork.serving())
    yield _refuse("other-file", "the model file is not the one served", made, world.serving(), model=world.initial)
    world.train(1)
    yield _refuse("later-not-shown", "a later model, and nothing shows how it came about", made, world.serving())
    size = len(world.leaves) - 1
    yield _refuse(
        "later-other-file",
        "a later model, and the model file is the one proved",
        made,
        world.serving(since=size),
        model=made.model,
    )
    old = deniable()
    made, size = old.proof(LEAVER), len(old.leaves)
    yield _refuse(
        "later-than-version-3", "leaves behind a proof of version 3", made, old.train(1).serving(leaves=[])
    )
    back = short("serving undone", minutes=_DAY).train(4)
    said = back.serving(model=back.model)
    late = back.serving(at=moment(20 * _DAY))
    back.leave(LEAVER, to=2).train(3)
    made = back.proof(LEAVER)
    yield _refuse("before-the-rollback", "a model that was undone since, served before", made, said)
    yield _refuse("undone", "a model that was undone is said to be served later", made, late)


def among_others_otherwise() -> World:
    """The same run, told otherwise from its second round on."""
    return short().train(1).train(1, without=[LATER]).train(1)


def _tails() -> Iterator[Vector]:
    made, size, world = went_on()
    lie = world.serving(since=size, model=made.model)
    yield _refuse("later-lie", "of a later head, the model that was proved", made, lie)
    forked = among_others().train(1, without=[OTHER, LATER, client(8)]).train(2)
    tail = forked.closed((), start=size)
    yield _refuse(
        "fork", "the leaves do not have the root that was signed", made, world.serving(since=size, leaves=tail)
    )
    cut = world.serving(since=size + 1)
    yield _refuse("gap", "the leaves begin behind the proof's head", made, cut)
    hidden = short("serving few").train(2).leave(LEAVER).train(1)
    made, size = hidden.proof(LEAVER), len(hidden.leaves)
    for number in (1, *range(3, 9)):
        hidden.leave(client(number), verdict="deniable")
    hidden.train(1)
    yield _refuse(
        "too-few-survivors", "too many have left since, undoing nothing", made, hidden.serving(since=size)
    )
    world = among_others()
    made, size = world.what_if(client(4)), len(world.leaves)
    yield _refuse("later-what-if", "a what-if, and a later model", made, world.train(1).serving(since=size))
    gone = short("serving rebuilt", mechanism="federaser").train(1, without=[LEAVER]).train(1)
    gone.leave(LEAVER).leave(OTHER, to=2).train(1)
    made, size = gone.proof(LEAVER, purged=True), len(gone.leaves)
    gone.leave(LATER, to=1).rebuild(2).train(1)
    yield _refuse("purge-rebuilt", "a round was rebuilt since", made, gone.serving(since=size))


def _keys() -> Iterator[Vector]:
    world = among_others()
    made = world.proof(LEAVER)
    stranger = world.serving(key=STRANGER)
    yield _refuse("by-a-stranger", "no trusted key signed it", made, stranger)
    keys = (TrustedKey(SERVER.public, moment(0)), TrustedKey(NEXT.public, moment(0), moment(1), moment(1)))
    yield _refuse("revoked", "the key that signed it was revoked", made, world.serving(key=NEXT), trusted=keys)
    late = (TrustedKey(SERVER.public, moment(0), world.now),)
    said = world.serving(at=moment(100_000))
    yield _refuse("key-out-of-use", "it was signed after the key was replaced", made, said, trusted=late)
    both = (TrustedKey(SERVER.public, moment(0)), TrustedKey(NEXT.public, moment(0)))
    size = len(world.leaves)
    tail = world.train(1).serving(since=size, key=NEXT)
    yield _refuse("another-key", "a trusted key signed it that the log does not name", made, tail, trusted=both)
