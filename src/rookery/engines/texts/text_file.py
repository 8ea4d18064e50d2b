"""
`texts.db`: the documents, and an FTS5 index over them.

The index keeps no text of its own but reads it from the table beside it (external content), so taking a document out
means telling FTS5 what was in it: SQLite before 3.43 knows no other way.
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
"""Of the tables below, in `PRAGMA user_version`."""

_CONTEXT_WEIGHT = 0.5
"""Of a word found in type, tags, org or project, to one found in the text."""

_PROGRESS_STEPS = 10_000
"""Of SQLite's machine between two looks at the clock: about a millisecond."""

_MAX_IDLE_READERS = 8

_CACHE_READ_TIMEOUT_S = 60.0

_COUNT_S = 60.0
"""Counting a workspace reads an index of the whole of it."""

_MMAP_BYTES = 2**31 - 2**16
"""
So much of the file readers map, SQLite's most: the rows that a question finds lie all over it, and to look them up costs a third of
what reads do (0.3 and 0.8 ms for 120 of a million). What the map holds is the system's page cache, not memory of ours.
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
"""
What the cache needs to be told (`large`): the last row that was ever given, to no other text again; up to which row it may have
them; which of those are gone; and which file this is.
"""

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
"""From this share of all documents on it is faster to find all, and then look who may see them: the tokens of so many are long lists."""


class TextFile:
    """The file, opened. Raises `sqlite3.Error`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: deque[sqlite3.Connection] = deque()
        self._identity: tuple[int, int] | None = None
        self._is_closed = False
        self._frequencies = DocumentFrequencies()
        self._cache: TermCache | None = None
        self.writer = SqliteWriter(self._connect, name="texts")

    def open(self) -> None:
        """Create what is missing; blocks."""
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
        """Keep the cache of a large store up to date from now on; blocks until what there is of it is open."""
        if self._cache is not None:
            self._cache.start()

    def close(self) -> None:
        """Finish what is being written and close; blocks."""
        self._is_closed = True
        if self._cache is not None:
            self._cache.close()
        self.writer.close()
        while self._idle:
            self._idle.pop().close()

    @property
    def is_in_place(self) -> bool:
        """Tell whether the path still leads to this file: somebody may have deleted it to begin anew."""
        return _file_identity(self._path) == self._identity

    def put(self, connection: sqlite3.Connection, documents: Sequence[IndexDocument], *, is_only_newer: bool = False) -> None:
        """Write *documents* within the writer's transaction; *is_only_newer*: where none is there that is as new."""
        last = given = int(connection.execute(_LAST_ROW).fetchone()[0])
        for document in documents:
            key = (document.workspace_id, document.memory_id)
            found = connection.execute(_READ, key).fetchone()
            if is_only_newer and found is not None and found[1] >= to_micros(document.updated_at):
                continue
            texts = (to_index_text(document.content), to_index_text(_context_words(document)), index_tokens(document))
            columns = _columns(document)
            if found is not None and found[2:5] == texts:
                # Most were offered when they were stored, and nothing of them changed until their job puts them.
                if found[5:] != columns:
                    connection.execute(_PUT, (found[0], *columns, *texts))
                continue
            if found is not None:
                _delete_row(connection, (found[0], *found[2:5]))
            last += 1
            connection.execute(_PUT, (last, *columns, *texts))
            connection.execute(_INSERT_FTS, (last, *texts))
        if last > given:
            connection.execute(_SET_LAST_ROW, (last,))

    def delete(self, connection: sqlite3.Connection, workspace_id: int, ids: Collection[str]) -> None:
        """Take *ids* out within the writer's transaction."""
        for memory_id in ids:
            found = connection.execute(_FIND, (workspace_id, memory_id)).fetchone()
            if found is not None:
                _delete_row(connection, found)

    def count(self, workspace_id: int) -> int:
        """Return how many documents the workspace has; blocks."""
        with self._reader(_COUNT_S) as connection:
            return int(connection.execute(_COUNT, (workspace_id,)).fetchone()[0])

    def erase(self) -> None:
        """Leave nothing of what was taken out: blocks until all segments are merged, step by step; others write in between."""
        erasure.merge_segments(self.writer.submit_and_wait)
        with self._reader(_CACHE_READ_TIMEOUT_S) as connection:
            erasure.delete_stale_caches(self._path.with_suffix(".cache"), connection)

    def search(self, query: FtsQuery, *, access_filter: AccessFilter, limit: int, offset: int, timeout_s: float) -> list[TextHit]:
        """Return the best documents, ties by id; blocks."""
        wanted = offset + limit
        with self._reader(timeout_s) as connection:
            best = (
                self._cache.search(connection, query, access_filter, wanted) if query.is_approximate and self._cache is not None else None
            )
            if best is not None:
                best.sort()
                return [TextHit(memory_id=memory_id, score=-score) for score, memory_id in best[offset:wanted]]
            terms = self._frequencies.select_rare_terms(connection, query, min_documents=wanted) if query.is_approximate else query.terms
            best = self._search_fts(connection, query, terms, access_filter, wanted)
            if len(best) < wanted and len(terms) < len(query.terms):
                best = self._search_fts(connection, query, query.terms, access_filter, wanted)
        best.sort()
        return [TextHit(memory_id=memory_id, score=-score) for score, memory_id in best[offset:wanted]]

    def count_matches(self, query: FtsQuery, *, access_filter: AccessFilter, timeout_s: float) -> int:
        """Return how many documents match; blocks."""
        with self._reader(timeout_s) as connection:
            source, values = _build_source(connection, query, query.to_expression(query.terms), access_filter)
            counted = f"SELECT count(*) FROM {source}"  # noqa: S608 - as above
            return int(connection.execute(counted, values).fetchone()[0])

    def _search_fts(
        self, connection: sqlite3.Connection, query: FtsQuery, terms: Sequence[str], access_filter: AccessFilter, limit: int
    ) -> list[tuple[float, str]]:
        """Return scores, the lower the better, and memory ids of the best documents: *limit*, or more where they are equals."""
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
        """Tell whether the cache has all that was put; also True of a store that is too small for one."""
        return self._cache is None or self._cache.is_caught_up

    def _run_read(self, work: Callable[[sqlite3.Connection], object]) -> None:
        with self._reader(_CACHE_READ_TIMEOUT_S) as connection:
            work(connection)

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path)

    @contextlib.contextmanager
    def _reader(self, timeout_s: float) -> Generator[sqlite3.Connection]:
        """Lend a connection to one thread, for one transaction that is interrupted after *timeout_s*."""
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
            raise  # else another process was first


