"""Retention: which models were thinned, which rounds repeat clusters, and where a rollback broke."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("thinned", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("rounds", sa.Column("repeats", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("erasures", sa.Column("broken", sa.Integer))
