"""
A full-text index in a SQLite file, `texts.db`, with FTS5: Porter stemmer, Unicode word boundaries, bm25 ranking.

FTS5 alone answers in stores of up to 20,000 memories; above that, `term_cache` answers questions. Why there are two: `docs/decisions.md`.

Chinese, Japanese and Thai have no spaces. `kernel.tokenization.to_index_text` therefore indexes each pair of adjacent characters, and
queries are split in the same way.

bm25 counts word frequencies in the whole file, other workspaces included. So does `TextHit.coverage` in a store that has a cache;
smaller stores count readable documents only. Scores therefore show how many memories
others have with a word, and nothing else about them. The order within a workspace changes only for words that are rare in one and common in
the other.

The index stores no text and reads it from the table (external content). A deletion must therefore pass the indexed text to FTS5; SQLite
before 3.43 has no other way.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import orjson

from rookery.engines.texts.query import FtsQuery, any_term_expression, build_query, index_tokens
from rookery.engines.texts.term_cache import (
    MIN_UNFILTERED_SHARE,
    TermCache,
    TermCacheLimits,
    delete_stale_caches,
    filter_visible,
    rows_to_json,
)
from rookery.engines.texts.words import CONTEXT_WEIGHT, describe_context, inverse_frequency
from rookery.kernel.clock import to_micros
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.languages import to_stem_terms
from rookery.kernel.sqlite import ReopenableFile, SqliteFile, map_file_error
from rookery.kernel.tokenization import to_index_text
from rookery.kernel.wal import truncate_wal
from rookery.memory.models import AccessFilter, IndexDocument, TextHit, TextQuery
from rookery.memory.ports import TextFeature

T = TypeVar("T")

_CACHE_TTL_S = 60.0
_MAX_CACHED = 20_000

_QUERY_TIMEOUT_S = 5.0
_SLOW_READ_TIMEOUT_S = 60.0
"""Timeout of reads of a whole workspace, and of those for the cache."""

_REOPEN_TIMEOUT_S = 30.0
_QUERY_THREADS = (os.cpu_count() or 1) + 2
_MAX_IDLE_READERS = 8
_PROGRESS_STEPS = 10_000
"""Instructions of SQLite's virtual machine between two checks of the time; about a millisecond."""

_MMAP_BYTES = 2**31 - 2**16
"""Bytes of the file that readers map; SQLite's maximum. A lookup in the map costs a third of a read (0.3 and 0.8 ms for 120 of a million
rows). Mapped pages belong to the page cache of the system, not to this process."""

_MERGE_PAGES, _MAX_MERGE_STEPS, _MIN_CHANGED_ROWS = 256, 1_000_000, 2
"""Pages of a merge step, which blocks other writers for some ten milliseconds; steps of an erasure; rows that a useful step changes."""

_SCHEMA_VERSION = 2

_SCHEMA = """
CREATE TABLE IF NOT EXISTS document (
    id INTEGER PRIMARY KEY, workspace_id INTEGER NOT NULL, memory_id TEXT NOT NULL,
    org TEXT, project TEXT, agent_id TEXT, session_id TEXT, memory_scope TEXT NOT NULL,
    type TEXT NOT NULL, tags TEXT NOT NULL, confidence REAL NOT NULL, source TEXT NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, expires_at INTEGER,
    content TEXT NOT NULL, context TEXT NOT NULL, tokens TEXT NOT NULL,
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
"""State that `term_cache` needs: the last row number ever used, which is never used again; the row up to which the cache may have rows; the
deleted rows among these; and the identity of this file."""

_LAST_ROW = "SELECT value FROM counter WHERE name = 'last_row'"
_RECORD_DELETED = "INSERT OR IGNORE INTO gone SELECT ? WHERE ? <= (SELECT value FROM counter WHERE name = 'covers')"
_FIND = "SELECT id, content, context, tokens FROM document WHERE workspace_id = ? AND memory_id = ?"
_COLUMNS = """
    id, content, context, tokens, workspace_id, memory_id, org, project, agent_id, session_id, memory_scope, type, tags, confidence, source,
    created_at, updated_at, expires_at
