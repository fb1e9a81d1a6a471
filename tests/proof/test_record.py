"""Records refuse what is not theirs, and write what they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass
from typing import Annotated, Any

import pytest

from disavow.errors import Unreadable
from disavow.proof import canonical
from disavow.proof.envelope import Envelope
from disavow.proof.leaves import parse_leaf
from disavow.proof.opening import Opening
from disavow.proof.receipt import decode_receipt
from disavow.proof.record import LEFT_OUT, AtMost, Codec, Hash, Key, Positive, Record, Text, Whole, constant
from disavow.proof.statement import decode_statement
from disavow.proof.validation import digest as read_digest
from tests.proof.vectors.short import among_others
from tests.proof.vectors.valid import LEAVER, mate, rebuilt, rolled_back
from tests.refusals import refuses

AT = "here"


@dataclass(frozen=True, kw_only=True)
class Inner(Record):
    """A record inside another."""

    numbers: Annotated[tuple[Whole, ...], AtMost(3)]


@dataclass(frozen=True, kw_only=True)
class Outer(Record):
    """One field of each sort."""

    type: Annotated[str, constant("outer")] = "outer"
    start: Annotated[Positive | None, Key("from")]
    name: Text
    salt: Hash | None
    inner: Annotated[tuple[Inner, ...], AtMost(2)]
    digest: Annotated[str | None, Codec(read_digest), LEFT_OUT] = None


GOOD: dict[str, Any] = {"type": "outer", "from": 7, "name": "a", "salt": None, "inner": [{"numbers": [1, 2]}]}


def test_a_record_reads_what_it_writes() -> None:
    read = Outer.parse(GOOD, AT)
    assert read == Outer(start=7, name="a", salt=None, inner=(Inner(numbers=(1, 2)),))
    assert read.to_json() == GOOD
    assert read.encode() == canonical.encode(GOOD)
    assert Outer.parse({**GOOD, "from": None}, AT).start is None


def test_a_field_that_is_left_out_where_it_is_none_is_read_where_it_is_there() -> None:
    assert Outer.parse(GOOD, AT).digest is None
    there = {**GOOD, "digest": "ab" * 32}
    assert Outer.parse(there, AT).digest == "ab" * 32
    assert Outer.parse(there, AT).to_json() == there
    for other in (None, "", "ab"):
        with refuses(Unreadable, "digest"):
            Outer.parse({**GOOD, "digest": other}, AT)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "outer",
        {},
        {**GOOD, "more": 0},
        {key: value for key, value in GOOD.items() if key != "salt"},
        {**GOOD, "type": "other"},
        {**GOOD, "from": 0},
        {**GOOD, "from": True},
        {**GOOD, "start": 7},
        {**GOOD, "salt": "AA=="},
        {**GOOD, "inner": {}},
        {**GOOD, "inner": [{"numbers": []}] * 3},
        {**GOOD, "inner": [{"numbers": [1, 2, 3, 4]}]},
        {**GOOD, "inner": [{}]},
    ],
)
def test_whatever_is_not_exactly_the_record_is_refused(value: Any) -> None:
    with refuses(Unreadable) as refused:
        Outer.parse(value, AT)
    assert str(refused.value).startswith(AT)


def test_the_place_inside_lists_and_records_is_named() -> None:
    with refuses(Unreadable, "here.inner[1].numbers[2]", "whole number"):
        Outer.parse({**GOOD, "inner": [{"numbers": []}, {"numbers": [1, 2, -3]}]}, AT)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Outer.parse(GOOD, AT).name = "b"  # type: ignore[misc]


def test_an_annotation_that_says_nothing_of_reading_is_refused_when_the_class_is_used() -> None:
    silent: Any = type("Silent", (Record,), {"__annotations__": {"number": int}})
    with pytest.raises(TypeError, match="nothing says how"):
        silent.parse({"number": 1}, "a record")


def test_every_kind_of_record_says_how_its_fields_are_read() -> None:
    kinds = [kind for kind in Record.__subclasses__() if kind.__module__.startswith("disavow.")]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert kind._declared().names or kind.__subclasses__()
    assert len(kinds) > 10


def _files() -> Iterator[tuple[bytes, Any]]:
    worlds = (rolled_back(), mate()), (rolled_back(), LEAVER), (rebuilt(), LEAVER), (among_others(), LEAVER)
    for world, who in worlds:
        made = world.proof(who)
        yield made.proof, Envelope.decode
        yield made.payload, decode_statement
        yield made.opening.encode(), Opening.decode
        for past in world.pasts:
            if who in past.slots:
                yield world.receipt(who, past.leaf), decode_receipt
        for leaf in world.leaves:
            yield canonical.encode(leaf), lambda data: parse_leaf(canonical.decode(data, what=AT, most=1 << 20), AT)


def test_every_record_of_a_proof_is_written_as_it_was_read() -> None:
    files = list(_files())
    assert len(files) > 20
    for data, decode in files:
        assert decode(data).encode() == data
