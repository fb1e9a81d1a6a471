"""Cosignatures in the ledger, and consistency proofs from the subtrees that each leaf keeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.ledger.cosignatures import consistency_since, cosigned_head, note_cosignatures, sizes_cosigned
from disavow.ledger.schema import cosignatures, log, metadata
from disavow.proof.cosignatures import WitnessSigner
from disavow.proof.merkle import appended, consistency_of, leaf_hash

LEAVES = [leaf_hash(bytes([number])) for number in range(66)]
ONE, TWO = (
    WitnessSigner(name, Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32))).public for name in ("1", "2")
)


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    """A log of some leaves, every other head of which is signed."""
    engine = sa.create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as connection:
        frontier: list[bytes] = []
        for place, leaf in enumerate(LEAVES):
            frontier = appended(frontier, place, leaf)
            row = {"position": place, "leaf": "{}", "hash": leaf, "frontier": b"".join(frontier)}
            connection.execute(log.insert().values({**row, "head": "note\n" if place % 2 else None}))
        yield connection
    engine.dispose()


def test_consistency_proofs_are_those_of_the_whole_log(connection: sa.Connection) -> None:
    for new in range(1, len(LEAVES) + 1):
        for old in range(1, new + 1):
            assert consistency_since(connection, old, new) == consistency_of(LEAVES[:new], old)


def test_a_cosignature_is_kept_once_and_the_last_one_counts(connection: sa.Connection) -> None:
    assert sizes_cosigned(connection, [ONE, TWO]) == {ONE: 0, TWO: 0}
    note_cosignatures(connection, 4, {ONE: "older"})
    for line in ("first", "second"):
        note_cosignatures(connection, len(LEAVES), {TWO: line, ONE: line})
    head = cosigned_head(connection)
    assert head is not None
    assert head.size == len(LEAVES)
    assert head.cosigned == "note\nsecond\nsecond\n"
    assert list(head.lines) == sorted([str(ONE), str(TWO)])
    assert connection.execute(sa.select(sa.func.count()).select_from(cosignatures)).scalar() == 3
    note_cosignatures(connection, 8, {TWO: "late"})
    assert sizes_cosigned(connection, [ONE, TWO]) == {ONE: len(LEAVES), TWO: len(LEAVES)}


def test_a_head_that_is_not_signed_is_none_to_cosign(connection: sa.Connection) -> None:
    connection.execute(log.update().where(log.c.position == len(LEAVES) - 1).values(head=None))
    assert cosigned_head(connection) is None
