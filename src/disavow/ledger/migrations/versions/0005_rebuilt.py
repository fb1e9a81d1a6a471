"""Rebuilt rounds, which have no clusters, and the updates that a run keeps to rebuild them from."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rebuilt",
        sa.Column("round_id", sa.Integer, sa.ForeignKey("rounds.id"), primary_key=True),
        sa.Column("mechanism", sa.String, nullable=False),
        sa.Column("source", sa.Integer, sa.ForeignKey("rounds.id"), nullable=False, unique=True),
        sa.Column("epochs", sa.Integer, nullable=False),
    )
    op.create_table(
        "updates",
        sa.Column("round_id", sa.Integer, primary_key=True),
        sa.Column("slot", sa.Integer, primary_key=True),
        sa.Column("stored_bytes", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(["round_id", "slot"], ["memberships.round_id", "memberships.slot"]),
        sqlite_with_rowid=False,
    )
