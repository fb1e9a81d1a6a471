"""The log: an append-only Merkle tree over what happened, with its signed heads."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log",
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("leaf", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("round_id", sa.Integer, sa.ForeignKey("rounds.id"), unique=True),
        sa.Column("erasure", sa.Integer, sa.ForeignKey("erasures.id")),
        sa.Column("clusters", sa.LargeBinary),
        sa.Column("list_key", sa.LargeBinary),
        sa.Column("head", sa.Text),
    )
    op.add_column("requests", sa.Column("rounds_salt", sa.LargeBinary))
    op.add_column("requests", sa.Column("client_salt", sa.LargeBinary))
    op.add_column("withdrawals", sa.Column("salt", sa.LargeBinary))
