"""
The tables of `texts.db`: the documents, and a full-text table (FTS5) for each workspace. No queries.

bm25 counts the documents and lengths of a whole FTS5 table, so a table for all workspaces would show each of them how many memories the
others have with a word, and would rank its own by it. SQLite opens a file more slowly with the square of the number of such tables: 0.4 s
with a thousand. Workspaces beyond `MAX_TABLES` therefore share one.

A full-text table stores no text and reads it from the documents (external content). A deletion must therefore pass the indexed text to
FTS5; SQLite before 3.43 has no other way.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import orjson

from rookery.engines.texts.query import index_tokens
from rookery.engines.texts.words import describe_context
from rookery.kernel.clock import to_micros
from rookery.kernel.languages import to_stem_terms
from rookery.kernel.tokenization import to_index_text
from rookery.memory.models import IndexDocument

MAX_TABLES = 1_000
"""Maximum workspaces with a full-text table of their own."""

_FORMAT = 3
"""Version of the tables below, stored in `PRAGMA user_version`."""
_NEW_FILE_FORMAT = 0

_SHARED_TABLE = "fts_shared"

_CREATE = (
    """
    CREATE TABLE IF NOT EXISTS document (
        id INTEGER PRIMARY KEY, workspace_id INTEGER NOT NULL, memory_id TEXT NOT NULL,
        org TEXT, project TEXT, agent_id TEXT, session_id TEXT, memory_scope TEXT NOT NULL,
        type TEXT NOT NULL, tags TEXT NOT NULL, confidence REAL NOT NULL, source TEXT NOT NULL,
        created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, expires_at INTEGER,
        content TEXT NOT NULL, context TEXT NOT NULL, tokens TEXT NOT NULL,
        UNIQUE (workspace_id, memory_id)
    )
    """,
    "CREATE INDEX IF NOT EXISTS document_expiring ON document (workspace_id, expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS document_rows ON document (workspace_id)",
    "CREATE TABLE workspace (id INTEGER PRIMARY KEY, table_name TEXT NOT NULL, written INTEGER NOT NULL, covered INTEGER NOT NULL)",
    "CREATE TABLE gone (row INTEGER PRIMARY KEY, workspace_id INTEGER NOT NULL)",
    "CREATE INDEX gone_rows ON gone (workspace_id)",
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "INSERT INTO counter SELECT 'last_row', coalesce(max(id), 0) FROM document",
    "INSERT INTO counter VALUES ('identity', lower(hex(randomblob(8))))",
)
"""
`workspace` has the full-text table of each workspace, the number of documents that it has ever written, and the last row that its cache
may have; `gone` has the deleted rows among these; `counter` has the last row number ever used, which is never used again, and the identity
of the file.
"""

_COLUMNS = """
    id, content, context, tokens, workspace_id, memory_id, org, project, agent_id, session_id, memory_scope, type, tags, confidence, source,
    created_at, updated_at, expires_at
