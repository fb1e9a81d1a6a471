"""What a file is that was given in the place of another: every kind of file of ours can be told by a few bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from disavow.errors import Unreadable

PROOF = "a proof"
OPENING = "an opening"
RECEIPT = "a receipt"

# texts inside a JSON string cannot look like these: their quotes are escaped
_MARKS = (
    (PROOF, re.compile(rb'"payloadType"\s*:')),
    (OPENING, re.compile(rb'"type"\s*:\s*"disavow/opening/')),
    (RECEIPT, re.compile(rb'"type"\s*:\s*"disavow/receipt/')),
    ("a list of keys", re.compile(rb'"type"\s*:\s*"disavow/keys/')),
    ("an unsigned statement", re.compile(rb'"predicateType"\s*:')),
    ("a checkpoint", re.compile(rb"\Adisavow/run/\S+\n")),
    ("a private key", re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a public key", re.compile(rb"\A\s*[A-Za-z0-9._:/@-]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}\s*\Z")),
)


@contextmanager
def expecting(data: bytes, wanted: str) -> Iterator[None]:
    """Read a file as one of this kind; where that fails and it is of another, say which."""
    try:
        yield
    except Unreadable:
        found = next((kind for kind, mark in _MARKS if mark.search(data)), wanted)
        if found != wanted:
            raise Unreadable(f"this is {found}, not {wanted}") from None
        raise
