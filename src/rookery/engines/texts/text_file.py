"""
`texts.db`: the documents, and an FTS5 index over them.

The index stores no text and reads it from the table (external content). A deletion must therefore pass the indexed text to FTS5; SQLite
before 3.43 has no other way.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from pathlib import Path

import orjson

from rookery.engines.texts import erasure
from rookery.engines.texts.frequencies import DocumentFrequencies
from rookery.engines.texts.fts_query import ORG_OPTIONAL_SCOPES, PROJECT_OPTIONAL_SCOPES, FtsQuery, index_tokens
from rookery.engines.texts.term_cache import TermCache
from rookery.engines.texts.visible_rows import column_conditions, filter_visible, rows_to_json
from rookery.kernel.clock import to_micros
from rookery.kernel.sqlite import SqliteWriter, connect
from rookery.kernel.tokenization import to_index_text
from rookery.memory.models import AccessFilter, IndexDocument, TextHit

_SCHEMA_VERSION = 2
"""Version of the tables below, stored in `PRAGMA user_version`."""

_CONTEXT_WEIGHT = 0.5
"""Weight of a word in type, tags, org or project, relative to a word in the text."""

_PROGRESS_STEPS = 10_000
"""Instructions of SQLite's virtual machine between two checks of the time; about a millisecond."""

_MAX_IDLE_READERS = 8

_CACHE_READ_TIMEOUT_S = 60.0

_COUNT_S = 60.0
"""Timeout in seconds. Counting reads an index of the whole workspace."""

