"""The return of somebody who was forgotten: a new key, and a tombstone that says who decided it, sealed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import sqlalchemy as sa

from disavow.domain import Decision
from disavow.errors import IntegrityError, NotForgotten, UnknownClient
from disavow.ledger.clients import note_generation
from disavow.ledger.keyring import Keyring
from disavow.ledger.requests import refuse_broken_text
from disavow.ledger.rows import time_to_text
from disavow.ledger.sealed_texts import LONGEST_NAME, LONGEST_REASON, open_texts, refuse_text, seal_texts

_FIELDS = 3


def readmit(connection: sa.Connection, keyring: Keyring, client: str, decision: Decision) -> None:
    """Let somebody who was forgotten be a client again, under a new key. Its earlier slots stay nobody's.

    Args:
        connection: The ledger, for writing.
        keyring: The run's keyring; what is written to it is durable before the ledger commits.
        client: Who returns.
        decision: Who decided it, when and why.

    Raises:
        NotForgotten: It is in the run.
        UnknownClient: It never was.
        TextNamesClient: The name or the reason contains the id of a client.

    """
    refuse_broken_text(client)
    if not keyring.has_left(client):
        if keyring.find(client) is not None:
            raise NotForgotten(f"{client!r} is a client of this run, or is being erased; nothing was changed")
        raise UnknownClient(f"{client!r} never was a client of this run; nothing was changed")
    refuse_text(keyring, "the name of who decided", decision.by, longest=LONGEST_NAME)
    refuse_text(keyring, "the reason", decision.reason, longest=LONGEST_REASON)
    decisions = [*readmissions(keyring, client), decision]
    texts = [text for each in decisions for text in (time_to_text(each.at), each.by, each.reason)]
    keyring.readmit(client, seal_texts(keyring, _place(keyring.keyed_hash(client)), *texts))
    note_generation(connection, keyring)


def readmissions(keyring: Keyring, client: str) -> tuple[Decision, ...]:
    """Who decided that a client may return, when and why; nothing where it never did.

    Raises:
        IntegrityError: What its tombstone says is not what was recorded.

    """
    sealed = keyring.readmissions(client)
    if sealed is None:
        return ()
    return _decisions(keyring, keyring.keyed_hash(client), sealed)


def all_readmissions(keyring: Keyring) -> tuple[Decision, ...]:
    """Who decided that somebody may return, when and why, in the order of time.

    Raises:
        IntegrityError: What a tombstone says is not what was recorded.

    """
    found = keyring.all_readmissions().items()
    decisions = [decision for lookup, sealed in found for decision in _decisions(keyring, lookup, sealed)]
    return tuple(sorted(decisions, key=lambda decision: decision.at))


def _decisions(keyring: Keyring, lookup: bytes, sealed: bytes) -> tuple[Decision, ...]:
    texts = iter(open_texts(keyring, _place(lookup), sealed))
    each_three = zip(*[texts] * _FIELDS, strict=True)
    return tuple(Decision(by, datetime.fromisoformat(at), reason) for at, by, reason in each_three)


def check_readmissions(keyring: Keyring) -> Iterator[str]:
    """What tombstones say of returns that is not what was recorded, one sentence each; for fsck."""
    for lookup, sealed in keyring.all_readmissions().items():
        try:
            open_texts(keyring, _place(lookup), sealed)
        except IntegrityError as error:
            yield f"a tombstone is damaged: {error}"


def _place(lookup: bytes) -> str:
    return f"readmissions of {lookup.hex()}"
