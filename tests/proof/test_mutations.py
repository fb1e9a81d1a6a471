"""Whatever is changed in a proof, an opening or a receipt, it no longer holds, whoever signs it again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from disavow.proof import canonical
from disavow.proof.envelope import seal
from disavow.proof.verify import examine
from tests.proof.made_proofs import NEXT, SERVER, Made, client
from tests.proof.mutating import byte_mutations, mutations, survivors
from tests.proof.vectors.records import few_records
from tests.proof.vectors.short import among_others, purged, short
from tests.proof.vectors.short import rolled_back as undone_among_others
from tests.proof.vectors.valid import LEAVER, OTHER, deniable, limited, mate, relative, rolled_back, several
from tests.proof.world import World

PROOFS: dict[str, Callable[[], Made]] = {
    "deniable": lambda: deniable().proof(LEAVER),
    "trained on": lambda: deniable().train(1).proof(LEAVER),
    "two drawn": lambda: several().proof(LEAVER),
    "relative delta": lambda: relative().proof(LEAVER),
    "limited odds": lambda: limited().leave(LEAVER).proof(LEAVER),
    "rollback": lambda: rolled_back().proof(mate()),
    "superseded by another": lambda: rolled_back().proof(LEAVER),
    "never present": lambda: World("never").train(2, without=[LEAVER]).leave(LEAVER).proof(LEAVER),
    "together": lambda: World("together", x=1).train(2).leave(LEAVER, OTHER, client(3)).proof(OTHER),
    "one cluster": lambda: World("one", clients=3, x=1).train(2).leave(LEAVER, OTHER).proof(OTHER),
    "what-if": lambda: World("if").train(2).what_if(LEAVER),
    "what-if with two drawn": lambda: several().train(1).what_if(OTHER),
    "without noise": lambda: World("none", noise="none").train(1).leave(LEAVER).proof(LEAVER),
    "rotated key": lambda: World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER).proof(LEAVER),
    "short": lambda: among_others().proof(LEAVER),
    "short what-if": lambda: among_others().what_if(client(4)),
    "short rollback": lambda: undone_among_others().proof(OTHER),
    "short together": lambda: short("short together", x=2).train(2).leave(LEAVER, OTHER).train(1).proof(OTHER),
    "records": lambda: few_records().proof(LEAVER, few_records().word(LEAVER)),
    "short purge": lambda: purged().proof(LEAVER, purged=True),
    "signed late": lambda: World("late", key=None).train(1).leave(LEAVER).proof(LEAVER),
}

SOME_OR_ALL = pytest.mark.parametrize(
    "every", [pytest.param(30, id="some"), pytest.param(1, id="all", marks=pytest.mark.torture)]
)
"""One change in thirty, of each of the proofs others: the proofs share nearly all their fields."""

ONLY_THE_OPENING_KNOWS = re.compile(r"predicate\.clusters\.\d+\.slot (set to|as) .*")
"""Which of the slots withdrawn from a cluster (for a what-if: of those still in it) is the leaver's. A proof names
nobody, so that without its opening one of them is as good as the other; the opening decides, and is checked."""


CLAIMS_LESS = "predicate.purge deleted"
"""Without its purge a proof says that the leaver's rounds were undone, and nothing of what did it."""


def some(found: Iterator[tuple[str, Any]], name: str, every: int) -> Iterator[tuple[str, Any]]:
    """Every so many of the changes, from another one on for each proof."""
    return islice(found, list(PROOFS).index(name) % every, None, every)


def _without_purge(made: Made) -> list[bytes]:
    """The proof without its purge, if it has one: it claims less, and holds."""
    statement = json.loads(made.payload)
    if statement["predicate"].pop("purge", None) is None:
        return []
    return [seal(canonical.encode(statement), made.signer)]


@SOME_OR_ALL
@pytest.mark.parametrize("name", PROOFS)
def test_no_changed_payload_holds_though_the_right_key_signs_it_again(name: str, every: int) -> None:
    made = PROOFS[name]()
    assert examine(made.inputs(proof=seal(canonical.encode(json.loads(made.payload)), made.signer))).named
    free: list[bytes] = []

    def holds_without_opening(value: Any) -> bool:
        proof = seal(canonical.encode(value), made.signer)
        valid = examine(made.inputs(proof=proof, opening=None)).valid
        free.extend([proof] * valid)
        return valid

    tried, passed = survivors(some(mutations(json.loads(made.payload)), name, every), holds_without_opening)
    assert [done for done in passed if not ONLY_THE_OPENING_KNOWS.fullmatch(done) and done != CLAIMS_LESS] == []
    free = [proof for proof in free if proof not in _without_purge(made)]
    assert [proof for proof in free if examine(made.inputs(proof=proof)).valid] == []
    assert tried > 1_500 // every
    if every == 1 and name in ("what-if", "one cluster"):
        assert passed


