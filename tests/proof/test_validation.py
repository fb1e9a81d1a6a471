"""Each reader accepts one way to say a thing, and says where it stands when it refuses another."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.errors import Unreadable
from disavow.proof import validation
from disavow.proof.validation import MOST, Reader
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY

AT = "here"
HASH = base64.b64encode(bytes(range(32))).decode()
TIME = "2026-01-31T12:00:00.000000+00:00"

ACCEPTED: list[tuple[Reader[Any], Any, Any]] = [
    (validation.text, "", ""),
    (validation.text, "é" * 4096, "é" * 4096),
    (validation.boolean, True, True),
    (validation.boolean, False, False),
    (validation.whole, 0, 0),
    (validation.whole, MOST, MOST),
    (validation.positive, 1, 1),
    (validation.positive, MOST, MOST),
    (validation.decimal, "0.0", 0.0),
    (validation.decimal, "0.1", 0.1),
    (validation.decimal, "1e+16", 1e16),
    (validation.decimal, "5e-324", 5e-324),
    (validation.decimal, "1.7976931348623157e+308", 1.7976931348623157e308),
    (validation.figure, "0", "0"),
    (validation.figure, "0.1", "0.1"),
    (validation.figure, "123457", "123457"),
    (validation.figure, "1.23457e+06", "1.23457e+06"),
    (validation.figure, "4.94066e-324", "4.94066e-324"),
    (validation.digest, "0f" * 32, "0f" * 32),
    (validation.moment, TIME, TIME),
    (validation.hashed, HASH, bytes(range(32))),
    (validation.from_base64, "", b""),
    (validation.from_base64, "AA==", b"\x00"),
    (validation.exactly(1), 1, 1),
    (validation.exactly("word"), "word", "word"),
    (validation.one_of("a", "b"), "b", "b"),
    (validation.optional(validation.whole), None, None),
    (validation.optional(validation.whole), 3, 3),
    (validation.list_of(validation.whole, most=2), [], []),
    (validation.list_of(validation.whole, most=2), [1, 2], [1, 2]),
]

REFUSED: list[tuple[Reader[Any], list[Any]]] = [
    (validation.text, [None, 1, ["a"], b"a", "x" * 4097, "\ud800", "a\udfff"]),
    (validation.boolean, [None, 0, 1, "true", []]),
    (validation.whole, [None, True, False, -1, MOST + 1, 1.0, "1", [1]]),
    (validation.positive, [None, True, 0, -1, MOST + 1, 1.0, "1"]),
    (
        validation.decimal,
        [
            *(None, 0, 1.5, True, "", "1", "-0.0", "-1.0", "+1.0", "0.10", "00.1", ".1", "1.", "1e5", "1E+16"),
            *("1e16", "inf", "nan", "1e+309", "1_0.0", " 1.0", "1.0 ", "1.0\n", "١.0", "0x1", "1e+400"),
            *("0.1" + "0" * 40, "0.30000000000000004441"),
        ],
    ),
    (
        validation.figure,
        [None, 0, 1.5, "", "-0", "-1", "0.0", "0.10", "1234567", "1e6", "1.234567", "inf", "1e+309", "١", "1\n"],
    ),
    (validation.digest, [None, 0, "", "0f" * 31, "0f" * 33, "0F" * 32, "0g" * 32, "0f" * 32 + "\n", bytes(32)]),
    (
        validation.moment,
        [
            *(
                None,
                0,
                "",
                "2026-01-31",
                TIME[:-6],
                TIME.replace("T", " "),
                TIME.replace("+00:00", "Z"),
                TIME + "\n",
            ),
            *(TIME.replace("+00:00", "+01:00"), TIME.replace(".000000", ""), " " + TIME),
        ],
    ),
    (validation.hashed, [None, 1, "", "AA==", HASH[:-1], HASH + "\n", HASH[:-4] + "AAAA", bytes(32)]),
    (validation.from_base64, [None, 1, "A", "AA", "AA=", "AB==", "AA==\n", " AA==", "A-A=", "AA==AA==", "é"]),
    (validation.exactly(1), [None, True, 1.0, "1", 2]),
    (validation.exactly("word"), [None, "Word", "word ", b"word"]),
    (validation.one_of("a", "b"), [None, "", "c", "ab", ["a"], {"a": 1}]),
    (validation.optional(validation.whole), [False, "", -1]),
    (validation.list_of(validation.whole, most=2), [None, {}, "12", (1, 2), [1, 2, 3], [1, "2"], [[1]]]),
]


@pytest.mark.parametrize(("read", "value", "meant"), ACCEPTED)
def test_what_is_meant_is_read(read: Reader[Any], value: Any, meant: Any) -> None:
    found = read(value, AT)
    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize(("read", "value"), [(read, value) for read, values in REFUSED for value in values])
def test_anything_else_is_refused_and_the_place_is_named(read: Reader[Any], value: Any) -> None:
    with refuses(Unreadable) as refused:
        read(value, AT)
    assert str(refused.value).startswith(AT)


@pytest.mark.parametrize(
    "value",
    [
        "٢٠٢٦-01-31T12:00:00.000000+00:00",
        "2026-01-31T12:00:00.00000０+00:00",
        "2026-13-31T12:00:00.000000+00:00",
        "2026-02-30T12:00:00.000000+00:00",
        "2026-01-31T24:00:00.000000+00:00",
    ],
    ids=["arabic digits", "a wide zero", "no such month", "no such day", "no such hour"],
)
def test_a_moment_that_never_was_is_refused(value: str) -> None:
    with refuses(Unreadable, AT, "time"):
        validation.moment(value, AT)


def test_missing_and_unknown_fields_are_named() -> None:
    with refuses(Unreadable, AT, "extra", "wanted"):
        validation.fields({"extra": 1, "known": 2}, AT, {"wanted": validation.whole, "known": validation.whole})


def test_many_unknown_fields_do_not_make_an_endless_message() -> None:
    with pytest.raises(Unreadable) as caught:
        validation.fields({f"field {i}" * 20: i for i in range(1000)}, AT, {})
    assert len(str(caught.value)) < 200


@PROPERTY
@given(st.text(max_size=5) | st.sampled_from(["\ud800", "\x1b[2J", "\nVALID", "\u202e"]))
def test_a_message_about_an_unknown_field_can_be_shown_in_a_terminal(name: str) -> None:
    """Field names are the attacker's: a message that holds them as they are forges lines, or cannot be printed."""
    with pytest.raises(Unreadable) as caught:
        validation.fields({name: 1}, AT, {"wanted": validation.whole})
    assert str(caught.value).isprintable()


