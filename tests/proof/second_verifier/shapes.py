"""The shape of every file: which fields, of which kind."""

import re
from typing import Any

from tests.proof.second_verifier.keys import is_key
from tests.proof.second_verifier.reading import (
    ERASURES,
    MIB,
    PACKED_TYPE,
    PAYLOAD_TYPE,
    WHAT_IFS,
    Kind,
    a_string,
    boolean,
    day,
    decimal,
    digest,
    fields,
    figure,
    hashed,
    is_base64,
    list_of,
    need,
    one_of,
    optional,
    positive,
    text,
    time,
    unbase64,
    whole,
)


def run_id(value: Any) -> None:
    """The log, leaf 0."""
    need(isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value) is not None, "no run id")


def _version(value: Any) -> None:
    need(type(value) is int and value in (3, 4), "another version")


def _version_4(value: Any) -> None:
    need(type(value) is int and value == 4, "another version")


VERDICT = one_of("never present", "deniable", "rollback")
PATH = list_of(hashed, 64)
POLICY = fields(
    {
        "k": positive,
        "x": positive,
        "representatives": positive,
        "delta": optional(decimal),
        "relative_delta": optional(decimal),
        "odds": optional(decimal),
        "clustering": one_of("mdav", "constrained-kmeans", "fixed"),
        "sticky": boolean,
        "metric": one_of("l2", "cosine", "published"),
        "noise": one_of("paper", "sensitivity", "calibrated", "none"),
        "distribution": one_of("gaussian", "laplace"),
        "sigma": decimal,
        "statistics": one_of("mean", "drawn"),
        "clip": optional(decimal),
        "tau": optional(decimal),
        "draws": one_of("fresh", "seeded"),
        "mechanism": one_of("retrain", "retrain-from-scratch", "federaser"),
    }
)
REQUEST = fields(
    {"asked_at": day, "verdict": VERDICT, "client": hashed, "rounds": hashed, "records": hashed},
    may_be_missing=["records"],
)
LEAVES: dict[str, Kind] = {
    "run": fields(
        {
            "type": a_string,
            "version": _version,
            "run": run_id,
            "created_at": time,
            "initial_model": digest,
            "policy": POLICY,
            "key": optional(is_key),
            "frozen": digest,
        },
        may_be_missing=["frozen"],
    ),
    "round": fields(
        {
            "type": a_string,
            "number": positive,
            "attempt": positive,
            "before": digest,
            "after": digest,
            "delta": decimal,
            "update_norm": decimal,
            "pairs_within": decimal,
            "tau": decimal,
            "participants": positive,
            "clusters": positive,
            "root": hashed,
            "at": time,
            "version": _version_4,
        },
        may_be_missing=["version"],
    ),
    "rebuilt": fields(
        {
            "type": a_string,
            "number": positive,
            "attempt": positive,
            "before": digest,
            "after": digest,
            "mechanism": one_of("federaser"),
            "participants": positive,
            "root": hashed,
            "at": time,
        }
    ),
    "withdrawal": fields(
        {
            "type": a_string,
            "requests": list_of(REQUEST, 10_000),
            "rounds": whole,
            "root": hashed,
            "at": day,
            "slots": is_base64,
        },
        may_be_missing=["slots"],
    ),
    "rollback": fields({"type": a_string, "withdrawal": positive, "to": positive, "at": day}),
    "purge": fields({"type": a_string, "to": positive, "at": day}),
    "key": fields({"type": a_string, "key": is_key, "at": time}),
}


def log_leaf(value: Any) -> None:
    """A leaf of one of the seven types ("The log")."""
    need(isinstance(value, dict), "no leaf")
    kind = value.get("type")
    need(isinstance(kind, str) and kind in LEAVES, "no type of leaf")
    LEAVES[kind](value)


CLOSED = {
    "closed rounds": fields({"type": a_string, "rounds": is_base64}),
    "closed withdrawal": fields({"type": a_string, "digest": hashed, "slots": is_base64}),
}


