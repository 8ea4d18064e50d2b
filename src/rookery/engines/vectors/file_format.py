"""
The tables of `vectors.db`, and the change of files that earlier versions wrote.

Each write of a memory takes the next number of a counter and replaces the previous row. A process that remembers the last number it read
finds later changes with one index range. A deleted memory leaves a tombstone row with its id. Old tombstones are deleted, and `floor` has
the number up to which. Each model reads and replaces its own rows only; a deletion removes the rows of all models.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rookery.kernel.sqlite import connect, map_file_error
from rookery.memory.ports import ModelVersion, VectorSet

T = TypeVar("T")

FORMAT_VERSION = 3
"""Version of the tables below, stored in `PRAGMA user_version`."""

_ENTRY_TABLE = """
CREATE TABLE IF NOT EXISTS entry (
    change INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id INTEGER NOT NULL,
    memory_id TEXT NOT NULL,
    model TEXT,
    dimension INTEGER,
    org TEXT,
    project TEXT,
    agent_id TEXT,
    session_id TEXT,
    memory_scope TEXT,
    type TEXT,
    source TEXT,
    tags TEXT,
    confidence REAL,
    created_at INTEGER,
    updated_at INTEGER,
    expires_at INTEGER
);
"""
_OTHER_TABLES = """
CREATE UNIQUE INDEX IF NOT EXISTS entry_of_memory ON entry (workspace_id, memory_id, model, dimension);
CREATE INDEX IF NOT EXISTS entry_by_change ON entry (workspace_id, change, model, dimension);
CREATE INDEX IF NOT EXISTS entry_dropped ON entry (change) WHERE model IS NULL;
CREATE TABLE IF NOT EXISTS chunk (
    entry INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (entry, ordinal)
);
CREATE TABLE IF NOT EXISTS floor (change INTEGER NOT NULL);
INSERT INTO floor SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM floor);
"""

# Format 2 stored which model serves each workspace, and up to which change the vectors of a retired model were to be deleted.
_SERVING_TABLE = """
CREATE TABLE IF NOT EXISTS serving (workspace_id INTEGER PRIMARY KEY, model TEXT NOT NULL, dimension INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS retired (workspace_id INTEGER, model TEXT, dimension INTEGER, change INTEGER);
"""

# Format 1 had a constraint that allowed vectors of one model per memory. SQLite can remove a constraint only together with its table.
# Changes and chunks keep their numbers. The active model was not stored: it is the one with the most vectors.
_MIGRATE_FROM_1 = f"""
DROP INDEX IF EXISTS entry_by_change;
DROP INDEX IF EXISTS entry_dropped;
ALTER TABLE entry RENAME TO entry_1;
{_ENTRY_TABLE}
INSERT INTO entry SELECT * FROM entry_1 ORDER BY change;
UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM sqlite_sequence) WHERE name = 'entry';
DROP TABLE entry_1;
{_OTHER_TABLES}
{_SERVING_TABLE}
INSERT OR IGNORE INTO serving (workspace_id, model, dimension)
SELECT workspace_id, model, dimension FROM entry WHERE model IS NOT NULL
GROUP BY workspace_id, model, dimension ORDER BY workspace_id, count(*) DESC, model;
"""  # noqa: S608 - contains only constants
_SCRIPTS = {0: _ENTRY_TABLE + _OTHER_TABLES, 1: _MIGRATE_FROM_1, 2: _SERVING_TABLE}
"""The statements that change a file of each earlier format. `VectorFileHistory` removes the tables of format 2."""

_HAS_HISTORY = "SELECT count(*) FROM sqlite_master WHERE name IN ('serving', 'retired')"
_LIST_ACTIVE = "SELECT workspace_id, model, dimension FROM serving"
# A retired model that has later vectors is in use again, and its older vectors do no harm: they are replaced before it serves.
_LIST_SETS = """
SELECT e.workspace_id, e.model, e.dimension, max(e.change) <= coalesce(max(r.change), -1)
FROM entry AS e LEFT JOIN retired AS r ON r.workspace_id = e.workspace_id AND r.model = e.model AND r.dimension = e.dimension
WHERE e.model IS NOT NULL GROUP BY e.workspace_id, e.model, e.dimension
"""


def create_tables(connection: sqlite3.Connection) -> None:
    """
    Create missing tables, and change a file of an earlier format. Blocks while another process does.

    Raises:
        sqlite3.Error: The database failed, or its format is newer than `FORMAT_VERSION`.
    """
    if _get_version(connection) == FORMAT_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _get_version(connection)
        if version != FORMAT_VERSION:
            if version not in _SCRIPTS:
                raise sqlite3.DatabaseError(f"its format is {version}, ours is {FORMAT_VERSION}")  # noqa: TRY301 - rolled back below
            for statement in _SCRIPTS[version].split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _get_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


class VectorFileHistory:
    """The sets that earlier versions of Rookery recorded in `vectors.db` (a `VectorSetHistory`)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> list[VectorSet]:
        return await asyncio.to_thread(self._run, _read_sets) or []

    async def clear(self) -> None:
        await asyncio.to_thread(self._run, _drop_tables)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of *work*; None if there is nothing recorded."""
        if not self._path.exists():
            return None
        try:
            with contextlib.closing(connect(self._path)) as connection:
                create_tables(connection)
                return work(connection) if connection.execute(_HAS_HISTORY).fetchone()[0] else None
        except sqlite3.Error as error:
            raise map_file_error("vectors", self._path, error) from error


def _read_sets(connection: sqlite3.Connection) -> list[VectorSet]:
    active = {(row[0], ModelVersion(model=row[1], dimension=row[2])) for row in connection.execute(_LIST_ACTIVE)}
    retired = {(row[0], ModelVersion(model=row[1], dimension=row[2])): bool(row[3]) for row in connection.execute(_LIST_SETS)}
    return [
        VectorSet(workspace_id=key[0], version=key[1], is_active=key in active, is_retired=retired.get(key, False) and key not in active)
        for key in sorted(active | retired.keys(), key=lambda key: (key[0], key[1].model, key[1].dimension))
    ]


def _drop_tables(connection: sqlite3.Connection) -> None:
    for table in ("serving", "retired"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