@PROPERTY
@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_every_finite_number_from_0_on_comes_back_from_its_text(number: float) -> None:
    back = validation.decimal(validation.write_decimal(number), AT)
    assert struct.pack(">d", back) == struct.pack(">d", number)


@PROPERTY
@given(st.integers(0, 0x7FEFFFFFFFFFFFFF))
def test_every_pattern_of_bits_of_such_a_number_does(bits: int) -> None:
    number: float = struct.unpack(">d", struct.pack(">Q", bits))[0]
    assert math.isfinite(number)
    assert struct.pack(">d", validation.decimal(validation.write_decimal(number), AT)) == struct.pack(">Q", bits)


@PROPERTY
@given(st.floats(min_value=0, allow_nan=False, max_value=1e308))
def test_every_figure_that_is_written_is_read(number: float) -> None:
    written = validation.write_figure(number)
    assert validation.figure(written, AT) == written
    assert math.isclose(float(written), number, rel_tol=1e-5, abs_tol=5e-324)


@PROPERTY
@given(st.text(max_size=8) | st.integers() | st.none() | st.floats() | st.binary(max_size=3) | st.lists(st.none()))
def test_no_reader_does_anything_with_rubbish_but_refuse_it(value: Any) -> None:
    readers = [read for read, _ in REFUSED]
    for read in readers:
        try:
            read(value, AT)
        except Unreadable:
            continue


@PROPERTY
@given(st.binary(max_size=40))
def test_bytes_come_back_from_base64(data: bytes) -> None:
    assert validation.from_base64(validation.to_base64(data), AT) == data


@pytest.mark.parametrize(
    ("value", "shown"),
    [("rings", "'rings'"), ("\x1b[2J\u202e", r"'\x1b[2J\u202e'"), ("a" * 5000, f"'{'a' * 40}'...")],
    ids=["a name", "hostile", "long"],
)
def test_a_strategy_that_is_not_registered_here_is_named(value: str, shown: str) -> None:
    with refuses(Unreadable, AT, "mdav", shown, "installed") as refusal:
        validation.one_of("mdav", also=lambda name: False)(value, AT)
    assert len(str(refusal.value)) < 300
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("value", [7, None, ["rings"]])
def test_what_is_no_name_is_not_shown(value: Any) -> None:
    with refuses(Unreadable, AT) as refusal:
        validation.one_of("mdav", also=lambda name: False)(value, AT)
    assert "installed" not in str(refusal.value)
