"""
Search large stores with a tantivy index (`term_index`), and newer documents with `texts.db`.

SQLite scores each document that has a word, at about a microsecond each. With a million documents, and words that occur in a tenth of them,
a search takes a second. Skipping common words (`frequencies`) is faster but loses some of the best results; the cache scores all of them in
milliseconds. Its ranking is equally good but not identical: it has a newer Porter stemmer, and pairs of words get the rarity of their
words. On the development half of LoCoMo's turns, by keywords alone: MRR 50.0, and 49.3 by SQLite; hybrid 50.4 and 50.6.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import structlog
import tantivy

from rookery.engines.texts.fts_query import FtsQuery
from rookery.engines.texts.term_index import CacheError, TermIndex, TermSnapshot, TextRow
from rookery.engines.texts.visible_rows import filter_visible, rows_to_json
from rookery.memory.models import AccessFilter

T = TypeVar("T")

MIN_DOCUMENTS = 20_000
"""Number of documents ever written from which on there is a cache. Below it, SQLite is fast enough."""

MAX_NEW_DOCUMENTS = 1_000
"""Maximum number of documents that are missing in the cache. With more, SQLite answers the query."""

_MIN_MATCHING_DOCUMENTS = 2_000
"""Queries whose words occur in fewer documents go to SQLite, which scores all of them."""

_MIN_UNFILTERED_SHARE = 0.5
_OVERFETCH_FACTOR, _OVERFETCH_EXTRA, _REFETCH_FACTOR, _PAIRED_FACTOR = 1.1, 10, 4, 1
"""Over-fetch factor and addend, the factor of the second attempt when filters drop too many candidates, and the number of candidates per
result that are checked for pairs of words."""

_MAX_READ_CHARS = 6_000
"""Maximum characters of a text that are searched for pairs, and of a new text for words."""

_POLL_INTERVAL_S = 0.25
_UPDATE_AFTER_ROWS, _UPDATE_DELAY_S = 250, 5.0
"""The cache is updated after this many new documents, or this many seconds after the first one."""

_ROWS_PER_BATCH, _ROWS_PER_COMMIT = 200, 50_000
_BATCH_PAUSE_S = 0.002
"""Pause between batches of rows, since adding rows holds the GIL."""

_MIN_FREE_BYTES = 1024**3
"""Free disk space that the cache never uses. Writes are rejected below half of it (D-17)."""

_CLOSE_TIMEOUT_S = 10.0
_RETRY_DELAY_S = 60.0
"""Delay of the next attempt after a failure or with a nearly full disk."""

_MAX_ROW = "SELECT coalesce(max(id), 0) FROM document"
_LAST_ROW = "SELECT value FROM counter WHERE name = 'last_row'"
_SET_COVERED = "UPDATE counter SET value = max(value, ?) WHERE name = 'covers'"
_ROWS = "SELECT id, content, context, tokens FROM document WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
_NEWER = "SELECT rowid FROM fts WHERE fts MATCH ? AND rowid > ?"
_TEXTS = """
SELECT d.id, substr(d.content, 1, ?), d.context FROM json_each(?) AS found CROSS JOIN document AS d ON d.id = found.value
"""
_DELETED_ROWS = "SELECT row FROM gone ORDER BY row LIMIT 20000"
_CLEAR_DELETED_ROWS = "DELETE FROM gone WHERE row IN (SELECT value FROM json_each(?))"

_log = structlog.stdlib.get_logger("rookery.texts")


class TermCache:
    """
    The cache of one `texts.db`, updated by its own thread.

    Args:
        folder: Folder of the cache. Other folders beside it belong to deleted `texts.db` files.
        read: Runs a function with a read-only connection.
        write: Runs a function in a transaction.
    """

    def __init__(
        self,
        folder: Path,
        *,
        context_weight: float,
        read: Callable[[Callable[[sqlite3.Connection], object]], object],
        write: Callable[[Callable[[sqlite3.Connection], object]], object],
    ) -> None:
        self._folder = folder
        self._context_weight = context_weight
        self._read = read
        self._write = write
        self._index: TermIndex | None = None
        self._snapshot: TermSnapshot | None = None
        self._damaged_snapshot: TermSnapshot | None = None
        self._meta_mtime_ns = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open an existing cache and start the updates. A second call has no effect."""
        if self._thread is None:
            with contextlib.suppress(CacheError, sqlite3.Error):  # the thread has the same error, and repairs it
                self._refresh()
            self._thread = threading.Thread(target=self._run, name="texts-cache", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the updates. Blocks until the current batch is committed, which takes one or two seconds in a very large store."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    @property
    def is_caught_up(self) -> bool:
        """True if the cache contains all documents, or the store is too small for a cache."""
        return self._count_new() == 0

    def search(
        self, connection: sqlite3.Connection, query: FtsQuery, access_filter: AccessFilter, limit: int
    ) -> list[tuple[float, str]] | None:
        """Return (score, memory id) of the best documents; lower scores are better. None if SQLite must answer."""
        snapshot = self._snapshot
        if snapshot is None or query.is_too_wide or not query.words:
            return None
        new = connection.execute(_MAX_ROW).fetchone()[0] - snapshot.last_row
        if new > MAX_NEW_DOCUMENTS:
            return None
        try:
            share = min(1.0, snapshot.compute_share(query.required_tokens[0]))
            number = sum(map(snapshot.count_rows, query.words))
            if number <= _MIN_MATCHING_DOCUMENTS or number * share + new < limit:
                return None
            return self._search(connection, snapshot, query, access_filter, limit, share=share)
        except CacheError as error:
            _log.warning("texts.cache_failed", reason=str(error))
            self._snapshot, self._damaged_snapshot = None, snapshot
            return None

    def _search(
        self,
        connection: sqlite3.Connection,
        snapshot: TermSnapshot,
        query: FtsQuery,
        access_filter: AccessFilter,
        limit: int,
        *,
        share: float,
    ) -> list[tuple[float, str]] | None:
        checks_owner = query.is_unfiltered and share >= _MIN_UNFILTERED_SHARE
        required = () if checks_owner else query.required_tokens
        scores, ids = dict[int, float](), dict[int, str]()
        fetch_count = math.ceil(_OVERFETCH_FACTOR * limit / (share if checks_owner else 1.0)) + _OVERFETCH_EXTRA
        for _ in range(2):
            scores = snapshot.search(query.words, required, fetch_count)
            ids = filter_visible(connection, scores, access_filter, checks_owner=checks_owner)
            if len(ids) >= limit or len(scores) < fetch_count:
                break
            fetch_count *= _REFETCH_FACTOR
        new = self._load_new_texts(connection, snapshot, query)
        newer = filter_visible(connection, new, access_filter, checks_owner=False) if new else {}
        if len(ids) + len(newer) < limit:
            return None
        scores = {row: scores[row] for row in ids} | snapshot.score_texts(query.words, {row: new[row] for row in newer})
        ids |= newer
        # The best scores come first. Further down, a pair of words cannot lift a document to the top.
        best = sorted(scores, key=lambda row: -scores[row])[: _PAIRED_FACTOR * limit] if query.pairs else []
        pair_scores = snapshot.score_pairs(query.pairs, {row: text for row, (text, _) in _load_texts(connection, best).items()})
        return [(-(scores[row] + pair_scores.get(row, 0.0)), memory_id) for row, memory_id in ids.items()]

    def _load_new_texts(self, connection: sqlite3.Connection, snapshot: TermSnapshot, query: FtsQuery) -> dict[int, tuple[str, str]]:
        """Return the texts of documents that *query* finds and the cache does not have yet."""
        if connection.execute(_MAX_ROW).fetchone()[0] <= snapshot.last_row:
            return {}
        return _load_texts(
            connection, [row for (row,) in connection.execute(_NEWER, (query.to_expression(query.words), snapshot.last_row))]
        )

    def _run(self) -> None:
        changed_s: float | None = None
        while not self._stop.wait(_POLL_INTERVAL_S):
            try:
                damaged, self._damaged_snapshot = self._damaged_snapshot, None
                if damaged is not None:
                    # A damaged index can open without an error and would count as intact again.
                    raise CacheError("a search found damage in it")  # noqa: TRY301 - deleted below, as every damaged cache
                self._refresh()
                new = self._count_new()
                changed_s = (changed_s or time.monotonic()) if new else None
                if changed_s is not None and (new >= _UPDATE_AFTER_ROWS or time.monotonic() - changed_s >= _UPDATE_DELAY_S):
                    changed_s = None
                    if self._has_room():
                        self._update()
                    else:
                        _log.warning("texts.cache_waits", reason=f"the cache needs {_MIN_FREE_BYTES:,} bytes of free disk space")
                        self._stop.wait(_RETRY_DELAY_S)
            except Exception as error:  # noqa: BLE001 - only a cache: SQLite answers meanwhile, and the next attempt follows
                _log.warning("texts.cache_failed", reason=f"{type(error).__name__}: {error}")
                self._snapshot = self._index = None
                self._meta_mtime_ns = 0
                if isinstance(error, CacheError):
                    shutil.rmtree(self._folder, ignore_errors=True)
                self._stop.wait(_RETRY_DELAY_S)

    def _count_new(self) -> int:
        """Return the number of rows added or deleted since the last update; 0 in a store that is too small for a cache."""
        covered_row = 0 if self._snapshot is None else self._snapshot.last_row

        def count(connection: sqlite3.Connection) -> int:
            (last_given,) = connection.execute(_LAST_ROW).fetchone()
            (last,) = connection.execute(_MAX_ROW).fetchone()
            (deleted_count,) = connection.execute("SELECT count(*) FROM gone").fetchone()
            return max(0, int(last) - covered_row) + int(deleted_count) if last_given >= MIN_DOCUMENTS else 0

        return self._run_read(count)

    def _refresh(self) -> None:
        """Open a newer state that this or another process wrote. Close the index if its files were deleted, for example by `erasure`."""
        if self._index is not None and not (self._folder / "meta.json").exists():
            self._snapshot = self._index = None
            self._meta_mtime_ns = 0
        with contextlib.suppress(OSError):
            mtime_ns = (self._folder / "meta.json").stat().st_mtime_ns
            if mtime_ns != self._meta_mtime_ns:
                snapshot = self._open_index().take_snapshot()
                if snapshot.last_row > self._run_read(lambda connection: int(connection.execute(_LAST_ROW).fetchone()[0])):
                    raise CacheError("it is newer than texts.db, which was restored from an older copy")
                self._snapshot, self._meta_mtime_ns = snapshot, mtime_ns

    def _open_index(self) -> TermIndex:
        if self._index is None:
            for other in self._folder.parent.glob("*"):
                if other != self._folder:
                    shutil.rmtree(other, ignore_errors=True)
            self._index = TermIndex(self._folder, context_weight=self._context_weight)
        return self._index

    def _has_room(self) -> bool:
        folder = next(parent for parent in self._folder.parents if parent.exists())
        return shutil.disk_usage(folder).free >= _MIN_FREE_BYTES

    def _update(self) -> None:
        terms = self._open_index()
        writer = terms.open_writer()
        if writer is None:
            return
        started_s, covered_row = time.monotonic(), terms.take_snapshot().last_row
        last = self._run_read(lambda connection: int(connection.execute(_MAX_ROW).fetchone()[0]))
        # Set first: from now on, deletions of these rows are recorded for the cache.
        self._write(lambda connection: connection.execute(_SET_COVERED, (last,)))
        uncommitted = added_count = 0
        for rows in self._iter_rows(covered_row, last):
            for row in rows:
                terms.add(writer, row)
            added_count += len(rows)
            uncommitted += len(rows)
            if uncommitted >= _ROWS_PER_COMMIT:
                writer.commit()
                uncommitted = 0
            if self._stop.wait(_BATCH_PAUSE_S):
                break
        self._delete_rows(terms, writer)
        writer.wait_merging_threads()
        self._snapshot = terms.take_snapshot()
        if added_count >= _ROWS_PER_COMMIT:
            _log.info("texts.cache_built", documents=added_count, seconds=round(time.monotonic() - started_s, 1))

    def _delete_rows(self, terms: TermIndex, writer: tantivy.IndexWriter) -> None:
        deleted_rows = self._run_read(lambda connection: [int(row) for (row,) in connection.execute(_DELETED_ROWS)])
        for row in deleted_rows:
            terms.delete(writer, row)
        writer.commit()
        if deleted_rows:
            self._write(lambda connection: connection.execute(_CLEAR_DELETED_ROWS, (rows_to_json(deleted_rows),)))

    def _iter_rows(self, covered_row: int, last: int) -> Iterator[list[TextRow]]:
        while True:
            results = self._run_read(
                lambda connection, covered_row=covered_row: connection.execute(_ROWS, (covered_row, last, _ROWS_PER_BATCH)).fetchall()
            )
            if not results:
                return
            yield [TextRow(id=row, content=content, context=context, tokens=tokens) for row, content, context, tokens in results]
            covered_row = results[-1][0]

    def _run_read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        results = list[T]()
        self._read(lambda connection: results.append(work(connection)))
        return results[0]


def _load_texts(connection: sqlite3.Connection, rows: Iterable[int]) -> dict[int, tuple[str, str]]:
    records = connection.execute(_TEXTS, (_MAX_READ_CHARS, rows_to_json(rows))).fetchall()
    return {row: (content, context) for row, content, context in records}
