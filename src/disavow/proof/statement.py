"""The statement inside a proof: an in-toto Statement v1 whose predicate is the whole story."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disavow.errors import Unreadable
from disavow.proof import canonical
from disavow.proof.envelope import LARGEST
from disavow.proof.leaves import VERDICTS, Leaf, read_leaf
from disavow.proof.reading import (
    decimal,
    digest,
    exactly,
    fields,
    figure,
    hashed,
    list_of,
    moment,
    one_of,
    optional,
    positive,
    record,
    text,
    whole,
)

STATEMENT = "https://in-toto.io/Statement/v1"
ERASURE = "urn:disavow:proof-of-deniability:v3"
WHAT_IF = "urn:disavow:what-if:v3"
MODEL = "model.safetensors"

_MOST_LEAVES = 1_000_000
_MOST_SLOTS = 1_000_000
_PATH = 64

_WITHDRAWN = {
    "leaf": positive,
    "position": whole,
    "slot": optional(whole),
    "salt": optional(hashed),
    "inner": optional(hashed),
}

CLUSTER = {
    "leaf": positive,
    "position": whole,
    "first": whole,
    "size": positive,
    "weight": decimal,
    "spread": decimal,
    "path": list_of(hashed, most=_PATH),
    "slot": whole,
    "slots": list_of(hashed, most=_MOST_SLOTS),
    "withdrawn": list_of(record(_WITHDRAWN), most=_MOST_SLOTS),
    "displacement": figure,
    "log10_odds": optional(figure),
}

TIMES: dict[str, Any] = {"asked_at": moment, "judged_at": moment, "answered_at": moment}
"""Of this request alone, in the order in which they must come."""

PREDICATE = {
    "checkpoint": text,
    "leaves": list_of(read_leaf, most=_MOST_LEAVES),
    "withdrawal": optional(positive),
    "request": optional(whole),
    "rounds": optional(record({"salt": hashed, "superseded": list_of(positive, most=_MOST_LEAVES)})),
    "maps": list_of(list_of(optional(hashed), most=_MOST_LEAVES), most=_MOST_LEAVES),
    "clusters": list_of(record(CLUSTER), most=_MOST_LEAVES),
    "bounds": record({"displacement": figure, "ratio": optional(figure), "drawn": figure}),
    "verdict": record({"kind": one_of(*VERDICTS), "from": optional(positive)}),
    "times": optional(record(TIMES)),
}


@dataclass(frozen=True)
class Statement:
    """A statement that was read: its predicate's fields turned into what they mean, its leaves also as written."""

    what_if: bool
    model: str
    predicate: dict[str, Any]
    written: list[Leaf]


def read_statement(payload: bytes) -> Statement:
    """A statement of the one version there is."""
    value = canonical.decode(payload, what="the payload", most=LARGEST)
    subject = record({"name": exactly(MODEL), "digest": record({"sha256": digest})})
    kind = value.get("predicateType") if isinstance(value, dict) else None
    if kind not in (ERASURE, WHAT_IF):
        raise Unreadable("the payload is not a statement of this version")
    found = fields(
        value,
        "the statement",
        {
            "_type": exactly(STATEMENT),
            "predicateType": exactly(kind),
            "subject": list_of(subject, most=1),
            "predicate": record(PREDICATE),
        },
    )
    if not found["subject"]:
        raise Unreadable("the statement has no subject")
    return Statement(
        what_if=kind == WHAT_IF,
        model=found["subject"][0]["digest"]["sha256"],
        predicate=found["predicate"],
        written=value["predicate"]["leaves"],
    )


def write_statement(predicate: dict[str, Any], *, model: str, what_if: bool) -> bytes:
    """The payload in canonical form."""
    return canonical.encode(
        {
            "_type": STATEMENT,
            "predicateType": WHAT_IF if what_if else ERASURE,
            "subject": [{"name": MODEL, "digest": {"sha256": model}}],
            "predicate": predicate,
        }
    )
