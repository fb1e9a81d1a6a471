"""Whether a retraining can be repeated, measured: did the survivors return the same updates from the same model?

A rollback broadcasts the model of its first round a second time. A client whose training draws come from the seed
alone returns, to the last bit, what it returned the first time, and the ledger holds the digests of both. Where
clients train elsewhere, nobody has to take their word for it.
"""

from __future__ import annotations

import sqlalchemy as sa

from disavow.domain import RequestState
from disavow.ledger import Ledger
from disavow.ledger.schema import erasures, memberships, rounds

_undone, _standing = rounds.alias(), rounds.alias()
_then, _now = memberships.alias(), memberships.alias()

_PAIRS = (
    sa.select(_then.c.update_digest == _now.c.update_digest)
    .join_from(_undone, erasures, erasures.c.id == _undone.c.superseded_by)
    .join(
        _standing,
        (_standing.c.number == _undone.c.number) & (_standing.c.before == _undone.c.before) & _standing.c.standing,
    )
    .join(_then, _then.c.round_id == _undone.c.id)
    .join(_now, (_now.c.round_id == _standing.c.id) & (_now.c.client == _then.c.client))
    .where(erasures.c.state == RequestState.REBUILDING.value, _standing.c.id > erasures.c.rounds_before)
)

_REBUILT = (
    sa.select(rounds.c.id)
    .join(erasures, rounds.c.id > erasures.c.rounds_before)
    .where(erasures.c.state == RequestState.REBUILDING.value)
    .limit(1)
)


def repetition(ledger: Ledger) -> str:
    """What to remark about the rebuild that is about to be complete; "" where every update came out the same."""
    with ledger.snapshot() as connection:
        if connection.execute(_REBUILT).first() is None:
            return ""
        same = [bool(equal) for equal in connection.execute(_PAIRS).scalars()]
    if not same:
        return "retrained, not reproducible: no survivor returned a second update from the same model"
    if all(same):
        return ""
    return (
        f"retrained, not reproducible: {same.count(False)} of {len(same)} survivors returned another update from "
        "the same model than before"
    )