@pytest.mark.parametrize("name", ["deniable", "two drawn", "rollback", "what-if", "short"])
def test_no_changed_byte_of_an_envelope_goes_unnoticed(name: str) -> None:
    made = PROOFS[name]()
    data = made.proof
    found = byte_mutations(data, every=13)
    _, passed = survivors(found, lambda proof: proof != data and examine(made.inputs(proof=proof)).valid)
    assert passed == []


def test_no_changed_byte_around_the_payload_goes_unnoticed() -> None:
    made = PROOFS["deniable"]()
    data = made.proof
    edge = data.index(b'","payloadType')
    for start, end in ((0, 60), (edge - 60, len(data))):
        changed = [data[:start] + part + data[end:] for _, part in byte_mutations(data[start:end])]
        assert [proof for proof in changed if proof != data and examine(made.inputs(proof=proof)).valid] == []


@pytest.mark.parametrize("name", ["deniable", "two drawn", "rollback", "what-if", "short"])
def test_no_changed_byte_of_a_payload_goes_unnoticed_though_it_is_signed_again(name: str) -> None:
    made = PROOFS[name]()

    def accepted(payload: bytes) -> bool:
        if payload == made.payload or not examine(made.inputs(proof=seal(payload, made.signer))).valid:
            return False
        # the time of day is the server's word, and so is when it answered after it had judged
        return canonical.encode(_without_times(payload)) != canonical.encode(_without_times(made.payload))

    _, passed = survivors(byte_mutations(made.payload, every=17), accepted)
    assert passed == []


def _without_times(payload: bytes) -> Any:
    statement = json.loads(payload)
    for name, time in (statement["predicate"]["times"] or {}).items():
        statement["predicate"]["times"][name] = "" if name == "answered_at" else time[: len("2026-01-31")]
    return statement


@SOME_OR_ALL
@pytest.mark.parametrize("name", PROOFS)
def test_no_changed_opening_fits(name: str, every: int) -> None:
    made = PROOFS[name]()
    data = made.opening.encode()
    _, passed = survivors(
        some(mutations(json.loads(data)), name, every),
        lambda value: examine(made.inputs(opening=canonical.encode(value))).valid,
    )
    assert passed == []
    _, passed = survivors(
        some(byte_mutations(data, every=5), name, every),
        lambda opening: opening != data and examine(made.inputs(opening=opening)).valid,
    )
    assert passed == []


def test_an_opening_of_somebody_who_left_no_trace_names_nobody() -> None:
    """Of a client that was in no round and has not asked the log holds nothing: any id fits, none is believed."""
    made = World("if").train(1, without=[LEAVER]).what_if(LEAVER)
    _, passed = survivors(
        mutations(json.loads(made.opening.encode())),
        lambda value: examine(made.inputs(opening=canonical.encode(value))).valid,
    )
    assert {done.split()[0] for done in passed} == {"client"}
    report = examine(made.inputs())
    assert report.valid
    assert not report.named


@pytest.mark.parametrize("name", ["deniable", "two drawn", "rolled back"])
def test_no_changed_receipt_holds(name: str) -> None:
    world, leaver = {
        "deniable": lambda: (deniable(), LEAVER),
        "two drawn": lambda: (several(), LEAVER),
        "rolled back": lambda: (rolled_back(), mate()),
    }[name]()
    made = world.proof(leaver)
    data = world.receipt(leaver, 2)
    assert examine(made.inputs(receipts=[data])).valid
    _, passed = survivors(
        mutations(json.loads(data)),
        lambda value: examine(made.inputs(receipts=[canonical.encode(value)])).valid,
    )
    assert passed == []
    _, passed = survivors(
        byte_mutations(data, every=29),
        lambda receipt: receipt != data and examine(made.inputs(receipts=[receipt])).valid,
    )
    assert passed == []


def test_no_changed_checkpoint_that_somebody_kept_is_a_prefix() -> None:
    world = deniable()
    made, note = world.proof(LEAVER), world.checkpoint(3)
    data = note.encode()
    assert examine(made.inputs(checkpoint=note)).valid
    _, passed = survivors(
        byte_mutations(data),
        lambda kept: kept != data and examine(made.inputs(checkpoint=kept)).valid,
    )
    assert passed == []
    for size in range(5):
        assert examine(made.inputs(checkpoint=world.checkpoint(size, SERVER))).valid
