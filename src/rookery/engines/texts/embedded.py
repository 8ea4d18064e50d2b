"""
A full-text index in a SQLite file, `texts.db`, with FTS5: Porter stemmer, Unicode word boundaries, bm25 ranking.

FTS5 alone answers in workspaces of up to 20,000 memories; above that, `term_cache` answers questions. Why there are two:
`docs/design/indexes.md`. Each workspace has tables of its own (`fts_tables`), so no score depends on the memories of another. Within a
workspace, bm25 counts all memories; `TextHit.coverage` counts readable ones only, unless the workspace has a cache.

Chinese, Japanese and Thai have no spaces. `kernel.tokenization.to_index_text` therefore indexes each pair of adjacent characters, and
queries are split in the same way.
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
from functools import partial
from pathlib import Path
from typing import TypeVar

from rookery.engines.texts.fts_tables import (
    MAX_TABLES,
    create_tables,
    drop_documents,
    drop_empty_tables,
    find_table,
    forget_deleted_rows,
    list_tables,
    merge_table,
    put_documents,
)
from rookery.engines.texts.query import FtsQuery, any_term_expression, build_query
from rookery.engines.texts.term_cache import MIN_UNFILTERED_SHARE, TermCacheLimits, TermCaches, filter_visible, rows_to_json
from rookery.engines.texts.words import CONTEXT_WEIGHT, inverse_frequency
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.sqlite import ReopenableFile, SqliteFile, map_file_error, truncate_wal
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

_MAX_DROPPED_TABLES = 8
"""Tables that an erasure drops at once. Each takes 7 ms if there are a thousand, and blocks other writers."""

_ROW = "SELECT id FROM document WHERE workspace_id = ? AND memory_id = ?"
_HAS_EXPIRED = "SELECT EXISTS (SELECT 1 FROM document WHERE workspace_id = :workspace_id AND expires_at <= :at)"
_NOT_EXPIRED = "{table}.rowid NOT IN (SELECT id FROM document WHERE workspace_id = :workspace_id AND expires_at <= :at)"
_LIST_IDS = """
SELECT workspace_id, memory_id FROM document WHERE (workspace_id, memory_id) > (?, ?) ORDER BY workspace_id, memory_id LIMIT ?
"""
_BEFORE_ALL = (-1, "")
_COUNT = "SELECT count(*) FROM document WHERE workspace_id = ?"
_COUNT_TABLE = "SELECT count(*) FROM document WHERE workspace_id IN (SELECT id FROM workspace WHERE table_name = ?)"
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
        max_tables: Maximum workspaces with a full-text table of their own.
        cache: Bounds on the use and the updates of the caches.
    """

    max_scored_documents: int = 2_000
    min_documents_factor: int = 5
    max_tables: int = MAX_TABLES
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
        """Open the file now, and from now on keep the caches of large workspaces up to date."""
        self._is_cache_enabled = True
        async with self._file.use() as file:
            await asyncio.to_thread(file.caches.start)

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
            await file.writer.submit(
                lambda connection: put_documents(connection, documents, is_early=is_early, max_tables=self._limits.max_tables),
                is_synced=not is_early,
            )

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        ids = tuple(ids)
        async with self._file.use() as file:
            await file.writer.submit(lambda connection: drop_documents(connection, workspace_id, ids))

    async def search(self, query: TextQuery, *, access_filter: AccessFilter, limit: int, offset: int = 0) -> list[TextHit]:
        end = offset + limit
        async with self._file.use() as file:

            def find(connection: sqlite3.Connection) -> tuple[list[TextHit], bool | None]:
                # Built here, because the embedder's thread waits for the GIL while the event loop is busy.
                fts_query, table = build_query(query, access_filter), find_table(connection, access_filter.workspace_id)
                if fts_query is None or table is None:
                    return [], None
                used_query = _remove_unused_stems(connection, table, fts_query)
                cache = file.caches.find(access_filter.workspace_id) if fts_query.is_approximate else None
                cached = None if cache is None else cache.search(connection, table, used_query, end)
                best = sorted(file.search(connection, table, used_query, end) if cached is None else cached)
                hits = [TextHit(memory_id=memory_id, score=-score) for score, memory_id in best[offset:end]]
                if hits and query.is_question and offset == 0:
                    hits[0] = replace(hits[0], coverage=file.compute_coverage(connection, table, used_query, hits[0].memory_id))
                return hits, cached is not None if fts_query.is_approximate else None

            hits, is_from_cache = await self._read(file, find, self._timeout_s)
        if is_from_cache is not None:
            self.question_counts.from_cache += is_from_cache
            self.question_counts.from_sqlite += not is_from_cache
        return hits

    async def list_ids(self, *, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        def read(connection: sqlite3.Connection) -> list[tuple[int, str]]:
            return connection.execute(_LIST_IDS, (*(after or _BEFORE_ALL), limit)).fetchall()

        async with self._file.use() as file:
            return await self._read(file, read, _SLOW_READ_TIMEOUT_S)

    async def count(self, workspace_id: int, *, query: TextQuery | None = None, access_filter: AccessFilter | None = None) -> int:
        fts_query = None if query is None or access_filter is None else build_query(query, access_filter)
        if query is not None and fts_query is None:
            return 0

        def count(connection: sqlite3.Connection) -> int:
            if fts_query is None:
                return connection.execute(_COUNT, (workspace_id,)).fetchone()[0]
            table = find_table(connection, workspace_id)
            if table is None:
                return 0
            statement = f"SELECT count(*) FROM {_source(connection, table, fts_query)}"  # noqa: S608 - own words
            return connection.execute(statement, {**fts_query.values, "match": fts_query.to_expression(fts_query.terms)}).fetchone()[0]

        async with self._file.use() as file:
            return await self._read(file, count, _SLOW_READ_TIMEOUT_S if fts_query is None else self._timeout_s)

    async def erase(self) -> None:
        async with self._file.use() as file:
            await asyncio.to_thread(file.erase)
            await asyncio.to_thread(truncate_wal, self._path)

    async def is_cached(self) -> bool:
        """Return whether the caches of all large workspaces contain their documents. Until then searches take longer."""
        async with self._file.use() as file:
            return await asyncio.to_thread(lambda: file.caches.are_caught_up)

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
            file.caches.start()
        return file

    def _map_error(self, error: sqlite3.Error) -> EngineUnavailable:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return EngineUnavailable("texts", f"the query took longer than {self._timeout_s:g} s")
        return map_file_error("texts", self._path, error)


class _TextFile(SqliteFile):
    """An open `texts.db` with its caches."""

    def __init__(self, path: Path, limits: TextIndexLimits) -> None:
        """Open the file. Create it and its tables if they are missing."""
        settings = (f"PRAGMA mmap_size={_MMAP_BYTES}",)
        super().__init__(path, name="texts", create=create_tables, reader_settings=settings)
        with self.reader() as connection:
            (identity,) = connection.execute("SELECT value FROM counter WHERE name = 'identity'").fetchone()
        self._frequencies = _DocumentFrequencies(limits)
        self.caches = TermCaches(
            path.with_suffix(".cache"),
            identity,
            context_weight=CONTEXT_WEIGHT,
            read=lambda work: self.read(work, _SLOW_READ_TIMEOUT_S),
            write=self.writer.submit_and_wait,
            limits=limits.cache,
        )

    def close(self) -> None:
        """Stop the caches, finish pending writes and close."""
        self.caches.close()
        super().close()

    def erase(self) -> None:
        """
        Erase the words of deleted documents, in steps between which other writers run.

        FTS5 records a deletion in a new segment and keeps the words in the old one until both are merged, which may take years. SQLite 3.42
        has an option that removes the words at once, but older versions cannot read such a file, and backups move between versions.
        """
        while self.writer.submit_and_wait(partial(drop_empty_tables, limit=_MAX_DROPPED_TABLES)) == _MAX_DROPPED_TABLES:
            pass
        for table in self.read(list_tables, _SLOW_READ_TIMEOUT_S):
            self._merge(table, -_MERGE_PAGES)
            for _ in range(_MAX_MERGE_STEPS):
                if self._merge(table, _MERGE_PAGES) < _MIN_CHANGED_ROWS:
                    break
        self.read(self.caches.delete_stale, _SLOW_READ_TIMEOUT_S)
        self.writer.submit_and_wait(forget_deleted_rows)

    def _merge(self, table: str, pages: int) -> int:
        """Merge some pages of *table*; return the number of changed rows. 0 if the table was dropped meanwhile."""
        return self.writer.submit_and_wait(
            lambda connection: merge_table(connection, table, pages) if table in list_tables(connection) else 0
        )

    def search(self, connection: sqlite3.Connection, table: str, query: FtsQuery, limit: int) -> list[tuple[float, str]]:
        """Return (score, memory id) of the best documents, without the cache."""
        terms = query.terms
        if query.is_approximate:
            terms = self._frequencies.select_rare_terms(connection, table, query, min_documents=limit)
        best = self._search_terms(connection, table, query, terms, limit)
        if len(best) < limit and len(terms) < len(query.terms):
            return self._search_terms(connection, table, query, query.terms, limit)
        return best

    def compute_coverage(self, connection: sqlite3.Connection, table: str, query: FtsQuery, memory_id: str) -> float:
        """
        Return the share of the words of *query* that the memory has, weighted by their inverse document frequency (bm25).

        Frequencies are those among the documents that the caller may read, except in a workspace that is large enough for a cache.
        """
        row = connection.execute(_ROW, (query.workspace_id, memory_id)).fetchone()
        if row is None or not query.words:
            return 1.0  # deleted meanwhile, or a query of phrases alone
        total, matched = 0.0, 0.0
        has_word = f"SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = ?"  # noqa: S608 - own words
        cache = self.caches.find(query.workspace_id)
        counts = None if cache is None else cache.count_documents(query.words_and_stems)
        for word in query.words:
            forms = query.get_forms(word)
            if counts is None:
                weight = self._frequencies.compute_weight(connection, table, forms, visible_expression=query.visible_expression)
            else:
                weight = inverse_frequency(*max(counts[form] for form in forms))
            total += weight
            if connection.execute(has_word, (any_term_expression(forms), row[0])).fetchone() is not None:
                matched += weight
        return matched / total

    def _search_terms(
        self, connection: sqlite3.Connection, table: str, query: FtsQuery, terms: Sequence[str], limit: int
    ) -> list[tuple[float, str]]:
        if query.is_approximate and query.is_unfiltered and not query.row_conditions:
            share = self._frequencies.compute_share(connection, table, query.visible_expression)
            best = _search_unfiltered(connection, table, query, terms, limit) if share >= MIN_UNFILTERED_SHARE else None
            if best is not None:
                return best
        return _search(connection, table, query, terms, limit)

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


def _remove_unused_stems(connection: sqlite3.Connection, table: str, query: FtsQuery) -> FtsQuery:
    """Return *query* without stem terms if no memory of the workspace has any. Looking all of them up takes a third of a short question."""
    has_stems = f"SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT 1"  # noqa: S608 - own words
    if not query.stem_terms or connection.execute(has_stems, (query.stemmed_expression,)).fetchone() is not None:
        return query
    return replace(query, stem_terms={})


def _score(table: str) -> str:
    return f"bm25({table}, 1.0, {CONTEXT_WEIGHT}, 0.0)"


def _search(connection: sqlite3.Connection, table: str, query: FtsQuery, terms: Sequence[str], limit: int) -> list[tuple[float, str]]:
    """Return (score, memory id) of the best documents; lower scores are better. There may be more than *limit* if scores are equal."""
    scored_sql = f"SELECT {table}.rowid AS id, {_score(table)} AS score FROM {_source(connection, table, query)}"  # noqa: S608 - own words
    values = {**query.values, "match": query.to_expression(terms), "wanted": limit + 1}
    rows = connection.execute(f"{scored_sql} ORDER BY score LIMIT :wanted", values).fetchall()
    if len(rows) > limit and rows[limit][1] == rows[limit - 1][1] and not query.is_approximate:
        # Equal scores on both sides of the limit: all of them are needed to order them by id.
        values["worst"] = rows[limit][1]
        rows = connection.execute(f"SELECT id, score FROM ({scored_sql}) WHERE score <= :worst", values).fetchall()  # noqa: S608 - own words
    ids = dict(connection.execute(_IDS, (rows_to_json(row for row, _ in rows),)).fetchall())
    return [(score, ids[row]) for row, score in rows if row in ids]  # a damaged index may have words of missing documents


def _search_unfiltered(
    connection: sqlite3.Connection, table: str, query: FtsQuery, terms: Sequence[str], limit: int
) -> list[tuple[float, str]] | None:
    """Search all documents and check access afterwards. None if too few results are readable."""
    fetch_count = 2 * limit + 50
    scored_sql = f"SELECT rowid, {_score(table)} AS score FROM {table} WHERE {table} MATCH ? ORDER BY score LIMIT ?"  # noqa: S608 - own words
    rows = connection.execute(scored_sql, (query.to_expression(terms, is_unfiltered=True), fetch_count)).fetchall()
    ids = filter_visible(connection, (row for row, _ in rows), query, checks_owner=True)
    best = [(score, ids[row]) for row, score in rows if row in ids]
    return None if len(rows) == fetch_count and len(best) < limit else best


def _source(connection: sqlite3.Connection, table: str, query: FtsQuery) -> str:
    """Return the text after FROM. The documents are joined only for filters that the full-text index does not cover."""
    source = f"{table} JOIN document AS d ON d.id = {table}.rowid" if query.row_conditions else table
    expired = [_NOT_EXPIRED.format(table=table)] if connection.execute(_HAS_EXPIRED, query.values).fetchone()[0] else []
    return " AND ".join((f"{source} WHERE {table} MATCH :match", *expired, *query.row_conditions))


class _DocumentFrequencies:
    """Cached numbers of documents by table and expression, up to a minute old. Good enough to select words, not to return as a count."""

    def __init__(self, limits: TextIndexLimits) -> None:
        self._limits = limits
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}

    def select_rare_terms(self, connection: sqlite3.Connection, table: str, query: FtsQuery, *, min_documents: int) -> tuple[str, ...]:
        """
        Return the rarest terms of *query* that together match at least *min_documents* times `min_documents_factor` documents.

        Further terms are added as long as at most `max_scored_documents` are scored. All terms are returned if they stay below that limit.
        """
        max_scored, min_matched = self._limits.max_scored_documents, self._limits.min_documents_factor * min_documents
        share = self.compute_share(connection, table, query.visible_expression)
        if sum(self._count(connection, table, any_term_expression([word])) for word in query.words_and_stems) * share <= max_scored:
            return query.terms
        matched_weight, selected = 0.0, list[str]()
        for number, term in sorted((self._count(connection, table, any_term_expression([term])), term) for term in query.terms):
            if matched_weight >= min_matched and matched_weight + number * share > max_scored:
                break
            selected.append(term)
            matched_weight += number * share
        return tuple(selected)

    def compute_share(self, connection: sqlite3.Connection, table: str, expression: str) -> float:
        """Return the fraction of the documents of *table* that match *expression*."""
        total = self._count(connection, table, None)
        return self._count(connection, table, expression) / total if total else 1.0

    def compute_weight(self, connection: sqlite3.Connection, table: str, forms: Sequence[str], *, visible_expression: str) -> float:
        """Return the inverse document frequency of a word in any of *forms*, among the documents that match *visible_expression*."""
        visible_count = self._count(connection, table, visible_expression)
        matching_count = self._count(connection, table, f"{any_term_expression(forms)} AND {visible_expression}")
        return inverse_frequency(matching_count, visible_count)

    def _count(self, connection: sqlite3.Connection, table: str, expression: str | None) -> int:
        now_s, key = time.monotonic(), (table, expression or "")
        at_s, number = self._counts.get(key, (0.0, -1))
        if number >= 0 and now_s - at_s < _CACHE_TTL_S:
            return number
        if expression is None:
            (number,) = connection.execute(_COUNT_TABLE, (table,)).fetchone()
        else:
            (number,) = connection.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (expression,)).fetchone()  # noqa: S608
        if len(self._counts) >= _MAX_CACHED:
            self._counts.clear()
        self._counts[key] = (now_s, number)
        return number
