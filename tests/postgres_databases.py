"""
Migrated databases of the tests' PostgreSQL, which tests use in turn. Loaded as a plugin by `tests/conftest.py`.

To copy and to drop a database takes 60 ms; to empty the tables that a test wrote, 5 ms. A database that was used before also has the cache
file of its catalogue, which the first connection to a new one has to write.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from rookery.migrations import migrate
from tests.postgres import create_database, drop_database, template

_MAX_WAIT_MS = 5_000

_END_CONNECTIONS = """
SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""

# `xmin` is the transaction that wrote a row. TRUNCATE writes new rows of pg_class, therefore these are only counted.
_DESCRIBE = """
SELECT ARRAY[
    (SELECT format('%s %s', count(*), count(relacl)) FROM pg_class),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_attribute),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_attrdef),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_constraint),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_index),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_namespace),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_proc),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_trigger),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_extension),
    (SELECT format('%s %s', count(*), max(xmin::text::bigint)) FROM pg_statistic),
    (SELECT string_agg(format('%s %s', version_num, xmin), ' ') FROM alembic_version),
    (SELECT count(*)::text FROM pg_db_role_setting WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))
]
"""

# A table whose rows are deleted keeps the space of dead rows. TRUNCATE frees it, and takes 1 ms for each table.
_MAX_DELETED_BYTES = 256 * 1024
_FIND_WRITTEN = """
SELECT relname, pg_relation_size(oid) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0
"""

_RESTART_SEQUENCES = "SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace"


class MigratedDatabases:
    """
    Databases of one worker, each for one test at a time.

    Args:
        server: The address of the server.
        names: Names for databases that nobody else uses.
    """

    def __init__(self, server: str, names: Iterator[str]) -> None:
        self._server = server
        self._names = names
        self._free = list[tuple[str, list[str]]]()

    @contextmanager
    def lend(self, folder: Path) -> Generator[str]:
        """
        Yield the address of a migrated, empty database.

        Args:
            folder: A data folder for the migration of the template.
        """
        name, state = self._free.pop() if self._free else self._create(folder)
        yield f"{self._server}/{name}"
        if self._empty(name, state):
            self._free.append((name, state))
        else:
            drop_database(self._server, name)

    def close(self) -> None:
        """Drop the databases."""
        while self._free:
            drop_database(self._server, self._free.pop()[0])

    def _create(self, folder: Path) -> tuple[str, list[str]]:
        name = next(self._names)
        migrated = template(self._server, lambda url: migrate(url, data_dir=folder))
        with psycopg.connect(create_database(self._server, name, template=migrated), autocommit=True) as connection:
            return name, _describe(connection)

    def _empty(self, name: str, state: list[str]) -> bool:
        """Empty the tables of *name*; return False if it was changed otherwise, or is gone."""
        try:
            with psycopg.connect(f"{self._server}/{name}", autocommit=True) as connection:
                has_ended = all(row[0] for row in connection.execute(_END_CONNECTIONS, [_MAX_WAIT_MS]).fetchall())
                if not has_ended or _describe(connection) != state:
                    return False
                with connection.transaction():
                    _delete_rows(connection)
                return True
        except psycopg.Error:
            return False


def _delete_rows(connection: psycopg.Connection) -> None:
    connection.execute("SET LOCAL session_replication_role = replica")  # no triggers, and no order of foreign keys
    large = list[sql.Identifier]()
    for name, size in connection.execute(_FIND_WRITTEN).fetchall():
        if size > _MAX_DELETED_BYTES:
            large.append(sql.Identifier(name))
        else:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))
    if large:
        connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(large)))
    connection.execute(_RESTART_SEQUENCES)


def _describe(connection: psycopg.Connection) -> list[str]:
    """Return what changes with the schema or the settings of a database, and not with the rows of its tables."""
    row = connection.execute(_DESCRIBE).fetchone()
    assert row is not None
    return [str(value) for value in row[0]]


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str, postgres_names: Iterator[str]) -> Generator[MigratedDatabases]:
    """The migrated databases of this worker."""
    databases = MigratedDatabases(postgres_server, postgres_names)
    yield databases
    databases.close()


@pytest.fixture
def postgres_database(postgres_databases: MigratedDatabases, tmp_path: Path) -> Generator[str]:
    """The address of a migrated, empty database, which no other test uses at the same time."""
    with postgres_databases.lend(tmp_path) as address:
        yield address
