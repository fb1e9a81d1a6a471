"""One text for one value: whatever else says the same is refused, and so is whatever says nothing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.errors import Unreadable
from disavow.proof.canonical import DEEPEST, decode, decode_any, encode
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY

MOST = 10_000

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**13), 10**13) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def read(data: bytes) -> Any:
    return decode(data, what="the thing", most=MOST)


def read_any(data: bytes) -> Any:
    return decode_any(data, what="the thing", most=MOST)


@PROPERTY
@given(values)
def test_what_was_written_is_read_back_and_written_alike(value: Any) -> None:
    data = encode(value)
    assert read(data) == value
    assert read_any(data) == value
    assert encode(read(data)) == data
    assert data.isascii()


def test_the_text_has_sorted_keys_no_spaces_and_ascii_only() -> None:
    value = {"b": [1, {"z": None, "a": True}], "a": "é\n"}
    assert encode(value) == b'{"a":"\\u00e9\\n","b":[1,{"a":true,"z":null}]}'


@PROPERTY
@given(values)
def test_any_other_text_of_a_value_is_refused(value: Any) -> None:
    for other in (json.dumps(value, indent=1), json.dumps(value, ensure_ascii=False), json.dumps([value]) + "\n"):
        data = other.encode("utf-8", "replace")
        try:
            found = read(data)
        except Unreadable:
            continue
        assert encode(found) == data  # it was the one text after all


@pytest.mark.parametrize(
    "data",
    [
        b' {"a":1}',
        b'{"a":1}\n',
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'"\\u0061"',
        '"é"'.encode(),
        b'"\\u00E9"',
        b'"\\/"',
        b"-0",
        b"\xef\xbb\xbf1",
    ],
)
def test_what_is_not_in_canonical_form_is_refused(data: bytes) -> None:
    with refuses(Unreadable, "the thing"):
        read(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"{}{}", "not JSON"),
        (b"nul", "not JSON"),
        (b'{"a":1,"a":1}', "a key stands twice"),
        (b'[{"a":1,"a":2}]', "a key stands twice"),
        (b"1.0", "1.0 is not a whole number"),
        (b"1e3", "1e3 is not a whole number"),
        (b"NaN", "NaN is not a whole number"),
        (b"-Infinity", "-Infinity is not a whole number"),
        (b"1234567890123456", "a number is too long"),
        (b"9" * 9_000, "a number is too long"),
        (b"\xff\xfe", "not JSON"),
        (b'"\xed\xa0\x80"', "not JSON"),
        (b'"\\ud8"', "not JSON"),
        (b"'a'", "not JSON"),
        (b"\x00", "not JSON"),
    ],
)
def test_what_is_no_value_of_ours_is_refused_either_way(data: bytes, reason: str) -> None:
    for reader in (read, read_any):
        with refuses(Unreadable, reason):
            reader(data)


def test_other_spacing_and_order_are_read_only_where_they_are_allowed() -> None:
    data = b'{ "b" : 1,\n "a" : "\xc3\xa9" }'
    assert read_any(data) == {"a": "é", "b": 1}
    with refuses(Unreadable, "the thing", "canonical form"):
        read(data)


def test_what_is_too_large_is_not_even_looked_at() -> None:
    data = b'"' + b"a" * (MOST - 2) + b'"'
    assert read(data) == "a" * (MOST - 2)
    with refuses(Unreadable, "the thing", "10,001 bytes", "10,000"):
        read(data + b" ")


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_is_read_to_a_depth_and_no_deeper(brackets: tuple[str, str]) -> None:
    opening, closing = brackets
    each = opening.count("[") + opening.count("{")
    levels = DEEPEST // each
    read((opening * levels + "1" + closing * levels).encode())
    for deep in (levels + 1, 1_000):
        data = (opening * deep + "1" + closing * deep).encode()
        with refuses(Unreadable, f"{DEEPEST} levels"):
            read(data)


def test_brackets_inside_strings_do_not_count_as_nesting() -> None:
    for text in ("[" * 100, '\\"' * 40 + "{" * 40, "\\"):
        assert read(encode([text])) == [text]


def test_brackets_behind_a_string_that_never_ends_do_no_harm() -> None:
    with pytest.raises(Unreadable):
        read(b'"' + b"\\" * 5_000 + b"[" * 4_000)
    with pytest.raises(Unreadable):
        read(b"[" * 9_000)


def test_the_largest_hostile_text_is_refused_quickly() -> None:
    started = time.process_time()
    for data in (b'"\\' * 500_000, b"[" * 1_000_000, b'["' * 500_000, b"1" * 1_000_000, b'{"a":' * 200_000):
        with pytest.raises(Unreadable):
            decode(data, what="the thing", most=2_000_000)
    assert time.process_time() - started < 5


def test_a_lone_surrogate_is_one_text_too() -> None:
    data = b'"\\ud800"'
    assert read(data) == "\ud800"
    assert encode("\ud800") == data


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_endless_numbers_are_never_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(value)
