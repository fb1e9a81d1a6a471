"""Erasures: requests, their journal, and the slots that were withdrawn."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("tombstone_key", sa.String))
    op.add_column("models", sa.Column("present", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("rounds", sa.Column("superseded_by", sa.Integer))
    op.add_column("rounds", sa.Column("seconds", sa.Float))
    op.create_index("ix_clusters_round_id_first_slot", "clusters", ["round_id", "first_slot"], unique=True)
    op.create_table(
        "erasures",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("rollback_to", sa.Integer),
        sa.Column("target", sa.Integer),
        sa.Column("rounds_before", sa.Integer, nullable=False),
        sa.Column("mechanism", sa.String, nullable=False),
        sa.Column("opened_at", sa.String, nullable=False),
        sa.Column("finished_at", sa.String),
        sa.Column("rounds", sa.Integer, nullable=False, server_default="0"),
        sa.Column("client_epochs", sa.Integer, nullable=False, server_default="0"),
        sa.Column("exchanged_bytes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("seconds", sa.Float, nullable=False, server_default="0"),
        sa.Column("remark", sa.Text, nullable=False, server_default=""),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("client", sa.BigInteger, sa.ForeignKey("clients.number")),
        sa.Column("tombstone", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("asked_at", sa.String, nullable=False),
        sa.Column("stream_round", sa.Integer, unique=True),
        sa.Column("erasure", sa.Integer, sa.ForeignKey("erasures.id")),
        sa.Column("verdict", sa.String),
        sa.Column("checksum", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_requests_client", "requests", ["client"])
    op.create_index("ix_requests_erasure", "requests", ["erasure"])
    op.create_table(
        "withdrawals",
        sa.Column("round_id", sa.Integer, primary_key=True),
        sa.Column("slot", sa.Integer, primary_key=True),
        sa.Column("erasure", sa.Integer, sa.ForeignKey("erasures.id"), nullable=False),
        sa.ForeignKeyConstraint(["round_id", "slot"], ["slots.round_id", "slots.slot"]),
        sqlite_with_rowid=False,
    )
