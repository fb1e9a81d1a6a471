"""Errors, bytes, JSON and the kinds of values of the specification, read anew."""

import base64
import binascii
import calendar
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

MIB = 1_048_576
MANY = 1_000_000
WHOLE = 4_294_967_295
ERASURES = {"urn:disavow:proof-of-deniability:v3": 3, "urn:disavow:proof-of-deniability:v4": 4}
WHAT_IFS = {"urn:disavow:what-if:v3": 3, "urn:disavow:what-if:v4": 4}
PAYLOAD_TYPE = "application/vnd.in-toto+json"
PACKED_TYPE = "application/vnd.disavow.in-toto+zlib"
LN_10 = 2.302585092994046
LARGEST = 1.7976931348623157e308

Object = dict[str, Any]
Kind = Callable[[Any], None]


class InvalidError(Exception):
    """It can be read and does not hold ("Notation")."""


class AnotherModelError(Exception):
    """It holds, for another model than the one given ("The result")."""


class UnreadableError(Exception):
    """It cannot even be read ("Notation")."""


def require(holds: bool, what: str) -> None:
    """Fail a check as invalid."""
    if not holds:
        raise InvalidError(what)


def need(readable: bool, what: str) -> None:
    """Fail as unreadable."""
    if not readable:
        raise UnreadableError(what)


# "Notation", "Canonical JSON"


def sha(*parts: bytes) -> bytes:
    """H over joined parts ("Notation")."""
    return hashlib.sha256(b"".join(parts)).digest()


def u32(number: int) -> bytes:
    """Four bytes, big-endian ("Notation")."""
    return number.to_bytes(4, "big")


def u64(number: int) -> bytes:
    """Eight bytes, big-endian ("Notation")."""
    return number.to_bytes(8, "big")


def string(text: str) -> bytes:
    """str(t) ("Notation")."""
    encoded = text.encode()
    return u32(len(encoded)) + encoded


def canonical(value: Any) -> bytes:
    """json(v) ("Canonical JSON")."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _members(pairs: list[tuple[str, Any]]) -> Object:
    need(len(pairs) <= 64, "an object has too many members")
    found = dict(pairs)
    need(len(found) == len(pairs), "a key stands twice")
    return found


def _number(text: str) -> int:
    need(len(text) <= 15, "a number is too long")
    need(text != "-0" and 0 <= int(text) <= WHOLE, "a number is out of range")
    return int(text)


def _no_number(text: str) -> NoReturn:
    raise UnreadableError(f"no whole number: {text[:20]}")


def parse(data: bytes, limit: int) -> Any:
    """Read JSON in any spacing, within the limits ("Files and limits")."""
    need(len(data) <= limit, "too many bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError("no UTF-8") from error
    depth = 0
    for count, match in enumerate(re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', text, re.DOTALL), start=1):
        sign = match.group()
        depth += 1 if sign in "[{" else -1 if sign in "]}" else 0
        need(depth <= 16 and count <= 1_500_000, "nested too deeply, or too many strings and brackets")
    try:
        return json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_number,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError) as error:
        raise UnreadableError("no JSON") from error


def parse_canonical(data: bytes, limit: int) -> Any:
    """Read canonical JSON ("Canonical JSON")."""
    value = parse(data, limit)
    need(canonical(value) == data, "not canonical")
    return value


# "Kinds of values"


def whole(value: Any) -> None:
    """A number that is no boolean."""
    need(type(value) is int and 0 <= value <= WHOLE, "no whole number")


def positive(value: Any) -> None:
    """A whole number from 1 on."""
    whole(value)
    need(value >= 1, "not positive")


def boolean(value: Any) -> None:
    """True or false."""
    need(type(value) is bool, "no boolean")


def a_string(value: Any) -> None:
    """Any JSON string."""
    need(isinstance(value, str), "no string")


def text(value: Any) -> None:
    """At most 4,096 code points, no unpaired surrogate."""
    a_string(value)
    need(len(value) <= 4096, "a text is too long")
    need(not any("\ud800" <= character <= "\udfff" for character in value), "an unpaired surrogate")


def _float(value: Any) -> float:
    a_string(value)
    need(re.fullmatch(r"[0-9][0-9.e+-]{0,30}", value) is not None, "no decimal")
    try:
        number = float(value)
    except ValueError as error:
        raise UnreadableError("no decimal") from error
    need(math.isfinite(number), "not finite")
    return number


def decimal(value: Any) -> None:
    """A float64 in its shortest text."""
    need(repr(_float(value)) == value, "not the shortest text")


def figure(value: Any) -> None:
    """A float64 in six significant digits."""
    need(f"{_float(value):.6g}" == value, "no figure")


def digest(value: Any) -> None:
    """64 lower-case hexadecimal digits."""
    a_string(value)
    need(re.fullmatch(r"[0-9a-f]{64}", value) is not None, "no digest")


def time(value: Any) -> None:
    """A moment in UTC, in one form."""
    a_string(value)
    pattern = r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.[0-9]{6}\+00:00"
    match = re.fullmatch(pattern, value)
    if match is None:
        raise UnreadableError("no time")
    hour, minute, second = (int(part) for part in match.groups()[1:])
    day(match[1])
    need(hour <= 23 and minute <= 59 and second <= 59, "no such time of day")


def day(value: Any) -> None:
    """A day in UTC, in one form."""
    a_string(value)
    match = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", value)
    if match is None:
        raise UnreadableError("no day")
    year, month, number = (int(part) for part in match.groups())
    need(year >= 1 and 1 <= month <= 12, "no such month")
    need(1 <= number <= calendar.monthrange(year, month)[1], "no such day")


def unbase64(value: Any) -> bytes:
    """Bytes of a base64 text that is the only one for them."""
    a_string(value)
    try:
        decoded = base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise UnreadableError("no base64") from error
    need(base64.b64encode(decoded).decode() == value, "no canonical base64")
    return decoded


def is_base64(value: Any) -> None:
    """Base64 of any length."""
    unbase64(value)


def hashed(value: Any) -> None:
    """Base64 of 32 bytes."""
    need(len(unbase64(value)) == 32, "no hash")


def one_of(*allowed: str) -> Kind:
    """One of a few strings."""

    def check(value: Any) -> None:
        need(isinstance(value, str) and value in allowed, f"none of {allowed}")

    return check


def optional(kind: Kind) -> Kind:
    """Null, or of a kind."""

    def check(value: Any) -> None:
        if value is not None:
            kind(value)

    return check


def list_of(kind: Kind, most: int = MANY) -> Kind:
    """At most so many of a kind."""

    def check(value: Any) -> None:
        need(isinstance(value, list) and len(value) <= most, "no list, or too long a one")
        for item in value:
            kind(item)

    return check


def fields(kinds: Mapping[str, Kind], may_be_missing: Collection[str] = ()) -> Kind:
    """Exactly these fields ("Fields")."""

    def check(value: Any) -> None:
        need(
            isinstance(value, dict)
            and value.keys() <= kinds.keys()
            and kinds.keys() - value.keys() <= set(may_be_missing),
            "a field is missing or unknown",
        )
        for name in value:
            kinds[name](value[name])

    return check


# "Public keys"