def shown_leaf(value: Any) -> None:
    """A leaf, or what stands for closed ones ("Version 4", the file)."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in CLOSED:
        CLOSED[kind](value)
        if kind == "closed rounds":
            size = len(unbase64(value["rounds"]))
            need(size > 0 and size % 64 == 0, "not 64 bytes for each closed round")
    else:
        log_leaf(value)


def leaf_of_type(kind: str) -> Kind:
    """A leaf of one type."""

    def check(value: Any) -> None:
        log_leaf(value)
        need(value["type"] == kind, "a leaf of another type")

    return check


SHAPE: dict[str, Kind] = {
    "position": whole,
    "first": whole,
    "size": positive,
    "weight": decimal,
    "spread": decimal,
    "path": PATH,
}
WITHDRAWN = fields(
    {
        "leaf": positive,
        "position": whole,
        "slot": optional(whole),
        "salt": optional(hashed),
        "inner": optional(hashed),
    }
)
CLUSTER: dict[str, Kind] = {
    **SHAPE,
    "leaf": positive,
    "slot": whole,
    "slots": list_of(hashed),
    "displacement": figure,
    "log10_odds": optional(figure),
}
PREDICATE: dict[str, Kind] = {
    "checkpoint": text,
    "withdrawal": optional(positive),
    "request": optional(whole),
    "rounds": optional(fields({"salt": hashed, "superseded": list_of(positive)})),
    "bounds": fields({"displacement": figure, "ratio": optional(figure), "drawn": figure}),
    "verdict": fields({"kind": VERDICT, "from": optional(positive)}),
    "times": optional(fields({"asked_at": time, "judged_at": time, "answered_at": time})),
}
PREDICATES: dict[int, Kind] = {
    3: fields(
        {
            **PREDICATE,
            "leaves": list_of(log_leaf),
            "maps": list_of(list_of(optional(hashed))),
            "clusters": list_of(fields({**CLUSTER, "withdrawn": list_of(WITHDRAWN)})),
        }
    ),
    4: fields(
        {
            **PREDICATE,
            "leaves": list_of(shown_leaf),
            "cover": is_base64,
            "clusters": list_of(fields({**CLUSTER, "entry": optional(whole), "salt": optional(hashed)})),
            "records": fields({"count": positive, "closed": hashed, "word": hashed}, may_be_missing=["word"]),
            "purge": positive,
            "cosignatures": list_of(text, 1_000),
        },
        may_be_missing=["records", "purge", "cosignatures"],
    ),
}


def _subject(value: Any) -> None:
    need(isinstance(value, list) and len(value) == 1, "not one subject")
    fields({"name": one_of("model.safetensors"), "digest": fields({"sha256": digest})})(value[0])


STATEMENT = fields(
    {
        "_type": one_of("https://in-toto.io/Statement/v1"),
        "predicateType": one_of(*ERASURES, *WHAT_IFS),
        "subject": _subject,
        "predicate": lambda value: None,
    }
)
ENVELOPE = fields(
    {
        "payload": is_base64,
        "payloadType": one_of(PAYLOAD_TYPE, PACKED_TYPE),
        "signatures": list_of(fields({"keyid": digest, "sig": is_base64}), 1),
    }
)
OPENING = fields(
    {
        "type": one_of("disavow/opening/v1"),
        "run": run_id,
        "client": text,
        "salt": optional(hashed),
        "rounds": list_of(fields({"leaf": positive, "slot": whole, "salt": hashed, "update": hashed})),
        "records": fields({"salt": hashed, "keys": list_of(text)}),
    },
    may_be_missing=["records"],
)
SIGNED_SERVING = fields(
    {
        "payload": is_base64,
        "payloadType": one_of("application/vnd.disavow.serving+json"),
        "signatures": list_of(fields({"keyid": digest, "sig": is_base64}), 1),
    }
)
SERVING = fields(
    {
        "type": one_of("disavow/serving/v1"),
        "model": digest,
        "at": time,
        "checkpoint": text,
        "since": whole,
        "leaves": list_of(shown_leaf),
    }
)
SIGNED_WORD = fields(
    {"type": one_of("disavow/word/v1"), "payload": is_base64, "publicKey": is_base64, "signature": is_base64}
)
WORD = fields({"run": run_id, "records": hashed, "at": time, "nonce": hashed})
RECEIPT: dict[str, Kind] = {
    "type": one_of("disavow/receipt/v2"),
    "run": run_id,
    "client": text,
    "leaf": positive,
    "slot": whole,
    "salt": hashed,
    "update": hashed,
    "inclusion": PATH,
    "checkpoint": text,
}
RECEIPTS = {
    "round": fields(
        {
            **RECEIPT,
            "header": leaf_of_type("round"),
            "cluster": fields({**SHAPE, "slots": list_of(hashed, MIB)}),
        }
    ),
    "rebuilt": fields({**RECEIPT, "header": leaf_of_type("rebuilt"), "path": PATH}),
}


# "Bounds"
