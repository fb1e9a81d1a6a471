"""What both verifiers are asked, that of Python and that of the verify page, and how their answers are compared."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from disavow.errors import Unreadable
from disavow.proof import canonical
from disavow.proof.envelope import seal
from disavow.proof.keys import keys_in
from disavow.proof.limitations import not_claimed
from disavow.proof.verify import CHECKS, Report, VerificationInputs, examine
from disavow.proof.witness_keys import witnesses_in
from tests.proof import second_mutations, second_opinion
from tests.proof.made_proofs import SERVER, Made, signed_serving
from tests.proof.mutating import byte_mutations, mutations
from tests.proof.test_mutations import PROOFS
from tests.proof.vectors.valid import LEAVER, deniable, rolled_back
from tests.proof.vectors.witnesses import ALL, FIRST, SECOND, cosigned, with_lines, witnessed

VECTORS = Path(second_opinion.VECTORS)

Object = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One question to both verifiers."""

    about: str
    proof: bytes
    keys: bytes
    opening: bytes | None = None
    receipts: list[bytes] = field(default_factory=list)
    checkpoint: bytes | None = None
    word: bytes | None = None
    serving: bytes | None = None
    model: str | None = None
    client: str | None = None
    what_if: bool = False
    witnesses: bytes | None = None
    quorum: int | None = None

    def message(self) -> Object:
        """The same as JSON, with files in base64."""
        return {
            "files": {
                "proof": _text(self.proof),
                "keys": _text(self.keys),
                "opening": _text(self.opening),
                "checkpoint": _text(self.checkpoint),
                "word": _text(self.word),
                "witnesses": _text(self.witnesses),
                "serving": _text(self.serving),
                "receipts": [_text(each) for each in self.receipts],
            },
            "options": {
                "model": self.model,
                "client": self.client,
                "whatIf": self.what_if,
                "quorum": self.quorum,
            },
        }

    def expected(self) -> Object:
        """What Python says, in the words of the page."""
        try:
            trusted = keys_in(self.keys, "the key file")
            witnesses = () if self.witnesses is None else witnesses_in(self.witnesses)
        except Unreadable:
            return {"exitCode": 2, "states": [], "names": None, "notClaimed": [], "warnings": []}
        report = examine(
            VerificationInputs(
                self.proof,
                trusted,
                self.opening,
                self.receipts,
                self.model,
                self.checkpoint,
                self.what_if,
                self.client,
                self.word,
                self.serving,
                witnesses=witnesses,
                quorum=self.quorum,
            )
        )
        return {
            "exitCode": _exit_code(report),
            "states": _states(report),
            "names": report.opening.client if report.opening else None,
            "notClaimed": not_claimed(report) if report.holds else [],
            "warnings": report.warnings,
        }


