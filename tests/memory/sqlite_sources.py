"""SQLite files in the forms of other programs, for tests of imports."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

MCP_MEMORY_SERVICE = """
CREATE TABLE memories (id INTEGER PRIMARY KEY, content_hash TEXT UNIQUE NOT NULL, content TEXT, tags TEXT, memory_type TEXT,
    metadata TEXT, created_at REAL, updated_at REAL, created_at_iso TEXT, updated_at_iso TEXT, deleted_at REAL,
    store TEXT DEFAULT 'default', parent_id TEXT, version INTEGER DEFAULT 1, confidence REAL DEFAULT 1.0, superseded_by TEXT)
"""
LANGGRAPH = """
CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value text NOT NULL, created_at TIMESTAMP, updated_at TIMESTAMP,
    expires_at TIMESTAMP, ttl_minutes REAL, PRIMARY KEY (prefix, key));
CREATE TABLE store_migrations (v INTEGER PRIMARY KEY)
"""
MEM0_HISTORY = """
CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, created_at DATETIME,
    updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)
"""
CHROMA = """
CREATE TABLE segments (id TEXT PRIMARY KEY, type TEXT, scope TEXT, collection TEXT);
CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT, embedding_id TEXT, seq_id BLOB, created_at TIMESTAMP);
CREATE TABLE embedding_metadata (id INTEGER, key TEXT, string_value TEXT, int_value INTEGER, float_value REAL, bool_value INTEGER)
"""
MEMORI = """
CREATE TABLE memori_entity (id INTEGER PRIMARY KEY, uuid TEXT, external_id TEXT);
CREATE TABLE memori_entity_fact (id INTEGER PRIMARY KEY, uuid TEXT, entity_id INTEGER, content TEXT, content_embedding BLOB,
    num_times INTEGER, date_last_time TEXT, uniq TEXT, date_created TEXT, date_updated TEXT)
"""
OPEN_WEBUI = "CREATE TABLE memory (id TEXT PRIMARY KEY, user_id TEXT, content TEXT, updated_at BIGINT, created_at BIGINT)"
BASIC_MEMORY = "CREATE TABLE entity (id INTEGER PRIMARY KEY, permalink TEXT, file_path TEXT, created_at DATETIME, updated_at DATETIME)"


def write_database(path: Path, schema: str, rows: Iterable[tuple[str, Sequence[object]]]) -> Path:
    """Write a SQLite file: its tables, and rows of `table(columns)`."""
    connection = sqlite3.connect(path)
    connection.executescript(schema)
    for target, values in rows:
        connection.execute(f"INSERT INTO {target} VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608 - of the tests
    connection.commit()
    connection.close()
    return path


def write_palace(path: Path, rows: Iterable[dict[str, object]]) -> Path:
    """Write a Chroma file with one row for each entry; *id* is its id, the others are its metadata."""
    inserts: list[tuple[str, Sequence[object]]] = [("segments", ("s1", "metadata", "METADATA", "c1"))]
    for number, row in enumerate(rows, start=1):
        inserts.append(("embeddings", (number, "s1", row["id"], b"", "2026-01-01")))
        for key, value in row.items():
            cells = (None, value, None, None) if isinstance(value, int) else (value, None, None, None)
            inserts += [("embedding_metadata", (number, key, *cells))] if key != "id" else []
    return write_database(path, CHROMA, inserts)
