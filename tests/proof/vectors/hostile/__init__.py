"""Proofs that do not hold. Where content is wrong, the right key has signed it, and a forged log's head too."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.vectors.hostile.answers import (
    models_refused,
    openings_refused,
    receipts_refused,
    several_files_refused,
    verdicts_refused,
)
from tests.proof.vectors.hostile.clusters import clusters_refused, numbers_refused, survivors_refused
from tests.proof.vectors.hostile.logs import (
    checkpoints_refused,
    histories_refused,
    policies_refused,
    revoked_keys_refused,
)
from tests.proof.vectors.hostile.rounds import rebuilt_rounds_refused, rounds_refused, times_refused
from tests.proof.vectors.hostile.short import short_refused
from tests.proof.vectors.hostile.statements import signatures_refused, statements_refused, unreadable_refused
from tests.proof.vectors.vector import Vector


def vectors() -> Iterator[Vector]:
    """By the check that refuses them."""
    yield from unreadable_refused()
    yield from signatures_refused()
    yield from statements_refused()
    yield from checkpoints_refused()
    yield from histories_refused()
    yield from policies_refused()
    yield from revoked_keys_refused()
    yield from rounds_refused()
    yield from times_refused()
    yield from rebuilt_rounds_refused()
    yield from clusters_refused()
    yield from survivors_refused()
    yield from numbers_refused()
    yield from verdicts_refused()
    yield from openings_refused()
    yield from receipts_refused()
    yield from models_refused()
    yield from several_files_refused()
    yield from short_refused()