def answered(report: Object) -> Object:
    """The part of the page's report that Python's must agree with; reasons are each verifier's own words."""
    states = [[check["number"], check["name"], check["state"]] for check in report["checks"]]
    return {
        "states": states,
        **{name: report[name] for name in ("exitCode", "names", "notClaimed", "warnings")},
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _exit_code(report: Report) -> int:
    if report.failure is not None:
        return report.failure.exit_code
    return 0 if report.named else 3


def _states(report: Report) -> list[Any]:
    words = {True: "passed", False: "failed", None: "not checked"}
    found = [[result.number, result.name, words[result.passed]] for result in report.results]
    return found + [
        [number, CHECKS[number - 1], "not reached"] for number in range(len(found) + 1, len(CHECKS) + 1)
    ]


def vectors() -> Iterator[tuple[Case, Any]]:
    """Every checked-in vector, and what its index says."""
    for vector in json.loads((VECTORS / "vectors.json").read_bytes()):
        yield (
            Case(
                about=f"{vector['file']}: {vector['about']}",
                proof=(VECTORS / vector["file"]).read_bytes(),
                keys=(VECTORS / vector["key"]).read_bytes(),
                opening=_read(vector["opening"]),
                receipts=[(VECTORS / path).read_bytes() for path in vector["receipts"]],
                checkpoint=_read(vector["checkpoint"]),
                word=_read(vector["word"]),
                serving=_read(vector["serving"]),
                model=vector["model"],
                client=vector["client"],
                what_if=vector["what_if"],
                witnesses=_read(vector["witnesses"]),
                quorum=vector["quorum"],
            ),
            vector["expected"],
        )


def _read(path: str | None) -> bytes | None:
    return None if path is None else (VECTORS / path).read_bytes()


def mutated(count: int) -> Iterator[Case]:
    """So many changed files, always the same ones; half are proofs whose forger makes all else fit as well."""
    source = random.Random(count)
    yield from islice(_forged(source), count - count // 2)
    single = (_statements, _openings, _envelopes, _receipts, _checkpoints, _keys, _words, _servings, _cosignatures)
    sources = [each(source) for each in single]
    for chosen in source.choices(sources, weights=[32, 14, 14, 9, 7, 6, 6, 6, 6], k=count // 2):
        yield next(chosen)


def _forged(source: random.Random) -> Iterator[Case]:
    while True:
        statement, opening, what_if = source.choice(second_mutations.bases())
        forged, what = second_mutations.mutated(statement, source)
        yield Case(what, second_opinion.sign(forged), second_opinion.KEY_TEXT.encode(), opening, what_if=what_if)


def _sample(found: Iterator[tuple[str, Any]], source: random.Random) -> list[tuple[str, Any]]:
    every = source.randrange(20, 60)
    return list(islice(found, source.randrange(every), None, every))


def _case(name: str, made: Made, done: str, **changed: Any) -> Case:
    inputs = made.inputs(**changed)
    keys = _key_file(made)
    return Case(
        f"{name}: {done}",
        inputs.proof,
        keys,
        inputs.opening,
        list(inputs.receipts),
        inputs.checkpoint,
        inputs.word,
        inputs.serving,
        inputs.model,
        inputs.client,
        inputs.what_if,
    )


def _key_file(made: Made) -> bytes:
    return str(made.signer.public).encode()


def _proofs(source: random.Random) -> Iterator[tuple[str, Made]]:
    made = {name: make() for name, make in PROOFS.items()}
    while True:
        yield source.choice(list(made.items()))


def _statements(source: random.Random) -> Iterator[Case]:
    for name, made in _proofs(source):
        for done, value in _sample(mutations(json.loads(made.payload)), source):
            yield _case(
                name, made, done, proof=seal(canonical.encode(value), made.signer, packed=source.random() < 0.3)
            )


def _openings(source: random.Random) -> Iterator[Case]:
    for name, made in _proofs(source):
        for done, value in _sample(mutations(json.loads(made.opening.encode())), source):
            yield _case(name, made, f"opening {done}", opening=canonical.encode(value))
        for done, data in _sample(byte_mutations(made.opening.encode()), source):
            yield _case(name, made, f"opening {done}", opening=data)


def _envelopes(source: random.Random) -> Iterator[Case]:
    for name, made in _proofs(source):
        for done, data in _sample(byte_mutations(made.proof, every=97), source):
            yield _case(name, made, f"envelope {done}", proof=data)


def _receipts(source: random.Random) -> Iterator[Case]:
    world, back = deniable(), rolled_back()
    originals = [
        (world.proof(LEAVER), world.receipt(LEAVER, 1)),
        (world.proof(LEAVER), world.receipt(LEAVER, 2)),
        (back.proof(LEAVER), back.receipt(LEAVER, 1)),
    ]
    while True:
        made, receipt = source.choice(originals)
        for done, value in _sample(mutations(json.loads(receipt)), source):
            yield _case("receipts", made, done, receipts=[receipt, canonical.encode(value)])


def _checkpoints(source: random.Random) -> Iterator[Case]:
    world = deniable()
    made, note = world.proof(LEAVER), world.checkpoint(3)
    while True:
        for done, data in _sample(byte_mutations(note.encode()), source):
            yield _case("checkpoint", made, done, checkpoint=data)


def _keys(source: random.Random) -> Iterator[Case]:
    listed = sorted((VECTORS / "keys").iterdir())
    proofs = [case for case, expected in vectors() if expected in ("valid", "valid-without-opening")]
    while True:
        case = source.choice(proofs)
        data = source.choice([case.keys, source.choice(listed).read_bytes()])
        for done, changed in _sample(byte_mutations(data), source):
            yield Case(f"keys {done}", case.proof, changed, case.opening, what_if=case.what_if)


def _words(source: random.Random) -> Iterator[Case]:
    given = [case for case, _ in vectors() if case.word is not None]
    while True:
        case = source.choice(given)
        assert case.word is not None
        for done, data in _sample(byte_mutations(case.word), source):
            yield Case(f"word {done}", case.proof, case.keys, case.opening, word=data)
        for done, value in _sample(mutations(json.loads(case.word)), source):
            yield Case(f"word {done}", case.proof, case.keys, case.opening, word=canonical.encode(value))


def _servings(source: random.Random) -> Iterator[Case]:
    given = [case for case, _ in vectors() if case.serving is not None]
    while True:
        case = source.choice(given)
        assert case.serving is not None
        for done, data in _sample(byte_mutations(case.serving), source):
            yield replace(case, about=f"serving {done}", serving=data)
        try:
            said = json.loads(base64.b64decode(json.loads(case.serving)["payload"]))
        except (KeyError, ValueError):  # one of the vectors that hold no statement
            continue
        for done, value in _sample(mutations(said), source):
            yield replace(case, about=f"serving {done}", serving=signed_serving(value, SERVER))


def _cosignatures(source: random.Random) -> Iterator[Case]:
    world = witnessed()
    made, lines = world.proof(LEAVER), cosigned(world, FIRST, SECOND)
    file = "".join(f"{key}\n" for key in ALL).encode()
    note = (world.checkpoint() + "".join(f"{line}\n" for line in lines)).encode()
    while True:
        quorum = source.choice([None, 1, 2, 3])
        for done, value in _sample(mutations({"lines": lines}), source):
            if isinstance(value, dict) and "lines" in value:
                changed = replace(made, predicate={**made.predicate, "cosignatures": value["lines"]})
                yield replace(
                    _case("cosignatures", changed, done), witnesses=source.choice([file, None]), quorum=quorum
                )
        for done, data in _sample(byte_mutations(lines[0].encode()), source):
            changed = with_lines(made, [data.decode("utf-8", "replace"), lines[1]])
            yield replace(_case("cosignatures", changed, done), witnesses=file, quorum=quorum)
        for done, data in _sample(byte_mutations(file), source):
            yield replace(_case("witnesses", with_lines(made, lines), done), witnesses=data, quorum=quorum)
        for done, data in _sample(byte_mutations(note), source):
            yield replace(_case("kept", made, done, checkpoint=data), witnesses=file, quorum=quorum)
