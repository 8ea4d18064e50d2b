"""The environment that alembic runs: it migrates the connection from `upgrade`."""

from alembic import context
from sqlalchemy import Connection

from rookery.kernel.db import metadata


def _run() -> None:
    connection = context.config.attributes["connection"]
    if not isinstance(connection, Connection):
        raise TypeError(connection)
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
    context.run_migrations()


_run()
