"""Proofs whose head witnesses have cosigned, those that hold and those that must be refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.proof.cosignatures import Cosignature, WitnessKey, WitnessSigner
from disavow.proof.notes import Checkpoint, PublicKey, Signer, origin_of, read_note, write_signature
from tests.proof.made_proofs import SERVER, Made, digest_of
from tests.proof.vectors.hostile.forging import edited, in_predicate
from tests.proof.vectors.short import short
from tests.proof.vectors.valid import LEAVER, OTHER, deniable
from tests.proof.vectors.vector import Vector, genuine
from tests.proof.world import World

NOW = 1_767_225_600
"""The first second of 2026."""


def witness_named(name: str) -> WitnessSigner:
    """A witness whose private key follows from its name."""
    return WitnessSigner(f"{name}.example.net", Ed25519PrivateKey.from_private_bytes(digest_of("witness", name)))


FIRST, SECOND, THIRD, OTHERS = (witness_named(name) for name in ("first", "second", "third", "others"))
ALL = (FIRST.public, SECOND.public, THIRD.public)


def witnessed() -> World:
    """Two rounds with the leaver in them, and one behind its withdrawal."""
    return short("witnessed").train(2).leave(LEAVER, OTHER).train(1)


def head_of(world: World, size: int | None = None) -> Checkpoint:
    """The head over the first leaves."""
    return read_note(world.checkpoint(size), "the head").head


def with_lines(made: Made, lines: Sequence[str]) -> Made:
    """A proof that carries these lines."""
    return replace(made, predicate={**made.predicate, "cosignatures": list(lines)})


def cosigned(world: World, *signers: WitnessSigner, time: int = NOW) -> list[str]:
    """The lines of witnesses who cosign the head, a second after the other."""
    head = head_of(world)
    return [signer.cosign(head, time + later) for later, signer in enumerate(signers)]


def vectors() -> Iterator[Vector]:
    """All of them."""
    world = witnessed()
    made, lines = world.proof(LEAVER), cosigned(world, FIRST, SECOND, THIRD)
    proof = with_lines(made, lines)
    yield _holds("witness-all", "all three witnesses have cosigned", proof, ALL)
    yield _holds("witness-not-asked", "the same proof, and no witness is named", proof, ())
    yield _holds("witness-one", "the same proof, and one of them is named", proof, [SECOND.public])
    two = with_lines(made, [lines[0], lines[2]])
    yield _holds("witness-quorum", "two of three have cosigned, and two must", two, ALL, quorum=2)
    yield _holds(
        "witness-again",
        "one has cosigned twice",
        with_lines(made, [*lines, *cosigned(world, FIRST, time=NOW + 9)]),
        ALL,
    )
    strangers = [*lines, *cosigned(world, OTHERS), _log_line(world)]
    yield _holds("witness-and-others", "lines of others are not looked at", with_lines(made, strangers), ALL)
    yield _holds("witness-key-twice", "a key stands twice in the file", proof, [*ALL, FIRST.public])
    yield _holds("witness-late", "in the last second of the year 9999", _late(world), [FIRST.public])
    yield replace(
        _holds("witness-kept", "the cosignatures stand below a kept checkpoint of the same head", made, ALL),
        checkpoint=(world.checkpoint() + "".join(f"{line}\n" for line in lines)).encode(),
    )
    yield replace(
        _holds("witness-halves", "one is in the proof, and two are below the kept checkpoint", made, ALL),
        proof=with_lines(made, lines[:1]).proof,
        checkpoint=(world.checkpoint() + f"{lines[1]}\n{lines[2]}\n").encode(),
    )
    yield replace(
        _holds("witness-spaces", "empty lines and spaces in the file of keys", proof, ALL),
        witness_file=f"\n {FIRST.public}\r\n\n\t{SECOND.public} \n{THIRD.public}".encode(),
    )
    yield from _missing(world, made, lines)
    yield from _false(world, made, lines)
    yield from _unreadable(proof, made, lines)
    yield from _other_model(world, proof, made)


def _missing(world: World, made: Made, lines: Sequence[str]) -> Iterator[Vector]:
    two = with_lines(made, lines[:2])
    yield _refused("witness-none", "nobody has cosigned", made, ALL)
    yield _refused("witness-empty", "the list of cosignatures is empty", with_lines(made, []), ALL)
    yield _refused("witness-missing", "one of three has not cosigned", two, ALL)
    yield _refused(
        "witness-quorum-not-met", "two have cosigned, and three must", two, [*ALL, OTHERS.public], quorum=3
    )
    yield _refused(
        "witness-other-key", "another witness has cosigned", with_lines(made, lines[:1]), [SECOND.public]
    )
    twice = with_lines(made, [*cosigned(world, FIRST), *cosigned(world, FIRST, time=NOW + 9)])
    yield _refused("witness-twice", "one has cosigned twice, and counts once", twice, ALL, quorum=2)
    renamed = WitnessSigner("renamed.example.net", FIRST.private)
    names = with_lines(made, cosigned(world, FIRST, renamed))
    yield _refused(
        "witness-two-names", "one key under two names counts once", names, [FIRST.public, renamed.public], quorum=2
    )
    yield _refused("witness-quorum-too-high", "more must have than are named", two, ALL[:2], quorum=3)
    earlier = f"{world.checkpoint(3)}{FIRST.cosign(head_of(world, 3), NOW)}\n".encode()
    yield replace(
        _refused(
            "witness-of-an-earlier-head", "the kept checkpoint is cosigned, and is an earlier head", made, ALL[:1]
        ),
        checkpoint=earlier,
    )
    old = deniable().proof(LEAVER)
    yield _refused("witness-of-version-3", "version 3 has no cosignatures", old, ALL[:1])


def _false(world: World, made: Made, lines: Sequence[str]) -> Iterator[Vector]:
    head, key = head_of(world), FIRST.public
    data = Cosignature.parse(lines[0]).data
    grown = Checkpoint(head.origin, head.size + 1, head.root)
    elsewhere = Checkpoint(origin_of("another"), head.size, head.root)
    plain = Signer(FIRST.name, FIRST.private).sign(head.body.encode())
    for name, about, line in (
        ("witness-another-head", "a cosignature of an earlier head", FIRST.cosign(head_of(world, 3), NOW)),
        ("witness-another-size", "a cosignature of the same root at another size", FIRST.cosign(grown, NOW)),
        ("witness-another-log", "a cosignature of another log", FIRST.cosign(elsewhere, NOW)),
        (
            "witness-another-time",
            "another time than was signed",
            _line(key, (NOW + 1).to_bytes(8, "big") + data[8:]),
        ),
        ("witness-no-time", "the time is zero", FIRST.cosign(head, 0)),
        ("witness-after-9999", "the year 10000", FIRST.cosign(head, 253_402_300_800)),
        ("witness-time-too-large", "a time of eight full bytes", FIRST.cosign(head, 2**64 - 1)),
        ("witness-without-time", "the signature alone", _line(key, data[8:])),
        ("witness-short", "a byte is missing", _line(key, data[:-1])),
        ("witness-long", "a byte too many", _line(key, data + b"\0")),
        ("witness-plain", "the witness has signed the note, and not cosigned it", _line(key, data[:8] + plain)),
        ("witness-of-another", "the signature is another witness's", _line(key, Cosignature.parse(lines[1]).data)),
    ):
        forged = with_lines(made, [line, *lines[1:]])
        yield _refused(name, about, forged, ALL, quorum=2)
    both = with_lines(made, [*lines, _line(key, bytes(72))])
    yield _refused("witness-one-false", "beside the right one, a false one", both, ALL)
    yield replace(
        _refused("witness-false-kept", "a false one below the kept checkpoint", with_lines(made, lines), ALL),
        checkpoint=f"{world.checkpoint()}{_line(key, bytes(72))}\n".encode(),
    )


def _unreadable(proof: Made, made: Made, lines: Sequence[str]) -> Iterator[Vector]:
    for name, about, line in (
        ("witness-no-line", "a line that is no signature", "cosigned"),
        ("witness-no-base64", "a line without base64", lines[0] + "!"),
        ("witness-line-end", "a line with its end", lines[0] + "\n"),
        ("witness-empty-line", "an empty line", ""),
        ("witness-no-name", "a line without a name", lines[0].replace(FIRST.name, "", 1)),
    ):
        yield _refused(name, about, with_lines(made, [*lines, line]), ALL)
        if name == "witness-no-line":
            yield _holds(
                "witness-no-line-not-asked", "the same, and no witness is named", with_lines(made, [line]), ()
            )
    field = {"cosignatures": lines}
    for name, about, edit in (
        ("witness-null", "null in the place of cosignatures", in_predicate(cosignatures=None)),
        ("witness-text", "a text in the place of a list", in_predicate(cosignatures=lines[0])),
        ("witness-number", "a number in the list", in_predicate(cosignatures=[1])),
        ("witness-many", "more lines than are read", in_predicate(cosignatures=[""] * 1_001)),
    ):
        yield edited(made, name, about, "statement", edit)
    old = deniable().proof(LEAVER)
    yield edited(old, "witness-in-version-3", "version 3 has no cosignatures", "statement", in_predicate(**field))
    plain = PublicKey(FIRST.name, FIRST.public.raw)
    for name, about, file in (
        ("witness-file-of-another-kind", "the key of a log in the place of a witness's", f"{plain}\n".encode()),
        ("witness-file-empty", "no key of a witness", b"\n"),
        ("witness-file-damaged", "a damaged key of a witness", f"{FIRST.public}x\n".encode()),
        ("witness-file-no-text", "no text", b"\xff\n"),
    ):
        yield replace(_refused(name, about, proof, ALL), fails="", witness_file=file)


def _other_model(world: World, proof: Made, made: Made) -> Iterator[Vector]:
    model = digest_of("another model").hex()
    yield replace(
        genuine("witness-another-model", "all have cosigned, and the model is another", proof, model=model),
        fails="model",
        witnesses=ALL,
    )
    yield replace(
        genuine(
            "witness-missing-and-another-model", "none has cosigned, and the model is another", made, model=model
        ),
        fails="witnesses",
        witnesses=ALL,
    )


def _late(world: World) -> Made:
    return with_lines(world.proof(LEAVER), cosigned(world, FIRST, time=253_402_300_799))


def _log_line(world: World) -> str:
    return write_signature(SERVER.public, SERVER.sign(head_of(world).body.encode()))


def _line(key: WitnessKey, data: bytes) -> str:
    return write_signature(key, data)


def _holds(name: str, about: str, made: Made, witnesses: Sequence[WitnessKey], **more: Any) -> Vector:
    return replace(genuine(name, about, made), witnesses=tuple(witnesses), **more)


def _refused(name: str, about: str, made: Made, witnesses: Sequence[WitnessKey], **more: Any) -> Vector:
    return replace(_holds(name, about, made, witnesses, **more), fails="witnesses")