_MMAP_BYTES = 2**31 - 2**16
"""
Bytes of the file that readers map; SQLite's maximum.

The rows of a result are spread over the file, and a lookup in the map costs a third of a read (0.3 and 0.8 ms for 120 of a million rows).
Mapped pages belong to the page cache of the system, not to this process.
"""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS document (
    id INTEGER PRIMARY KEY,
    workspace_id INTEGER NOT NULL,
    memory_id TEXT NOT NULL,
    org TEXT,
    project TEXT,
    agent_id TEXT,
    session_id TEXT,
    memory_scope TEXT NOT NULL,
    type TEXT NOT NULL,
    tags TEXT NOT NULL,
    confidence REAL NOT NULL,
    source TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    content TEXT NOT NULL,
    context TEXT NOT NULL,
    tokens TEXT NOT NULL,
    UNIQUE (workspace_id, memory_id)
);
CREATE INDEX IF NOT EXISTS document_expiring ON document (workspace_id, expires_at) WHERE expires_at IS NOT NULL;
CREATE VIRTUAL TABLE IF NOT EXISTS fts USING fts5 (
    content, context, tokens, content = 'document', content_rowid = 'id', tokenize = 'porter unicode61'
);
"""

_CACHE_SCHEMA = """
CREATE TABLE counter (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO counter SELECT 'last_row', coalesce(max(id), 0) FROM document;
INSERT INTO counter VALUES ('covers', 0), ('identity', lower(hex(randomblob(8))));
CREATE TABLE gone (row INTEGER PRIMARY KEY);
"""
"""State that the cache (`term_cache`) needs: the last row number ever used, which is never used again; the row up to which the cache may
have rows; the deleted rows among these; and the identity of this file."""

_SET_LAST_ROW = "UPDATE counter SET value = ? WHERE name = 'last_row'"
_LAST_ROW = "SELECT value FROM counter WHERE name = 'last_row'"
_RECORD_DELETED = "INSERT OR IGNORE INTO gone SELECT ? WHERE ? <= (SELECT value FROM counter WHERE name = 'covers')"
_IDENTITY = "SELECT value FROM counter WHERE name = 'identity'"
_COLUMNS = "workspace_id, memory_id, org, project, agent_id, session_id, memory_scope, type, tags, confidence, source, created_at"
_FIND = "SELECT id, content, context, tokens FROM document WHERE workspace_id = ? AND memory_id = ?"
_READ = f"""
SELECT id, updated_at, content, context, tokens, {_COLUMNS}, updated_at, expires_at FROM document WHERE workspace_id = ? AND memory_id = ?
"""  # noqa: S608 - made of this module's words only
_DELETE = "DELETE FROM document WHERE id = ?"
_DELETE_FTS = "INSERT INTO fts (fts, rowid, content, context, tokens) VALUES ('delete', ?, ?, ?, ?)"
_INSERT_FTS = "INSERT INTO fts (rowid, content, context, tokens) VALUES (?, ?, ?, ?)"
_PUT = f"""
INSERT OR REPLACE INTO document (id, {_COLUMNS}, updated_at, expires_at, content, context, tokens)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608 - as above
_COUNT = "SELECT count(*) FROM document WHERE workspace_id = ?"
_HAS_EXPIRED = "SELECT EXISTS (SELECT 1 FROM document WHERE workspace_id = ? AND expires_at <= ?)"
_NOT_EXPIRED = "fts.rowid NOT IN (SELECT id FROM document WHERE workspace_id = :workspace_id AND expires_at <= :at)"
_SCORE = f"bm25(fts, 1.0, {_CONTEXT_WEIGHT}, 0.0)"
_IDS = "SELECT id, memory_id FROM document WHERE id IN (SELECT value FROM json_each(?))"
_MIN_UNFILTERED_SHARE = 0.5
"""Fraction of readable documents from which on a search of all documents with a check afterwards is faster, since token lists get long."""


class TextFile:
    """An open `texts.db`. Methods raise `sqlite3.Error`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: deque[sqlite3.Connection] = deque()
        self._identity: tuple[int, int] | None = None
        self._is_closed = False
        self._frequencies = DocumentFrequencies()
        self._cache: TermCache | None = None
        self.writer = SqliteWriter(self._connect, name="texts")

    def open(self) -> None:
        """Create the file and its tables if they are missing. Blocks."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from error
        with contextlib.closing(self._connect()) as connection:
            _create(connection)
            (name,) = connection.execute(_IDENTITY).fetchone()
        self._identity = _file_identity(self._path)
        folder = self._path.with_suffix(".cache") / name
        self._cache = TermCache(folder, context_weight=_CONTEXT_WEIGHT, read=self._run_read, write=self.writer.submit_and_wait)

    def start_cache(self) -> None:
        """Keep the cache of a large store up to date from now on. Blocks until the existing cache is open."""
        if self._cache is not None:
            self._cache.start()

    def close(self) -> None:
        """Finish pending writes and close. Blocks."""
        self._is_closed = True
        if self._cache is not None:
            self._cache.close()
        self.writer.close()
        while self._idle:
            self._idle.pop().close()

    @property
    def is_in_place(self) -> bool:
        """True if the path still refers to the open file. Users may delete it to start with an empty index."""
        return _file_identity(self._path) == self._identity

    def put(self, connection: sqlite3.Connection, documents: Sequence[IndexDocument], *, is_only_newer: bool = False) -> None:
        """Write *documents* in the writer's transaction. With *is_only_newer*, skip those whose stored version is as new or newer."""
        last = initial_last = int(connection.execute(_LAST_ROW).fetchone()[0])
        for document in documents:
            key = (document.workspace_id, document.memory_id)
            row = connection.execute(_READ, key).fetchone()
            if is_only_newer and row is not None and row[1] >= to_micros(document.updated_at):
                continue
            texts = (to_index_text(document.content), to_index_text(_context_words(document)), index_tokens(document))
            columns = _columns(document)
            if row is not None and row[2:5] == texts:
                # Unchanged since an earlier put, as most documents are when their job runs.
                if row[5:] != columns:
                    connection.execute(_PUT, (row[0], *columns, *texts))
                continue
            if row is not None:
                _delete_row(connection, (row[0], *row[2:5]))
            last += 1
            connection.execute(_PUT, (last, *columns, *texts))
            connection.execute(_INSERT_FTS, (last, *texts))
        if last > initial_last:
            connection.execute(_SET_LAST_ROW, (last,))

    def delete(self, connection: sqlite3.Connection, workspace_id: int, ids: Collection[str]) -> None:
        """Delete *ids* in the writer's transaction."""
        for memory_id in ids:
            row = connection.execute(_FIND, (workspace_id, memory_id)).fetchone()
            if row is not None:
                _delete_row(connection, row)

    def count(self, workspace_id: int) -> int:
        """Return the number of documents in the workspace. Blocks."""
        with self._reader(_COUNT_S) as connection:
            return int(connection.execute(_COUNT, (workspace_id,)).fetchone()[0])

    def erase(self) -> None:
        """Erase the words of deleted documents. Blocks until all segments are merged; other writers run between the steps."""
        erasure.merge_segments(self.writer.submit_and_wait)
        with self._reader(_CACHE_READ_TIMEOUT_S) as connection:
            erasure.delete_stale_caches(self._path.with_suffix(".cache"), connection)

    def search(self, query: FtsQuery, *, access_filter: AccessFilter, limit: int, offset: int, timeout_s: float) -> list[TextHit]:
        """Return the best documents, ties ordered by id. Blocks."""
        end = offset + limit
        with self._reader(timeout_s) as connection:
            best = self._cache.search(connection, query, access_filter, end) if query.is_approximate and self._cache is not None else None
            if best is not None:
                best.sort()
                return [TextHit(memory_id=memory_id, score=-score) for score, memory_id in best[offset:end]]
            terms = self._frequencies.select_rare_terms(connection, query, min_documents=end) if query.is_approximate else query.terms
            best = self._search_fts(connection, query, terms, access_filter, end)
            if len(best) < end and len(terms) < len(query.terms):
                best = self._search_fts(connection, query, query.terms, access_filter, end)
        best.sort()
        return [TextHit(memory_id=memory_id, score=-score) for score, memory_id in best[offset:end]]

    def count_matches(self, query: FtsQuery, *, access_filter: AccessFilter, timeout_s: float) -> int:
        """Return the number of matching documents. Blocks."""
        with self._reader(timeout_s) as connection:
            source, values = _build_source(connection, query, query.to_expression(query.terms), access_filter)
            statement = f"SELECT count(*) FROM {source}"  # noqa: S608 - as above
            return int(connection.execute(statement, values).fetchone()[0])

    def _search_fts(
        self, connection: sqlite3.Connection, query: FtsQuery, terms: Sequence[str], access_filter: AccessFilter, limit: int
    ) -> list[tuple[float, str]]:
        """Return (score, memory id) of the best documents; lower scores are better. There may be more than *limit* if scores are equal."""
        if (
            query.is_approximate
            and query.is_unfiltered
            and not column_conditions(access_filter, first_number=0)[0]
            and self._frequencies.compute_share(connection, query.visible_expression) >= _MIN_UNFILTERED_SHARE
        ):
            best = _search_unfiltered(connection, query.to_expression(terms, is_unfiltered=True), access_filter, limit)
            if best is not None:
                return best
        return _search_visible(connection, query, query.to_expression(terms), access_filter, limit)

    @property
    def is_cached(self) -> bool:
        """True if the cache contains all documents, or the store is too small for a cache."""
        return self._cache is None or self._cache.is_caught_up

    def _run_read(self, work: Callable[[sqlite3.Connection], object]) -> None:
        with self._reader(_CACHE_READ_TIMEOUT_S) as connection:
            work(connection)

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path)

    @contextlib.contextmanager
    def _reader(self, timeout_s: float) -> Generator[sqlite3.Connection]:
        """Yield a connection for one thread and one transaction, which is interrupted after *timeout_s*."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self._path, read_only=True)
            connection.execute(f"PRAGMA mmap_size={_MMAP_BYTES}")
        deadline = time.monotonic() + timeout_s
        try:
            connection.set_progress_handler(lambda: time.monotonic() >= deadline, _PROGRESS_STEPS)
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        if self._is_closed or len(self._idle) >= _MAX_IDLE_READERS:
            connection.close()
        else:
            self._idle.append(connection)


def _create(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == _SCHEMA_VERSION:
        return
    if version not in (0, 1):
        raise sqlite3.DatabaseError(f"its format is {version}, ours is {_SCHEMA_VERSION}")
    schema = (_SCHEMA if version == 0 else "") + _CACHE_SCHEMA
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {schema} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;")
    except sqlite3.OperationalError:
        connection.execute("ROLLBACK") if connection.in_transaction else None
        if connection.execute("PRAGMA user_version").fetchone() != (_SCHEMA_VERSION,):
            raise  # another process created them


def _delete_row(connection: sqlite3.Connection, row: tuple[int, str, str, str]) -> None:
    connection.execute(_DELETE_FTS, row)
    connection.execute(_DELETE, row[:1])
    connection.execute(_RECORD_DELETED, (row[0], row[0]))


def _context_words(document: IndexDocument) -> str:
    """Return words that describe *document* and are indexed with it. They are never stored or returned."""
    return " ".join(part for part in (document.type, *document.tags, document.org, document.project) if part)


def _columns(document: IndexDocument) -> tuple[object, ...]:
    return (
        document.workspace_id,
        document.memory_id,
        document.org,
        document.project,
        document.agent_id,
        document.session_id,
        document.memory_scope.value,
        document.type,
        orjson.dumps(document.tags).decode(),
        document.confidence,
        document.source,
        to_micros(document.created_at),
        to_micros(document.updated_at),
        None if document.expires_at is None else to_micros(document.expires_at),
    )


def _search_visible(
    connection: sqlite3.Connection, query: FtsQuery, match: str, access_filter: AccessFilter, limit: int
) -> list[tuple[float, str]]:
    """Search the documents that *access_filter* allows."""
    source, values = _build_source(connection, query, match, access_filter)
    scored_sql = f"SELECT fts.rowid AS id, {_SCORE} AS score FROM {source}"  # noqa: S608 - made of this module's words only
    rows = connection.execute(f"{scored_sql} ORDER BY score LIMIT :wanted", {**values, "wanted": limit + 1}).fetchall()
    if len(rows) > limit and rows[limit][1] == rows[limit - 1][1] and not query.is_approximate:
        # Equal scores on both sides of the limit: all of them are needed to order them by id.
        worst = {**values, "worst": rows[limit][1]}
        rows = connection.execute(f"SELECT id, score FROM ({scored_sql}) WHERE score <= :worst", worst).fetchall()  # noqa: S608 - as above
    ids = dict(connection.execute(_IDS, (rows_to_json(row for row, _ in rows),)).fetchall())
    return [(score, ids[row]) for row, score in rows if row in ids]  # a damaged index may have words of missing documents


def _search_unfiltered(
    connection: sqlite3.Connection, match: str, access_filter: AccessFilter, limit: int
) -> list[tuple[float, str]] | None:
    """Search all documents and check access afterwards. *match* has no access conditions. None if too few results are readable."""
    fetch_count = 2 * limit + 50
    scored_sql = f"SELECT rowid, {_SCORE} AS score FROM fts WHERE fts MATCH ? ORDER BY score LIMIT ?"  # noqa: S608 - as above
    rows = connection.execute(scored_sql, (match, fetch_count)).fetchall()
    ids = filter_visible(connection, (row for row, _ in rows), access_filter, checks_owner=True)
    best = [(score, ids[row]) for row, score in rows if row in ids]
    return None if len(rows) == fetch_count and len(best) < limit else best


def _build_source(
    connection: sqlite3.Connection, query: FtsQuery, match: str, access_filter: AccessFilter
) -> tuple[str, dict[str, object]]:
    """Return the text after FROM and its values. The table is joined only for filters that the full-text index does not cover."""
    at = to_micros(access_filter.at)
    values: dict[str, object] = {"match": match}
    conditions: list[str] = []
    if connection.execute(_HAS_EXPIRED, (access_filter.workspace_id, at)).fetchone()[0]:
        conditions.append(_NOT_EXPIRED)
        values |= {"workspace_id": access_filter.workspace_id, "at": at}
    column_filters, column_values = column_conditions(access_filter, first_number=len(values))
    conditions += column_filters
    values |= column_values
    name_filters = _name_conditions(access_filter) if query.is_too_wide else {}
    for condition, value in name_filters.items():
        name = f"v{len(values)}"
        conditions.append(condition.replace("?", f":{name}"))
        values[name] = value
    source = "fts JOIN document AS d ON d.id = fts.rowid" if column_filters or name_filters else "fts"
    return " AND ".join((f"{source} WHERE fts MATCH :match", *conditions)), values


def _name_conditions(access_filter: AccessFilter) -> dict[str, object]:
    """Return conditions on org and project for a query with too many spaces."""
    conditions: dict[str, object] = {}
    for column, name, names, scopes in (
        ("org", access_filter.org, access_filter.orgs, ORG_OPTIONAL_SCOPES),
        ("project", access_filter.project, access_filter.projects, PROJECT_OPTIONAL_SCOPES),
    ):
        scope_list = ", ".join(f"'{scope.value}'" for scope in sorted(scopes))
        without = f"d.{column} IS NULL AND d.memory_scope IN ({scope_list})"
        if name is not None:
            conditions[f"(d.{column} = ? OR {without})"] = name
        if names is not None:
            condition = f"(d.{column} IN (SELECT value FROM json_each(?)) OR {without})"  # noqa: S608 - column and scopes are named above
            conditions[condition] = orjson.dumps(sorted(names)).decode()
    return conditions


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - called before each query; Path.stat is three times as slow
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