"""
_READ = f"SELECT {_COLUMNS} FROM document WHERE workspace_id = ? AND memory_id = ?"  # noqa: S608 - own words
_DELETE_FTS = "INSERT INTO fts (fts, rowid, content, context, tokens) VALUES ('delete', ?, ?, ?, ?)"
_INSERT_FTS = "INSERT INTO fts (rowid, content, context, tokens) VALUES (?, ?, ?, ?)"
_PUT = f"INSERT OR REPLACE INTO document ({_COLUMNS}) VALUES ({', '.join('?' * 18)})"  # noqa: S608 - own words
_ROW = "SELECT id FROM document WHERE workspace_id = ? AND memory_id = ?"
_HAS_WORD = "SELECT 1 FROM fts WHERE fts MATCH ? AND rowid = ?"
_HAS_STEMS = "SELECT 1 FROM fts WHERE fts MATCH ? LIMIT 1"
_HAS_EXPIRED = "SELECT EXISTS (SELECT 1 FROM document WHERE workspace_id = :workspace_id AND expires_at <= :at)"
_NOT_EXPIRED = "fts.rowid NOT IN (SELECT id FROM document WHERE workspace_id = :workspace_id AND expires_at <= :at)"
_SCORE = f"bm25(fts, 1.0, {CONTEXT_WEIGHT}, 0.0)"
_IDS = "SELECT id, memory_id FROM document WHERE id IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextIndexLimits:
    """
    Limits of searches that need only the best hits, and of the cache.

    SciFact (5,183 long documents): nDCG@10 of hybrid recall is 75.0 without a limit on scored documents, 74.9 with 2,000, 74.4 with 500,
    and 73.5 with 260, which is proportional to 5,000 of 100,000; the floor there is 70.2.

    Attributes:
        max_scored_documents: Maximum number of scored documents per query; below it no word is skipped.
        min_documents_factor: Minimum number of candidates per requested result. With fewer, common words are used as well.
        cache: Bounds on the use and the updates of the cache.
    """

    max_scored_documents: int = 2_000
    min_documents_factor: int = 5
    cache: TermCacheLimits = field(default_factory=TermCacheLimits)


@dataclass(slots=True)
class QuestionCounts:
    """The number of questions (`TextQuery.is_question`) answered from the cache, and by SQLite."""

    from_cache: int = 0
    from_sqlite: int = 0


class EmbeddedTextIndex:
    """
    A `TextIndex` without a server. All calls come from one event loop.

    Deleting the file (with its -wal and -shm) empties the index, also while it is in use.

    Args:
        timeout_s: Longest time of a query.
        limits: The limits; by default those that Rookery ships.

    Attributes:
        question_counts: How many questions the cache answered.
    """

    lacks = frozenset({TextFeature.SHARED_BY_HOSTS})

    def __init__(self, path: Path, *, timeout_s: float = _QUERY_TIMEOUT_S, limits: TextIndexLimits | None = None) -> None:
        self.question_counts = QuestionCounts()
        self._path = path
        self._timeout_s = timeout_s
        self._limits = limits or TextIndexLimits()
        self._file = ReopenableFile(self._open_file, map_error=self._map_error)
        self._is_cache_enabled = False
        self._query_threads = ThreadPoolExecutor(_QUERY_THREADS, thread_name_prefix="texts-query")
        self._lone_query_thread = ThreadPoolExecutor(1, thread_name_prefix="texts-lone-query", initializer=_keep_to_half_of_the_cpus)
        self._is_lone_query_running = False

    async def start(self) -> None:
        """Open the file now, and from now on keep the cache of a large store up to date."""
        self._is_cache_enabled = True
        async with self._file.use() as file:
            await asyncio.to_thread(file.cache.start)

    async def close(self) -> None:
        """Finish writes, then close the file and the threads."""
        await asyncio.to_thread(self._query_threads.shutdown)
        await asyncio.to_thread(self._lone_query_thread.shutdown)
        await self._file.close()

    async def setup(self) -> None:
        async with self._file.use():
            pass

    async def put(self, documents: Sequence[IndexDocument], *, is_early: bool = False) -> None:
        async with self._file.use() as file:
            await file.writer.submit(lambda connection: _put(connection, documents, is_early=is_early), is_synced=not is_early)

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        ids = tuple(ids)
        async with self._file.use() as file:
            await file.writer.submit(lambda connection: _drop(connection, workspace_id, ids))

    async def search(self, query: TextQuery, *, access_filter: AccessFilter, limit: int, offset: int = 0) -> list[TextHit]:
        fts_query, end = build_query(query, access_filter), offset + limit
        if fts_query is None:
            return []
        async with self._file.use() as file:

            def find(connection: sqlite3.Connection) -> tuple[list[TextHit], bool]:
                used_query = _remove_unused_stems(connection, fts_query)
                cached = file.cache.search(connection, used_query, end) if fts_query.is_approximate else None
                best = sorted(file.search(connection, used_query, end) if cached is None else cached)
                hits = [TextHit(memory_id=memory_id, score=-score) for score, memory_id in best[offset:end]]
                if hits and query.is_question and offset == 0:
                    hits[0] = replace(hits[0], coverage=file.compute_coverage(connection, used_query, hits[0].memory_id))
                return hits, cached is not None

            hits, is_from_cache = await self._read(file, find, self._timeout_s)
        if fts_query.is_approximate:
            self.question_counts.from_cache += is_from_cache
            self.question_counts.from_sqlite += not is_from_cache
        return hits

    async def count(self, workspace_id: int, *, query: TextQuery | None = None, access_filter: AccessFilter | None = None) -> int:
        fts_query = None if query is None or access_filter is None else build_query(query, access_filter)
        if query is not None and fts_query is None:
            return 0

        def count(connection: sqlite3.Connection) -> int:
            if fts_query is None:
                return connection.execute("SELECT count(*) FROM document WHERE workspace_id = ?", (workspace_id,)).fetchone()[0]
            statement = f"SELECT count(*) FROM {_source(connection, fts_query)}"  # noqa: S608 - own words
            return connection.execute(statement, {**fts_query.values, "match": fts_query.to_expression(fts_query.terms)}).fetchone()[0]

        async with self._file.use() as file:
            return await self._read(file, count, _SLOW_READ_TIMEOUT_S if fts_query is None else self._timeout_s)

    async def erase(self) -> None:
        async with self._file.use() as file:
            await asyncio.to_thread(file.erase)
            await asyncio.to_thread(truncate_wal, self._path)

    async def is_cached(self) -> bool:
        """Return whether the cache of a large store contains all documents. Until then searches take longer."""
        async with self._file.use() as file:
            return await asyncio.to_thread(lambda: file.cache.is_caught_up)

    async def _read(self, file: _TextFile, work: Callable[[sqlite3.Connection], T], timeout_s: float) -> T:
        if self._is_lone_query_running:
            return await asyncio.get_running_loop().run_in_executor(self._query_threads, file.read, work, timeout_s)
        self._is_lone_query_running = True
        query = self._lone_query_thread.submit(file.read, work, timeout_s)
        query.add_done_callback(self._on_lone_query_end)
        return await asyncio.wrap_future(query)

    def _on_lone_query_end(self, _: Future[T]) -> None:
        """Note that the thread is free: called when its work has ended, also if nobody waits for the result any longer."""
        self._is_lone_query_running = False

    def _open_file(self) -> _TextFile:
        file = _TextFile(self._path, self._limits)
        if self._is_cache_enabled:
            file.cache.start()
        return file

    def _map_error(self, error: sqlite3.Error) -> EngineUnavailable:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return EngineUnavailable("texts", f"the query took longer than {self._timeout_s:g} s")
        return map_file_error("texts", self._path, error)


class _TextFile(SqliteFile):
    """An open `texts.db` with its cache."""

    def __init__(self, path: Path, limits: TextIndexLimits) -> None:
        """Open the file. Create it and its tables if they are missing."""
        super().__init__(path, name="texts", create=_create, reader_settings=(f"PRAGMA mmap_size={_MMAP_BYTES}",))
        with self.reader() as connection:
            (name,) = connection.execute("SELECT value FROM counter WHERE name = 'identity'").fetchone()
        self._frequencies = _DocumentFrequencies(limits)
        self._caches = path.with_suffix(".cache")
        self.cache = TermCache(
            self._caches / name,
            context_weight=CONTEXT_WEIGHT,
            read=lambda work: self.read(work, _SLOW_READ_TIMEOUT_S),
            write=self.writer.submit_and_wait,
            limits=limits.cache,
        )

    def close(self) -> None:
        """Stop the cache, finish pending writes and close."""
        self.cache.close()
        super().close()

    def erase(self) -> None:
        """
        Erase the words of deleted documents, in steps between which other writers run.

        FTS5 records a deletion in a new segment and keeps the words in the old one until both are merged, which may take years. SQLite 3.42
        has an option that removes the words at once, but older versions cannot read such a file, and backups move between versions.
        """

        def merge(connection: sqlite3.Connection, pages: int) -> int:
            before = connection.total_changes
            connection.execute("INSERT INTO fts (fts, rank) VALUES ('merge', ?)", (pages,))
            return connection.total_changes - before

        self.writer.submit_and_wait(lambda connection: merge(connection, -_MERGE_PAGES))
        for _ in range(_MAX_MERGE_STEPS):
            if self.writer.submit_and_wait(lambda connection: merge(connection, _MERGE_PAGES)) < _MIN_CHANGED_ROWS:
                break
        self.read(lambda connection: delete_stale_caches(self._caches, connection), _SLOW_READ_TIMEOUT_S)

    def search(self, connection: sqlite3.Connection, query: FtsQuery, limit: int) -> list[tuple[float, str]]:
        """Return (score, memory id) of the best documents, without the cache."""
        terms = self._frequencies.select_rare_terms(connection, query, min_documents=limit) if query.is_approximate else query.terms
        best = self._search_terms(connection, query, terms, limit)
        return self._search_terms(connection, query, query.terms, limit) if len(best) < limit and len(terms) < len(query.terms) else best

    def compute_coverage(self, connection: sqlite3.Connection, query: FtsQuery, memory_id: str) -> float:
        """
        Return the share of the words of *query* that the memory has, weighted by their inverse document frequency (bm25).

        Frequencies are those among the documents that the caller may read, except in a store that is large enough for the cache.
        """
        row = connection.execute(_ROW, (query.values["workspace_id"], memory_id)).fetchone()
        if row is None or not query.words:
            return 1.0  # deleted meanwhile, or a query of phrases alone
        total, matched = 0.0, 0.0
        counts = self.cache.count_documents(query.words_and_stems)
        for word in query.words:
            forms = query.get_forms(word)
            if counts is None:
                weight = self._frequencies.compute_weight(connection, forms, visible_expression=query.visible_expression)
            else:
                weight = inverse_frequency(*max(counts[form] for form in forms))
            total += weight
            if connection.execute(_HAS_WORD, (any_term_expression(forms), row[0])).fetchone() is not None:
                matched += weight
        return matched / total

    def _search_terms(self, connection: sqlite3.Connection, query: FtsQuery, terms: Sequence[str], limit: int) -> list[tuple[float, str]]:
        if query.is_approximate and query.is_unfiltered and not query.row_conditions:
            share = self._frequencies.compute_share(connection, query.visible_expression)
            best = _search_unfiltered(connection, query, terms, limit) if share >= MIN_UNFILTERED_SHARE else None
            if best is not None:
                return best
        return _search(connection, query, terms, limit)

    def read(self, work: Callable[[sqlite3.Connection], T], timeout_s: float) -> T:
        """Run *work* in a read transaction, which is interrupted after *timeout_s*."""
        deadline = time.monotonic() + timeout_s
        with self.reader() as connection:
            connection.set_progress_handler(lambda: time.monotonic() >= deadline, _PROGRESS_STEPS)
            connection.execute("BEGIN")
            result = work(connection)
            connection.execute("COMMIT")
        return result


def _keep_to_half_of_the_cpus() -> None:
    """
    Let the current thread run on the lower half of the process's CPUs alone, if it has several (Linux).

    A question is embedded while its words are searched. Linux often wakes the thread of the search on the CPU that embeds, where it waits
    for milliseconds although another CPU is idle: a hybrid recall among 10,000 memories took 2.5 times the embedder's time instead of 2.0.
    """
    if sys.platform == "linux":
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) > 1:
            with suppress(OSError):
                os.sched_setaffinity(0, cpus[: len(cpus) // 2])


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


def _put(connection: sqlite3.Connection, documents: Sequence[IndexDocument], *, is_early: bool) -> None:
    last = initial_last = int(connection.execute(_LAST_ROW).fetchone()[0])
    for document in documents:
        row = connection.execute(_READ, (document.workspace_id, document.memory_id)).fetchone()
        if is_early and row is not None and row[-2] >= to_micros(document.updated_at):
            continue
        values = _row_values(document)
        if row is not None and row[1:4] == values[:3]:
            # Unchanged since an earlier put, as most documents are when their job runs.
            if row[1:] != values:
                connection.execute(_PUT, (row[0], *values))
            continue
        if row is not None:
            _delete_row(connection, row[:4])
        last += 1
        connection.execute(_PUT, (last, *values))
        connection.execute(_INSERT_FTS, (last, *values[:3]))
    if last > initial_last:
        connection.execute("UPDATE counter SET value = ? WHERE name = 'last_row'", (last,))


def _drop(connection: sqlite3.Connection, workspace_id: int, ids: Collection[str]) -> None:
    for memory_id in ids:
        row = connection.execute(_FIND, (workspace_id, memory_id)).fetchone()
        if row is not None:
            _delete_row(connection, row)


def _delete_row(connection: sqlite3.Connection, row: tuple[int, str, str, str]) -> None:
    connection.execute(_DELETE_FTS, row)
    connection.execute("DELETE FROM document WHERE id = ?", row[:1])
    connection.execute(_RECORD_DELETED, (row[0], row[0]))


def _row_values(document: IndexDocument) -> tuple[object, ...]:
    """Return the values of `_COLUMNS`, without the id."""
    # Stems are in the context, since phrases and exclusions apply to the content alone.
    stem_terms = to_stem_terms(document.content)
    context_terms = " ".join((to_index_text(describe_context(document)), *stem_terms))
    texts = (to_index_text(document.content), context_terms, index_tokens(document, has_stems=bool(stem_terms)))
    names = (document.workspace_id, document.memory_id, document.org, document.project, document.agent_id, document.session_id)
    facts = (document.memory_scope.value, document.type, orjson.dumps(document.tags).decode(), document.confidence, document.source)
    expires_at = None if document.expires_at is None else to_micros(document.expires_at)
    return (*texts, *names, *facts, to_micros(document.created_at), to_micros(document.updated_at), expires_at)


def _remove_unused_stems(connection: sqlite3.Connection, query: FtsQuery) -> FtsQuery:
    """Return *query* without stem terms if no memory of the workspace has any. Looking all of them up takes a third of a short question."""
    if not query.stem_terms or connection.execute(_HAS_STEMS, (query.stemmed_expression,)).fetchone() is not None:
        return query
    return replace(query, stem_terms={})


def _search(connection: sqlite3.Connection, query: FtsQuery, terms: Sequence[str], limit: int) -> list[tuple[float, str]]:
    """Return (score, memory id) of the best documents; lower scores are better. There may be more than *limit* if scores are equal."""
    scored_sql = f"SELECT fts.rowid AS id, {_SCORE} AS score FROM {_source(connection, query)}"  # noqa: S608 - own words
    values = {**query.values, "match": query.to_expression(terms), "wanted": limit + 1}
    rows = connection.execute(f"{scored_sql} ORDER BY score LIMIT :wanted", values).fetchall()
    if len(rows) > limit and rows[limit][1] == rows[limit - 1][1] and not query.is_approximate:
        # Equal scores on both sides of the limit: all of them are needed to order them by id.
        values["worst"] = rows[limit][1]
        rows = connection.execute(f"SELECT id, score FROM ({scored_sql}) WHERE score <= :worst", values).fetchall()  # noqa: S608 - own words
    ids = dict(connection.execute(_IDS, (rows_to_json(row for row, _ in rows),)).fetchall())
    return [(score, ids[row]) for row, score in rows if row in ids]  # a damaged index may have words of missing documents


def _search_unfiltered(connection: sqlite3.Connection, query: FtsQuery, terms: Sequence[str], limit: int) -> list[tuple[float, str]] | None:
    """Search all documents and check access afterwards. None if too few results are readable."""
    fetch_count = 2 * limit + 50
    scored_sql = f"SELECT rowid, {_SCORE} AS score FROM fts WHERE fts MATCH ? ORDER BY score LIMIT ?"  # noqa: S608 - own words
    rows = connection.execute(scored_sql, (query.to_expression(terms, is_unfiltered=True), fetch_count)).fetchall()
    ids = filter_visible(connection, (row for row, _ in rows), query, checks_owner=True)
    best = [(score, ids[row]) for row, score in rows if row in ids]
    return None if len(rows) == fetch_count and len(best) < limit else best


def _source(connection: sqlite3.Connection, query: FtsQuery) -> str:
    """Return the text after FROM. The table is joined only for filters that the full-text index does not cover."""
    source = "fts JOIN document AS d ON d.id = fts.rowid" if query.row_conditions else "fts"
    expired = [_NOT_EXPIRED] if connection.execute(_HAS_EXPIRED, query.values).fetchone()[0] else []
    return " AND ".join((f"{source} WHERE fts MATCH :match", *expired, *query.row_conditions))


class _DocumentFrequencies:
    """Cached numbers of documents per expression, up to a minute old. Good enough to select words, but not to return as a count."""

    def __init__(self, limits: TextIndexLimits) -> None:
        self._limits = limits
        self._counts: dict[str, tuple[float, int]] = {}

    def select_rare_terms(self, connection: sqlite3.Connection, query: FtsQuery, *, min_documents: int) -> tuple[str, ...]:
        """
        Return the rarest terms of *query* that together match at least *min_documents* times `min_documents_factor` documents.

        Further terms are added as long as at most `max_scored_documents` are scored. All terms are returned if they stay below that limit.
        """
        max_scored, min_matched = self._limits.max_scored_documents, self._limits.min_documents_factor * min_documents
        share = self.compute_share(connection, query.visible_expression)
        if sum(self._count(connection, any_term_expression([word])) for word in query.words_and_stems) * share <= max_scored:
            return query.terms
        matched_weight, selected = 0.0, list[str]()
        for number, term in sorted((self._count(connection, any_term_expression([term])), term) for term in query.terms):
            if matched_weight >= min_matched and matched_weight + number * share > max_scored:
                break
            selected.append(term)
            matched_weight += number * share
        return tuple(selected)

    def compute_share(self, connection: sqlite3.Connection, expression: str) -> float:
        """Return the fraction of all documents that match *expression*."""
        total = self._count(connection, None)
        return self._count(connection, expression) / total if total else 1.0

    def compute_weight(self, connection: sqlite3.Connection, forms: Sequence[str], *, visible_expression: str) -> float:
        """Return the inverse document frequency of a word in any of *forms*, among the documents that match *visible_expression*."""
        visible_count = self._count(connection, visible_expression)
        return inverse_frequency(self._count(connection, f"{any_term_expression(forms)} AND {visible_expression}"), visible_count)

    def _count(self, connection: sqlite3.Connection, expression: str | None) -> int:
        now_s, key = time.monotonic(), expression or ""
        at_s, number = self._counts.get(key, (0.0, -1))
        if number >= 0 and now_s - at_s < _CACHE_TTL_S:
            return number
        if expression is None:
            (number,) = connection.execute("SELECT count(*) FROM document").fetchone()
        else:
            (number,) = connection.execute("SELECT count(*) FROM fts WHERE fts MATCH ?", (expression,)).fetchone()
        if len(self._counts) >= _MAX_CACHED:
            self._counts.clear()
        self._counts[key] = (now_s, number)
        return number