"""
_FIND = "SELECT id, content, context, tokens FROM document WHERE workspace_id = ? AND memory_id = ?"
_READ = f"SELECT {_COLUMNS} FROM document WHERE workspace_id = ? AND memory_id = ?"  # noqa: S608 - own words
_PUT = f"INSERT OR REPLACE INTO document ({_COLUMNS}) VALUES ({', '.join('?' * 18)})"  # noqa: S608 - own words
_LAST_ROW = "SELECT value FROM counter WHERE name = 'last_row'"
_RECORD_DELETED = "INSERT OR IGNORE INTO gone SELECT ?, id FROM workspace WHERE id = ? AND covered >= ?"
_FIND_TABLE = "SELECT table_name FROM workspace WHERE id = ?"
_LIST_EMPTY = """
SELECT id, table_name FROM workspace WHERE NOT EXISTS (SELECT 1 FROM document WHERE document.workspace_id = workspace.id) LIMIT ?
"""


def create_tables(connection: sqlite3.Connection) -> None:
    """
    Create the tables of a new file.

    Raises:
        sqlite3.DatabaseError: The file has another format.
    """
    version = _read_format(connection)
    if version == _FORMAT:
        return
    if version != _NEW_FILE_FORMAT:
        raise sqlite3.DatabaseError(f"its format is {version}, ours is {_FORMAT}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _read_format(connection) != _FORMAT:  # another process may have created them meanwhile
            for statement in _CREATE:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def find_table(connection: sqlite3.Connection, workspace_id: int) -> str | None:
    """Return the full-text table of a workspace; None if it has no documents."""
    row = connection.execute(_FIND_TABLE, (workspace_id,)).fetchone()
    return None if row is None else str(row[0])


def list_tables(connection: sqlite3.Connection) -> list[str]:
    """Return the full-text tables."""
    return [str(name) for (name,) in connection.execute("SELECT DISTINCT table_name FROM workspace").fetchall()]


def put_documents(connection: sqlite3.Connection, documents: Sequence[IndexDocument], *, is_early: bool, max_tables: int) -> None:
    """Write documents. If *is_early*, only over older versions."""
    last = initial_last = int(connection.execute(_LAST_ROW).fetchone()[0])
    new_counts = Counter[int]()
    for document in documents:
        workspace_id = document.workspace_id
        row = connection.execute(_READ, (workspace_id, document.memory_id)).fetchone()
        if is_early and row is not None and row[-2] >= to_micros(document.updated_at):
            continue
        values = _row_values(document)
        if row is not None and row[1:4] == values[:3]:
            # Unchanged since an earlier put, as most documents are when their job runs.
            if row[1:] != values:
                connection.execute(_PUT, (row[0], *values))
            continue
        table = _add_workspace(connection, workspace_id, max_tables)
        if row is not None:
            _delete_row(connection, table, workspace_id, row[:4])
        last += 1
        connection.execute(_PUT, (last, *values))
        connection.execute(f"INSERT INTO {table} (rowid, content, context, tokens) VALUES (?, ?, ?, ?)", (last, *values[:3]))  # noqa: S608
        new_counts[workspace_id] += 1
    if last > initial_last:
        connection.execute("UPDATE counter SET value = ? WHERE name = 'last_row'", (last,))
        connection.executemany(
            "UPDATE workspace SET written = written + ? WHERE id = ?", [(count, id_) for id_, count in new_counts.items()]
        )


def drop_documents(connection: sqlite3.Connection, workspace_id: int, ids: Collection[str]) -> None:
    """Delete documents. Unknown ids are ignored."""
    table = find_table(connection, workspace_id)
    if table is None:
        return
    for memory_id in ids:
        row = connection.execute(_FIND, (workspace_id, memory_id)).fetchone()
        if row is not None:
            _delete_row(connection, table, workspace_id, row)


def drop_empty_tables(connection: sqlite3.Connection, *, limit: int) -> int:
    """Drop the tables of at most *limit* workspaces that have no documents any longer; return the number of these workspaces."""
    empty = connection.execute(_LIST_EMPTY, (limit,)).fetchall()
    for workspace_id, table in empty:
        connection.execute("DELETE FROM workspace WHERE id = ?", (workspace_id,))
        if table != _SHARED_TABLE:
            connection.execute(f"DROP TABLE {table}")
    return len(empty)


def forget_deleted_rows(connection: sqlite3.Connection) -> None:
    """Delete the records of deleted rows of workspaces that have no tables. Their caches must be deleted before."""
    connection.execute("DELETE FROM gone WHERE workspace_id NOT IN (SELECT id FROM workspace)")


def merge_table(connection: sqlite3.Connection, table: str, pages: int) -> int:
    """Merge *pages* pages of the segments of a table, which removes deleted words; return the number of changed rows."""
    before = connection.total_changes
    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))  # noqa: S608 - own words
    return connection.total_changes - before


def _read_format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _add_workspace(connection: sqlite3.Connection, workspace_id: int, max_tables: int) -> str:
    """Return the full-text table of a workspace, which is created if it is missing."""
    table = find_table(connection, workspace_id)
    if table is None:
        (count,) = connection.execute("SELECT count(*) FROM workspace WHERE table_name <> ?", (_SHARED_TABLE,)).fetchone()
        table = f"fts_{int(workspace_id)}" if count < max_tables else _SHARED_TABLE
        connection.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5 "
            "(content, context, tokens, content = 'document', content_rowid = 'id', tokenize = 'porter unicode61')"
        )
        connection.execute("INSERT INTO workspace VALUES (?, ?, 0, 0)", (workspace_id, table))
    return table


def _delete_row(connection: sqlite3.Connection, table: str, workspace_id: int, row: tuple[int, str, str, str]) -> None:
    connection.execute(f"INSERT INTO {table} ({table}, rowid, content, context, tokens) VALUES ('delete', ?, ?, ?, ?)", row)  # noqa: S608
    connection.execute("DELETE FROM document WHERE id = ?", row[:1])
    connection.execute(_RECORD_DELETED, (row[0], workspace_id, row[0]))


def _row_values(document: IndexDocument) -> tuple[object, ...]:
    """Return the values of `_COLUMNS`, without the id."""
    return (*_iter_texts(document), *_iter_fields(document))


def _iter_texts(document: IndexDocument) -> Iterator[str]:
    # Stems are in the context, since phrases and exclusions apply to the content alone.
    stem_terms = to_stem_terms(document.content)
    yield to_index_text(document.content)
    yield " ".join((to_index_text(describe_context(document)), *stem_terms))
    yield index_tokens(document, has_stems=bool(stem_terms))


def _iter_fields(document: IndexDocument) -> Iterator[object]:
    yield from (document.workspace_id, document.memory_id, document.org, document.project, document.agent_id, document.session_id)
    yield from (document.memory_scope.value, document.type, orjson.dumps(document.tags).decode(), document.confidence, document.source)
    yield from (to_micros(document.created_at), to_micros(document.updated_at))
    yield None if document.expires_at is None else to_micros(document.expires_at)
