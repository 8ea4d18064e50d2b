"""The tables of `vectors.db`, and the migration of earlier formats."""

from __future__ import annotations

import sqlite3

SCHEMA_VERSION = 2
"""Version of the tables below, stored in `PRAGMA user_version`."""

_ENTRY = """
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
CREATE TABLE IF NOT EXISTS serving (
    workspace_id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS retired (
    workspace_id INTEGER NOT NULL,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    change INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, model, dimension)
) WITHOUT ROWID;
"""
"""`serving`: the active model of each workspace. `retired`: models whose vectors up to a change are deleted (D-54)."""

# Format 1 had a constraint that allowed vectors of one model per memory. SQLite can remove a constraint only together with its table.
# Changes and chunks keep their numbers. The active model is not stored: it is the one with the most vectors.
_MIGRATE_FROM_1 = f"""
DROP INDEX IF EXISTS entry_by_change;
DROP INDEX IF EXISTS entry_dropped;
ALTER TABLE entry RENAME TO entry_1;
{_ENTRY}
INSERT INTO entry SELECT * FROM entry_1 ORDER BY change;
UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM sqlite_sequence) WHERE name = 'entry';
DROP TABLE entry_1;
{_OTHER_TABLES}
INSERT OR IGNORE INTO serving (workspace_id, model, dimension)
SELECT workspace_id, model, dimension FROM entry WHERE model IS NOT NULL
GROUP BY workspace_id, model, dimension ORDER BY workspace_id, count(*) DESC, model;
"""  # noqa: S608 - contains only constants


def create_schema(connection: sqlite3.Connection) -> None:
    """
    Create missing tables. Blocks while another process does.

    Raises:
        sqlite3.Error: The database failed, or its format is newer than `SCHEMA_VERSION`.
    """
    if _get_version(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _get_version(connection)
        if version not in {0, 1, SCHEMA_VERSION}:
            raise sqlite3.DatabaseError(f"its format is {version}, ours is {SCHEMA_VERSION}")  # noqa: TRY301 - rolled back below
        if version != SCHEMA_VERSION:
            for statement in (_MIGRATE_FROM_1 if version else _ENTRY + _OTHER_TABLES).split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _get_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