def _delete_row(connection: sqlite3.Connection, row: tuple[int, str, str, str]) -> None:
    connection.execute(_DELETE_FTS, row)
    connection.execute(_DELETE, row[:1])
    connection.execute(_RECORD_DELETED, (row[0], row[0]))


def _context_words(document: IndexDocument) -> str:
    """Return the words that describe *document*; the one place where it is enriched, never what is stored or shown."""
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
    """Find them among those that *access_filter* may see."""
    source, values = _build_source(connection, query, match, access_filter)
    scored = f"SELECT fts.rowid AS id, {_SCORE} AS score FROM {source}"  # noqa: S608 - made of this module's words only
    rows = connection.execute(f"{scored} ORDER BY score LIMIT :wanted", {**values, "wanted": limit + 1}).fetchall()
    if len(rows) > limit and rows[limit][1] == rows[limit - 1][1] and not query.is_approximate:
        # Equals lie on both sides of the border: only their ids tell which of them are in.
        worst = {**values, "worst": rows[limit][1]}
        rows = connection.execute(f"SELECT id, score FROM ({scored}) WHERE score <= :worst", worst).fetchall()  # noqa: S608 - as above
    ids = dict(connection.execute(_IDS, (rows_to_json(row for row, _ in rows),)).fetchall())
    return [(score, ids[row]) for row, score in rows if row in ids]  # a damaged file may have words of documents that it lost


def _search_unfiltered(
    connection: sqlite3.Connection, match: str, access_filter: AccessFilter, limit: int
) -> list[tuple[float, str]] | None:
    """Find them among all by a *match* that says nothing of who may see; None: too few of what was found may be seen."""
    most = 2 * limit + 50
    scored = f"SELECT rowid, {_SCORE} AS score FROM fts WHERE fts MATCH ? ORDER BY score LIMIT ?"  # noqa: S608 - as above
    rows = connection.execute(scored, (match, most)).fetchall()
    ids = filter_visible(connection, (row for row, _ in rows), access_filter, checks_owner=True)
    best = [(score, ids[row]) for row, score in rows if row in ids]
    return None if len(rows) == most and len(best) < limit else best


def _build_source(
    connection: sqlite3.Connection, query: FtsQuery, match: str, access_filter: AccessFilter
) -> tuple[str, dict[str, object]]:
    """Return what follows FROM, and its values. The table is joined only for filters that are not in the full-text index."""
    at = to_micros(access_filter.at)
    values: dict[str, object] = {"match": match}
    conditions: list[str] = []
    if connection.execute(_HAS_EXPIRED, (access_filter.workspace_id, at)).fetchone()[0]:
        conditions.append(_NOT_EXPIRED)
        values |= {"workspace_id": access_filter.workspace_id, "at": at}
    more, more_values = column_conditions(access_filter, first_number=len(values))
    conditions += more
    values |= more_values
    named = _name_conditions(access_filter) if query.is_too_wide else {}
    for condition, value in named.items():
        name = f"v{len(values)}"
        conditions.append(condition.replace("?", f":{name}"))
        values[name] = value
    source = "fts JOIN document AS d ON d.id = fts.rowid" if more or named else "fts"
    return " AND ".join((f"{source} WHERE fts MATCH :match", *conditions)), values


def _name_conditions(access_filter: AccessFilter) -> dict[str, object]:
    """Return the conditions on org and project, for a query that is too wide for tokens."""
    conditions: dict[str, object] = {}
    for column, name, names, scopes in (
        ("org", access_filter.org, access_filter.orgs, ORG_OPTIONAL_SCOPES),
        ("project", access_filter.project, access_filter.projects, PROJECT_OPTIONAL_SCOPES),
    ):
        listed = ", ".join(f"'{scope.value}'" for scope in sorted(scopes))
        without = f"d.{column} IS NULL AND d.memory_scope IN ({listed})"
        if name is not None:
            conditions[f"(d.{column} = ? OR {without})"] = name
        if names is not None:
            condition = f"(d.{column} IN (SELECT value FROM json_each(?)) OR {without})"  # noqa: S608 - column and scopes are named above
            conditions[condition] = orjson.dumps(sorted(names)).decode()
    return conditions


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - asked before each query: a Path's stat costs three times as much
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
