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
from disavow.proof import reading
from disavow.proof.reading import MOST, Reader
from tests.rounds.builders import PROPERTY

AT = "here"
HASH = base64.b64encode(bytes(range(32))).decode()
TIME = "2026-01-31T12:00:00.000000+00:00"

ACCEPTED: list[tuple[Reader[Any], Any, Any]] = [
    (reading.text, "", ""),
    (reading.text, "é" * 4096, "é" * 4096),
    (reading.boolean, True, True),
    (reading.boolean, False, False),
    (reading.whole, 0, 0),
    (reading.whole, MOST, MOST),
    (reading.positive, 1, 1),
    (reading.positive, MOST, MOST),
    (reading.decimal, "0.0", 0.0),
    (reading.decimal, "0.1", 0.1),
    (reading.decimal, "1e+16", 1e16),
    (reading.decimal, "5e-324", 5e-324),
    (reading.decimal, "1.7976931348623157e+308", 1.7976931348623157e308),
    (reading.figure, "0", "0"),
    (reading.figure, "0.1", "0.1"),
    (reading.figure, "123457", "123457"),
    (reading.figure, "1.23457e+06", "1.23457e+06"),
    (reading.figure, "4.94066e-324", "4.94066e-324"),
    (reading.digest, "0f" * 32, "0f" * 32),
    (reading.moment, TIME, TIME),
    (reading.hashed, HASH, bytes(range(32))),
    (reading.from_base64, "", b""),
    (reading.from_base64, "AA==", b"\x00"),
    (reading.exactly(1), 1, 1),
    (reading.exactly("word"), "word", "word"),
    (reading.one_of("a", "b"), "b", "b"),
    (reading.optional(reading.whole), None, None),
    (reading.optional(reading.whole), 3, 3),
    (reading.list_of(reading.whole, most=2), [], []),
    (reading.list_of(reading.whole, most=2), [1, 2], [1, 2]),
]

REFUSED: list[tuple[Reader[Any], list[Any]]] = [
    (reading.text, [None, 1, ["a"], b"a", "x" * 4097, "\ud800", "a\udfff"]),
    (reading.boolean, [None, 0, 1, "true", []]),
    (reading.whole, [None, True, False, -1, MOST + 1, 1.0, "1", [1]]),
    (reading.positive, [None, True, 0, -1, MOST + 1, 1.0, "1"]),
    (
        reading.decimal,
        [
            *(None, 0, 1.5, True, "", "1", "-0.0", "-1.0", "+1.0", "0.10", "00.1", ".1", "1.", "1e5", "1E+16"),
            *("1e16", "inf", "nan", "1e+309", "1_0.0", " 1.0", "1.0 ", "1.0\n", "١.0", "0x1", "1e+400"),
            *("0.1" + "0" * 40, "0.30000000000000004441"),
        ],
    ),
    (
        reading.figure,
        [None, 0, 1.5, "", "-0", "-1", "0.0", "0.10", "1234567", "1e6", "1.234567", "inf", "1e+309", "١", "1\n"],
    ),
    (reading.digest, [None, 0, "", "0f" * 31, "0f" * 33, "0F" * 32, "0g" * 32, "0f" * 32 + "\n", bytes(32)]),
    (
        reading.moment,
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
    (reading.hashed, [None, 1, "", "AA==", HASH[:-1], HASH + "\n", HASH[:-4] + "AAAA", bytes(32)]),
    (reading.from_base64, [None, 1, "A", "AA", "AA=", "AB==", "AA==\n", " AA==", "A-A=", "AA==AA==", "é"]),
    (reading.exactly(1), [None, True, 1.0, "1", 2]),
    (reading.exactly("word"), [None, "Word", "word ", b"word"]),
    (reading.one_of("a", "b"), [None, "", "c", "ab", ["a"], {"a": 1}]),
    (reading.optional(reading.whole), [False, "", -1]),
    (reading.list_of(reading.whole, most=2), [None, {}, "12", (1, 2), [1, 2, 3], [1, "2"], [[1]]]),
]


@pytest.mark.parametrize(("read", "value", "meant"), ACCEPTED)
def test_what_is_meant_is_read(read: Reader[Any], value: Any, meant: Any) -> None:
    found = read(value, AT)
    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize(("read", "value"), [(read, value) for read, values in REFUSED for value in values])
def test_anything_else_is_refused_and_the_place_is_named(read: Reader[Any], value: Any) -> None:
    with pytest.raises(Unreadable, match=f"^{AT}"):
        read(value, AT)


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
    with pytest.raises(Unreadable, match="is not a time"):
        reading.moment(value, AT)


def test_missing_and_unknown_fields_are_named() -> None:
    with pytest.raises(Unreadable, match="here has missing or unknown fields: 'extra', 'wanted'"):
        reading.fields({"extra": 1, "known": 2}, AT, {"wanted": reading.whole, "known": reading.whole})


def test_many_unknown_fields_do_not_make_an_endless_message() -> None:
    with pytest.raises(Unreadable) as caught:
        reading.fields({f"field {i}" * 20: i for i in range(1000)}, AT, {})
    assert len(str(caught.value)) < 200


@PROPERTY
@given(st.text(max_size=5) | st.sampled_from(["\ud800", "\x1b[2J", "\nVALID", "\u202e"]))
def test_a_message_about_an_unknown_field_can_be_shown_in_a_terminal(name: str) -> None:
    """Field names are the attacker's: a message that holds them as they are forges lines, or cannot be printed."""
    with pytest.raises(Unreadable) as caught:
        reading.fields({name: 1}, AT, {"wanted": reading.whole})
    assert str(caught.value).isprintable()


@PROPERTY
@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_every_finite_number_from_0_on_comes_back_from_its_text(number: float) -> None:
    back = reading.decimal(reading.write_decimal(number), AT)
    assert struct.pack(">d", back) == struct.pack(">d", number)


@PROPERTY
@given(st.integers(0, 0x7FEFFFFFFFFFFFFF))
def test_every_pattern_of_bits_of_such_a_number_does(bits: int) -> None:
    number: float = struct.unpack(">d", struct.pack(">Q", bits))[0]
    assert math.isfinite(number)
    assert struct.pack(">d", reading.decimal(reading.write_decimal(number), AT)) == struct.pack(">Q", bits)


@PROPERTY
@given(st.floats(min_value=0, allow_nan=False, max_value=1e308))
def test_every_figure_that_is_written_is_read(number: float) -> None:
    written = reading.write_figure(number)
    assert reading.figure(written, AT) == written
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
    assert reading.from_base64(reading.to_base64(data), AT) == data
