"""Rebuilt rounds: rows in, and the model that their contributions make.

A rebuilt round stands in `rounds` like any other, with no clusters; `rebuilt` says what it was made from. Its slots
hold what each survivor contributed to it, and all of that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from disavow.domain import VARIANCE_FLOOR, Layout, Policy, Rebuilt
from disavow.errors import RoundRefused
from disavow.ledger import log, rows, updates
from disavow.ledger.members import RoundKeys
from disavow.ledger.models import Vector
from disavow.ledger.schema import events, memberships, rebuilt, rounds, slots
from disavow.ledger.updates import KeptFile
from disavow.privacy.events import event_of_rebuilt


def model_from(layout: Layout, before: Vector, contributions: Sequence[Vector], samples: Sequence[int]) -> Vector:
    """The model of a rebuilt round: the one before it, and the contributions averaged by data share.

    Sums run in float64 in the order given, which is that of ids; running variances are floored as in any round.
    """
    import numpy as np

    total = sum(samples)
    step = np.zeros(layout.size, dtype=np.float64)
    for count, contribution in zip(samples, contributions, strict=True):
        step += count / total * contribution.astype(np.float64)
    after = (before.astype(np.float64) + step).astype(np.float32)
    for start, end in layout.variances():
        np.maximum(after[start:end], np.float32(VARIANCE_FLOOR), out=after[start:end])
    return after


def insert(
    connection: sa.Connection,
    record: Rebuilt,
    *,
    run_id: str,
    policy: Policy,
    by: RoundKeys,
    noted: Mapping[str, float | str | None],
    kept: Mapping[str, KeptFile],
) -> None:
    """Store the rows of a rebuilt round, its event, what is kept of it, and its leaf in the log.

    `by` is the round's name, with the keys of its participants.
    `noted` is what its row holds beside the record: its `seconds`, and its `trainer`.
    """
    _refuse_undone(connection, record)
    filled, parts = rows.slot_rows([record.slots], by)
    header: rows.Row = {
        "number": record.number,
        "attempt": record.attempt,
        "before": record.before,
        "after": record.after,
        "delta": 0.0,
        "update_norm": 0.0,
        "pairs_within": 0.0,
        "tau": 0.0,
        "participants": len(record.slots),
        "clusters": 0,
        "recorded_at": rows.time_to_text(record.recorded_at),
        "epoch": by.epoch,
        "nonce": by.where.nonce,
        "standing": True,
        **noted,
    }
    made = {"mechanism": record.mechanism, "source": record.source, "epochs": record.epochs}
    header["digest"] = rows.rebuilt_digest(run_id, header, made, parts["slots"])
    round_id = connection.execute(rounds.insert().values(header).returning(rounds.c.id)).scalar_one()
    connection.execute(rebuilt.insert().values(round_id=round_id, **made))
    for table in (slots, memberships):
        connection.execute(table.insert(), [{"round_id": round_id, **row} for row in parts[table.name]])
    updates.insert(connection, round_id, filled, kept)
    event = event_of_rebuilt(policy, number=record.number, attempt=record.attempt)
    connection.execute(events.insert().values(rows.event_row(event, round_id)))
    log.log_rebuilt(connection, round_id, header, record.mechanism, parts["slots"])


def _refuse_undone(connection: sa.Connection, record: Rebuilt) -> None:
    """A model that was undone holds a leaver; coming to the same one again means that nothing was rebuilt."""
    same = sa.select(rounds.c.id).where(~rounds.c.standing, rounds.c.after == record.after)
    if record.after != record.before and connection.execute(same).first():
        message = f"round {record.number} refused: it was rebuilt to a model that was undone; nothing was recorded"
        raise RoundRefused(message, nameless=message)
