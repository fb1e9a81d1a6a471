"""Events: what each round released, for the privacy account; filled in for the rounds that are there.

In the same transaction: an account read from half of the events would be too small.
"""

import json
import math

import sqlalchemy as sa
from alembic import op

from disavow.errors import LedgerError
from disavow.ledger.rows import event_checksum

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    events = op.create_table(
        "events",
        sa.Column("round_id", sa.Integer, sa.ForeignKey("rounds.id"), primary_key=True),
        sa.Column("mode", sa.String, nullable=False),
        sa.Column("clip", sa.Float),
        sa.Column("tau", sa.Float),
        sa.Column("rate", sa.Float, nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.Column("squares", sa.Float, nullable=False),
        sa.Column("clusters", sa.Integer, nullable=False),
        sa.Column("fixed", sa.Boolean, nullable=False),
        sa.Column("predictable", sa.Boolean, nullable=False),
        sa.Column("checksum", sa.LargeBinary, nullable=False),
    )
    connection = op.get_bind()
    text = connection.execute(sa.text("SELECT policy FROM run")).scalar()
    if text is None:
        return  # a ledger that is just coming into being
    try:
        rows = _events(connection, json.loads(text))
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise LedgerError(f"the ledger is damaged, so it cannot be migrated: {error}") from error
    if rows:
        op.bulk_insert(events, rows)


def _events(connection: sa.Connection, policy: dict[str, object]) -> list[dict[str, object]]:
    """One for each round, superseded ones too: their clusters are kept."""
    names = ("clip", "tau") if policy["noise"] == "calibrated" else ()
    lengths = {name: float(str(policy[name])) for name in names}
    found: list[dict[str, object]] = []
    for (round_id,) in connection.execute(sa.text("SELECT id FROM rounds ORDER BY id")).all():
        query = sa.text("SELECT size, weight FROM clusters WHERE round_id = :round_id")
        clusters = connection.execute(query, {"round_id": round_id}).all()
        row = {
            "round_id": round_id,
            "mode": policy["noise"],
            "clip": lengths.get("clip"),
            "tau": lengths.get("tau"),
            "rate": 1 / min(size for size, _ in clusters),
            "weight": max(weight for _, weight in clusters),
            "squares": math.fsum(weight * weight for _, weight in clusters),
            "clusters": len(clusters),
            "fixed": policy["clustering"] == "fixed",
            "predictable": policy["draws"] == "seeded",
        }
        found.append({**row, "checksum": event_checksum(row)})
    return found
