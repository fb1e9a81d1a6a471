"""Every small change to a value or to bytes, one at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[str | int, ...]
"""Where a value stands: keys and indexes from the outermost value on."""

EXTREMES: tuple[Any, ...] = (0, 1, 2**31, 2**32 - 1, 2**32, 10**14, -1)
KINDS: tuple[Any, ...] = (None, True, False, 0, 7, "", "x", "0.5", [], {}, [0], {"x": 0})


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything inside a value, and where it stands."""
    yield path, value
    inside: Iterator[tuple[str | int, Any]]
    if isinstance(value, dict):
        inside = iter(value.items())
    elif isinstance(value, list):
        inside = enumerate(value)
    else:
        return
    for key, each in inside:
        yield from walk(each, (*path, key))


def mutations(value: Any) -> Iterator[tuple[str, Any]]:
    """Each changed value, with what was done to it."""
    for path, old in list(walk(value)):
        where = ".".join(map(str, path))
        for done, new in _others(old):
            if not same(new, old):
                yield f"{where} {done}", changed(value, path, new)
        if path:
            yield f"{where} deleted", _without(value, path)
        if path and isinstance(path[-1], int):
            yield f"{where} doubled", _doubled(value, path)
        if isinstance(old, dict):
            yield f"{where} with one field more", changed(value, path, {**old, "more": 0})


def _others(old: Any) -> Iterator[tuple[str, Any]]:
    for kind in KINDS:
        yield f"set to {kind!r}", kind
    if isinstance(old, int) and not isinstance(old, bool):
        for number in (*EXTREMES, old - 1, old + 1):
            yield f"set to {number}", number
        yield "as text", str(old)
    elif isinstance(old, str):
        yield from _texts(old)
    elif isinstance(old, list):
        yield "reversed", old[::-1]
        yield "turned", old[1:] + old[:1]
        yield "emptied", []
        yield "twice", old + old
        yield "in a list", [old]
        for at in range(len(old) - 1):
            yield f"with {at} swapped", [*old[:at], old[at + 1], old[at], *old[at + 2 :]]
    elif isinstance(old, bool):
        yield "turned round", not old


def _texts(old: str) -> Iterator[tuple[str, Any]]:
    yield "in a list", [old]
    for at in {0, len(old) // 2, max(len(old) - 1, 0)}:
        if at < len(old):
            other = "1" if old[at] != "1" else "2"
            yield f"with letter {at} changed", old[:at] + other + old[at + 1 :]
            yield f"without letter {at}", old[:at] + old[at + 1 :]
    yield "with a letter more", old + "0"
    yield "with a space before", " " + old
    yield "with a line more", old + "\n"
    yield "in the other case", old.swapcase()
    yield "with a surrogate", old + "\ud800"
    if old.isdigit():
        yield "as number", int(old)


def same(one: Any, other: Any) -> bool:
    """Equal, and written alike: True is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return bool(one.keys() == other.keys()) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def changed(value: Any, path: Path, new: Any) -> Any:
    """The value with something else in one place."""
    if not path:
        return copy.deepcopy(new)
    result, holder = _opened(value, path)
    holder[path[-1]] = copy.deepcopy(new)
    return result


def _without(value: Any, path: Path) -> Any:
    result, holder = _opened(value, path)
    del holder[path[-1]]
    return result


def _doubled(value: Any, path: Path) -> Any:
    result, holder = _opened(value, path)
    holder.insert(path[-1], copy.deepcopy(holder[path[-1]]))
    return result


def _opened(value: Any, path: Path) -> tuple[Any, Any]:
    """A copy of the value, of which only what lies on the path is new, and the holder of the last step."""
    result = holder = copy.copy(value)
    for key in path[:-1]:
        holder[key] = copy.copy(holder[key])
        holder = holder[key]
    return result, holder


def byte_mutations(data: bytes, *, every: int = 1) -> Iterator[tuple[str, bytes]]:
    """Each byte flipped, left out, doubled, and one put before it."""
    for at in range(0, len(data), every):
        for bit in (0x01, 0x20, 0x80):
            yield f"byte {at} ^ {bit}", data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        yield f"without byte {at}", data[:at] + data[at + 1 :]
        yield f"byte {at} twice", data[:at] + data[at : at + 1] + data[at:]
        yield f"a space at {at}", data[:at] + b" " + data[at:]
        yield f"cut at {at}", data[:at]


def survivors(found: Iterator[tuple[str, Any]], accepted: Callable[[Any], bool]) -> tuple[int, list[str]]:
    """How many were tried, and what was done to those that were accepted."""
    tried, passed = 0, []
    for done, value in found:
        tried += 1
        if accepted(value):
            passed.append(done)
    return tried, passed
