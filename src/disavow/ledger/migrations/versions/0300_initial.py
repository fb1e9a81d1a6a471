"""The first format: every table of the schema.

Nothing was released in it, so it is made from the schema as it is. The first release freezes it: from then on each
change of the schema is a migration of its own.
"""

from alembic import op

from disavow.ledger.schema import metadata

revision = "0300"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
