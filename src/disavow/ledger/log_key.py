"""The key that signs a log: noted as a leaf when it is new, refused when it may not sign."""

from __future__ import annotations

import sqlalchemy as sa

from disavow.errors import ConfigError
from disavow.ledger.log import append, key_of, keys_of, sign_head
from disavow.ledger.schema import run
from disavow.proof.leaves import KeyLeaf
from disavow.proof.notes import Signer


def note_signer(connection: sa.Connection, signer: Signer | None, *, at: str) -> None:
    """Note a new signing key as a leaf of the log."""
    refuse_signer(connection, signer)
    if signer is not None and signer.public != key_of(connection):
        append(connection, KeyLeaf(key=signer.public, at=at))
        sign_head(connection, connection.execute(sa.select(run.c.run_id)).scalar_one(), signer)


def refuse_signer(connection: sa.Connection, signer: Signer | None) -> None:
    """Refuse a key that may not sign this run's log, and none where the log is signed."""
    current = key_of(connection)
    if signer is None and current is not None:
        raise ConfigError(
            f"this run's log is signed with key {current.id[:16]} of {current.name}, which is not here; "
            "point DISAVOW_KEYS to the folder that holds it"
        )
    if signer is not None and signer.public != current and signer.public in keys_of(connection):
        raise ConfigError(
            f"key {signer.public.id[:16]} signed this run's log before and was replaced; "
            f"use the key that replaced it, {current.id[:16] if current else ''}"
        )
