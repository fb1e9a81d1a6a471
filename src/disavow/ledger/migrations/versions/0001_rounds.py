"""The first format: a run, its models, clients, rounds, clusters, slots and memberships."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "models",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("stored_bytes", sa.Integer, nullable=False),
    )
    op.create_table(
        "run",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("created_at", sa.String, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("layout", sa.Text, nullable=False),
        sa.Column("initial_model", sa.String, sa.ForeignKey("models.digest"), nullable=False),
        sa.Column("settings_digest", sa.String, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "clients",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.String, nullable=False, unique=True),
    )
    op.create_table(
        "rounds",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("before", sa.String, sa.ForeignKey("models.digest"), nullable=False),
        sa.Column("after", sa.String, sa.ForeignKey("models.digest"), nullable=False),
        sa.Column("delta", sa.Float, nullable=False),
        sa.Column("participants", sa.Integer, nullable=False),
        sa.Column("clusters", sa.Integer, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("recorded_at", sa.String, nullable=False),
        sa.Column("standing", sa.Boolean, nullable=False),
        sa.UniqueConstraint("number", "attempt"),
        sqlite_autoincrement=True,
    )
    standing = sa.text("standing")
    op.create_index(
        "ix_rounds_standing_number",
        "rounds",
        ["number"],
        unique=True,
        sqlite_where=standing,
        postgresql_where=standing,
    )
    op.create_table(
        "clusters",
        sa.Column("round_id", sa.Integer, sa.ForeignKey("rounds.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("first_slot", sa.Integer, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.Column("spread", sa.Float, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "slots",
        sa.Column("round_id", sa.Integer, sa.ForeignKey("rounds.id"), primary_key=True),
        sa.Column("slot", sa.Integer, primary_key=True),
        sa.Column("commitment", sa.LargeBinary, nullable=False),
        sa.Column("neighbours", sa.LargeBinary, nullable=False),
        sa.Column("listed_by", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "memberships",
        sa.Column("round_id", sa.Integer, primary_key=True),
        sa.Column("slot", sa.Integer, primary_key=True),
        sa.Column("client", sa.BigInteger, sa.ForeignKey("clients.number"), nullable=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("salt", sa.LargeBinary, nullable=False),
        sa.Column("update_digest", sa.LargeBinary, nullable=False),
        sa.Column("checksum", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(["round_id", "slot"], ["slots.round_id", "slots.slot"]),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_memberships_client_round_id", "memberships", ["client", "round_id"], unique=True)
    op.create_table(
        "evaluations",
        sa.Column("round_id", sa.Integer, sa.ForeignKey("rounds.id"), primary_key=True),
        sa.Column("accuracy", sa.Float, nullable=False),
        sa.Column("loss", sa.Float),
    )
