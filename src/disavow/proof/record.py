"""Records: frozen dataclasses whose annotations say how each field is read, checked and written.

A field's annotation names a `Codec` (``number: Positive``), another record, ``Codec | None``, or a tuple of them
with the most that are read (``Annotated[tuple[Hash, ...], AtMost(64)]``). `Record.parse` refuses a missing field,
an unknown one, and one of another type or out of bounds; a field that is marked `LEFT_OUT` may be missing, and is
None then. `Record.to_json` writes what `parse` reads, and nothing else reads as the same record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from disavow.errors import Unreadable
from disavow.proof import canonical
from disavow.proof.validation import (
    Reader,
    boolean,
    day,
    decimal,
    digest,
    exactly,
    fields,
    figure,
    from_base64,
    hashed,
    list_of,
    moment,
    one_of,
    optional,
    positive,
    run_id,
    text,
    to_base64,
    whole,
    write_decimal,
)

Writer = Callable[[Any], Any]


@dataclass(frozen=True)
class Codec:
    """How a field is read from JSON, and how it is written; with no writer, it is written as it is."""

    read: Reader[Any]
    write: Writer | None = None


@dataclass(frozen=True)
class AtMost:
    """The most entries of a list that are read."""

    count: int


@dataclass(frozen=True)
class Key:
    """The name of a field in JSON, where Python cannot have it."""

    name: str


class _LeftOut:
    """See `LEFT_OUT`."""


LEFT_OUT = _LeftOut()
"""Marks a field that is left out where it is None: records without it keep their bytes, and null is refused."""


def constant(value: str | int) -> Codec:
    """Make the codec of a field that has one value only."""
    return Codec(exactly(value))


def word(*allowed: str, also: Callable[[str], bool] | None = None) -> Codec:
    """Make the codec of a field that holds one of a few words, or another one that a package registered."""
    return Codec(one_of(*allowed, also=also))


Whole = Annotated[int, Codec(whole)]
Positive = Annotated[int, Codec(positive)]
Boolean = Annotated[bool, Codec(boolean)]
Decimal = Annotated[float, Codec(decimal, write_decimal)]
Figure = Annotated[str, Codec(figure)]
Text = Annotated[str, Codec(text)]
RunId = Annotated[str, Codec(run_id)]
Digest = Annotated[str, Codec(digest)]
Moment = Annotated[str, Codec(moment)]
Day = Annotated[str, Codec(day)]
Hash = Annotated[bytes, Codec(hashed, to_base64)]
Base64 = Annotated[bytes, Codec(from_base64, to_base64)]


@dataclass(frozen=True)
class _Fields:
    """The fields of a record: their names, how each is read by its key in JSON, and how it is written."""

    names: tuple[str, ...]
    readers: dict[str, Reader[Any]]
    writers: tuple[tuple[str, str, Writer | None], ...]
    left_out: frozenset[str]

    @classmethod
    def of(cls, record: type) -> Self:
        hints = get_type_hints(record, include_extras=True)
        declared = {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}
        keys = {name: _key(hint) or name for name, hint in declared.items()}
        codecs = {name: _codec(hint) for name, hint in declared.items()}
        return cls(
            tuple(declared),
            {keys[name]: codec.read for name, codec in codecs.items()},
            tuple((name, keys[name], codec.write) for name, codec in codecs.items()),
            frozenset(keys[name] for name, hint in declared.items() if LEFT_OUT in _metadata(hint)),
        )


class Record:
    """An object with exactly the fields of a frozen dataclass, in the order in which they are checked."""

    _fields: ClassVar[_Fields | None] = None

    @classmethod
    def _declared(cls) -> _Fields:
        """The fields of this class, found on first use: most commands read and write few kinds of records."""
        found = cls.__dict__.get("_fields")
        if found is None:
            found = cls._fields = _Fields.of(cls)
        return found

    @classmethod
    def parse(cls, value: Any, where: str) -> Self:
        """Read a record from a JSON value.

        Args:
            value: What was decoded; it may be hostile.
            where: Where it stands, for the error.

        Raises:
            Unreadable: A field is missing, unknown, of another type or out of bounds.

        """
        make: Any = cls
        declared = cls._declared()
        readers, absent = declared.readers, declared.left_out
        if absent and isinstance(value, dict):
            readers = {key: read for key, read in readers.items() if key in value or key not in absent}
        read = fields(value, where, readers)
        found: Self = make(**{name: read.get(key) for name, key, _ in declared.writers})
        return found

    def to_json(self) -> dict[str, Any]:
        """Write what `parse` reads."""
        values = self.__dict__
        return {
            key: values[name] if write is None else write(values[name])
            for name, key, write in self._declared().writers
            if key not in self._declared().left_out or values[name] is not None
        }

    def encode(self) -> bytes:
        """Write the record in canonical form: what is hashed, or signed, or a file."""
        return canonical.encode(self.to_json())


def _metadata(hint: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    return found


def _key(hint: Any) -> str | None:
    return next((each.name for each in _metadata(hint) if isinstance(each, Key)), None)


def _codec(hint: Any) -> Codec:
    """Find how a field of this annotation is read and written."""
    most = None
    if get_origin(hint) is Annotated:
        for each in hint.__metadata__:
            if isinstance(each, Codec):
                return each
            most = each.count if isinstance(each, AtMost) else most
        hint = hint.__origin__
    if get_origin(hint) in (Union, UnionType):
        [inner] = [_codec(each) for each in get_args(hint) if each is not NoneType]
        return Codec(optional(inner.read), _optional_writer(inner.write))
    if get_origin(hint) is tuple and most is not None:
        inner = _codec(get_args(hint)[0])
        return Codec(_tuple_reader(list_of(inner.read, most=most)), _list_writer(inner.write))
    if isinstance(hint, type) and issubclass(hint, Record):
        return Codec(hint.parse, hint.to_json)
    raise TypeError(f"nothing says how a field of type {hint} is read")


def _tuple_reader(read: Reader[list[Any]]) -> Reader[tuple[Any, ...]]:
    return lambda value, where: tuple(read(value, where))


def _list_writer(write: Writer | None) -> Writer:
    return list if write is None else lambda values: [write(each) for each in values]


def _optional_writer(write: Writer | None) -> Writer | None:
    return None if write is None else lambda value: None if value is None else write(value)


# -- files ---------------------------------------------------------------------------------------------------------

PROOF = "a proof"
OPENING = "an opening"
RECEIPT = "a receipt"
WORD = "a word"
SERVING = "a serving statement"

# texts inside a JSON string cannot look like these: their quotes are escaped
_MARKS = (
    (SERVING, re.compile(rb'"payloadType"\s*:\s*"application/vnd\.disavow\.serving\+json"')),
    (PROOF, re.compile(rb'"payloadType"\s*:')),
    (OPENING, re.compile(rb'"type"\s*:\s*"disavow/opening/')),
    (RECEIPT, re.compile(rb'"type"\s*:\s*"disavow/receipt/')),
    (WORD, re.compile(rb'"type"\s*:\s*"disavow/word/')),
    ("a list of keys", re.compile(rb'"type"\s*:\s*"disavow/keys/')),
    ("an unsigned statement", re.compile(rb'"predicateType"\s*:')),
    ("a checkpoint", re.compile(rb"\Adisavow/run/\S+\n")),
    ("a private key", re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a public key", re.compile(rb"\A\s*[A-Za-z0-9._:/@-]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}\s*\Z")),
)


@contextmanager
def expecting(data: bytes, wanted: str) -> Iterator[None]:
    """Read a file as one of a kind; where that fails and it is of another kind of ours, say which.

    Args:
        data: The file.
        wanted: Its kind: `PROOF`, `OPENING`, `RECEIPT`, `WORD` or `SERVING`.

    Raises:
        Unreadable: Whatever was raised inside, or what the file is instead.

    """
    try:
        yield
    except Unreadable:
        found = next((kind for kind, mark in _MARKS if mark.search(data)), wanted)
        if found != wanted:
            raise Unreadable(f"this is {found}, not {wanted}") from None
        raise
