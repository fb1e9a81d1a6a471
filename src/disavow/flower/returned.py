"""The updates that a node returned, by round and attempt, and whether a proof shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord

from disavow.flower.names import ATTEMPT, ROUND
from disavow.proof.opening import Opening
from disavow.proof.report import Report


@dataclass(frozen=True, order=True)
class RoundAttempt:
    """A round and the attempt at it: after a rollback the same number comes again, with a higher attempt."""

    number: int
    attempt: int

    def __str__(self) -> str:
        return f"round {self.number}" + (f" (attempt {self.attempt})" if self.attempt > 1 else "")


Returned = Mapping[RoundAttempt, Set[bytes]]
"""The digests of what a node returned; several where it was asked again and trained otherwise."""


def round_of(told: ConfigRecord) -> RoundAttempt | None:
    """The round that a message names: the one to train in, or the one that comes next; None if it names none."""
    number, attempt = told.get(ROUND), told.get(ATTEMPT)
    if _positive(number) and _positive(attempt):
        return RoundAttempt(number, attempt)
    return None


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def update_digest(before: ArrayRecord, after: ArrayRecord) -> bytes | None:
    """SHA-256 of the update between two records, as the ledger computes it; None where they do not fit.

    As `screening.read` and `ledger.updates.digest_of` do it: the floating arrays in the server's order, as float32,
    the difference as little-endian float32.
    """
    rows = []
    for name, array in before.items():
        start = array.numpy()
        if not np.issubdtype(start.dtype, np.floating):
            continue
        if name not in after:
            return None
        end = after[name].numpy()
        if end.shape != start.shape:
            return None
        rows.append((end.astype(np.float32) - start.astype(np.float32)).reshape(-1))
    return hashlib.sha256(np.concatenate(rows).astype("<f4", copy=False).tobytes()).digest() if rows else None


def model_digest(arrays: ArrayRecord) -> bytes:
    """SHA-256 of the floating arrays of a model, in the server's order."""
    digest = hashlib.sha256()
    for array in arrays.values():
        numbers = array.numpy()
        if np.issubdtype(numbers.dtype, np.floating):
            digest.update(numbers.astype("<f4").tobytes())
    return digest.digest()


@dataclass(frozen=True)
class Comparison:
    """What a proof and its opening say of the updates that a node returned, each in a sentence.

    `contradicted`: it shows what the node did not return. `left_out`: rounds of the log in which the node returned
    an update, and is not shown. `unrecorded`: rounds that the log does not hold.
    """

    contradicted: tuple[str, ...]
    left_out: tuple[str, ...]
    unrecorded: tuple[str, ...]


def compare(returned: Returned, since: int, report: Report, opening: Opening) -> Comparison:
    """Compare a verified proof and its opening with what a node returned; it noted all of it after leaf `since`."""
    history, statement = report.history, report.statement
    assert history is not None and statement is not None  # noqa: S101, PT018 - both were read when it was verified
    rounds = statement.predicate.rounds
    superseded = set(rounds.superseded if rounds else ())
    at_place = {place: RoundAttempt(leaf.number, leaf.attempt) for place, leaf in history.rounds.items()}
    opened = {at_place[each.leaf]: each.update for each in opening.rounds}
    undone = {at_place[place] for place in superseded}
    invented = [
        at for place, at in at_place.items() if place > since and at in {*opened, *undone} and at not in returned
    ]
    others = [at for at, update in opened.items() if at in returned and update not in returned[at]]
    recorded = set(at_place.values())
    return Comparison(
        contradicted=(
            *(f"the opening is of another update than this node returned in {at}" for at in sorted(others)),
            *(f"the proof shows {at}, in which this node noted no update" for at in sorted(invented)),
        ),
        left_out=tuple(
            f"the proof does not show {at}, in which this node returned an update: the server left it out of the "
            "round, or hides it"
            for at in sorted(returned)
            if at in recorded and at not in opened and at not in undone
        ),
        unrecorded=tuple(
            f"this node returned an update in {at}, and the log holds no such round: it was not recorded"
            for at in sorted(returned)
            if at not in recorded
        ),
    )
