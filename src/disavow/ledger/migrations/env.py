"""Run migrations on the connection that `ledger.database.migrate` hands over."""

from alembic import context

from disavow.ledger.schema import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
context.run_migrations()
