"""
A tantivy index for each large workspace of `texts.db`, which answers questions 3 to 20 times faster than FTS5 (`benchmarks.large_texts`).

SQLite scores each document that has a word, at about a microsecond each: half a second with a million documents, and words that a tenth of
them have. The ranking of the cache is equally good but not identical: it has a newer Porter stemmer, and pairs of words get the rarity of
their words. LoCoMo's turns (development half), by keywords alone: MRR 50.0, and 49.3 by SQLite; hybrid 50.4 and 50.6.

It is a cache of the documents of a workspace up to a row. Row numbers increase with each write and rows never change, so newer and deleted
rows are always known. A damaged cache is deleted and built again; meanwhile, and for missing rows, SQLite answers. One process at a time
writes the cache, and all read it.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, cast

import orjson
import structlog
import tantivy
from tantivy import Occur, Query

from rookery.engines.texts.query import FtsQuery
from rookery.engines.texts.words import inverse_frequency
from rookery.memory.models import MemoryScope

T = TypeVar("T")
Read = Callable[[Callable[[sqlite3.Connection], object]], object]

MIN_UNFILTERED_SHARE = 0.5
"""Share of readable documents from which on a search of all documents with a check afterwards is faster."""

_OVERFETCH_FACTOR, _OVERFETCH_EXTRA, _REFETCH_FACTOR = 1.1, 10, 4
"""Over-fetch factor and addend, and the factor of the second attempt when filters drop too many candidates."""

_MAX_READ_CHARS = 6_000
"""Maximum characters of a text that are searched for pairs, and of a new text for words."""

_ROWS_PER_BATCH, _ROWS_PER_COMMIT, _BATCH_PAUSE_S = 200, 50_000, 0.002
"""There is a pause between batches of rows, since adding rows holds the GIL."""

_CLOSE_TIMEOUT_S = 10.0

_WRITER_HEAP_BYTES = 48_000_000
_BM25_K1, _BM25_B = 1.2, 0.75
"""Parameters of bm25, as in tantivy and SQLite."""

_DAMAGE = (ValueError, OSError)  # errors of tantivy; after one, the cache is deleted and built again

_LIST_LARGE = "SELECT id FROM workspace WHERE written >= ?"
_MAX_ROW = "SELECT coalesce(max(id), 0) FROM document WHERE workspace_id = ?"
_COUNT_NEWER = "SELECT count(*) FROM (SELECT 1 FROM document WHERE workspace_id = ? AND id > ? LIMIT ?)"
_LAST_ROW = "SELECT value FROM counter WHERE name = 'last_row'"
_COUNT_GONE = "SELECT count(*) FROM gone WHERE workspace_id = ?"
_LIST_WITHOUT_GONE = "SELECT id FROM workspace WHERE NOT EXISTS (SELECT 1 FROM gone WHERE gone.workspace_id = workspace.id)"
_SET_COVERED = "UPDATE workspace SET covered = max(covered, ?) WHERE id = ?"
_ROWS = "SELECT id, content, context, tokens FROM document WHERE workspace_id = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?"
_TEXTS = "SELECT d.id, substr(d.content, 1, ?), d.context FROM json_each(?) AS found CROSS JOIN document AS d ON d.id = found.value"
_DELETED_ROWS = "SELECT row FROM gone WHERE workspace_id = ? ORDER BY row LIMIT 20000"
_CLEAR_DELETED_ROWS = "DELETE FROM gone WHERE row IN (SELECT value FROM json_each(?))"
_VISIBLE = """
SELECT json_group_object(d.id, d.memory_id) FROM json_each(:ids) AS found CROSS JOIN document AS d ON d.id = found.value
WHERE d.workspace_id = :workspace_id
  AND (d.expires_at IS NULL OR d.expires_at > :at)
"""
_IS_OWNED = f"""
      (d.memory_scope IN ('{MemoryScope.PROJECT}', '{MemoryScope.SHARED}')
       OR (d.memory_scope = '{MemoryScope.AGENT}' AND d.agent_id = :agent_id)
       OR (d.memory_scope = '{MemoryScope.SESSION}' AND d.session_id IN (SELECT value FROM json_each(:session_ids))))
"""  # noqa: S608 - contains only names of scopes

_log = structlog.stdlib.get_logger("rookery.texts")


@dataclass(frozen=True, slots=True, kw_only=True)
class TermCacheLimits:
    """
    Bounds on the use and the updates of the cache.

    Attributes:
        min_documents: Documents that a workspace has ever written from which on it has a cache. Below it, SQLite is fast enough.
        min_matching_documents: SQLite answers queries whose words occur in at most this many documents.
        max_new_documents: SQLite answers all queries if more documents are missing in the cache.
        update_after_rows: New documents after which the cache is updated.
        update_delay_s: Seconds after the first new document after which the cache is updated.
        poll_interval_s: Seconds between checks for new documents.
        retry_delay_s: Delay of the next attempt after a failure or with a nearly full disk.
        min_free_bytes: Free disk space that the cache never uses. Writes are rejected below half of it.
    """

    min_documents: int = 20_000
    min_matching_documents: int = 2_000
    max_new_documents: int = 1_000
    update_after_rows: int = 250
    update_delay_s: float = 5.0
    poll_interval_s: float = 0.25
    retry_delay_s: float = 60.0
    min_free_bytes: int = 1024**3


class TermCaches:
    """
    The caches of the large workspaces of one `texts.db`. A thread adds those of workspaces that become large.

    Args:
        folder: Folder of the caches. Each is named after the identity of the file and its workspace.
        identity: Identity of the file. Caches with another one belong to deleted files.
    """

    def __init__(self, folder: Path, identity: str, *, context_weight: float, read: Read, write: Read, limits: TermCacheLimits) -> None:
        self._folder = folder
        self._identity = identity
        self._context_weight = context_weight
        self._read = read
        self._write = write
        self._limits = limits
        self._caches: dict[int, TermCache] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Delete the caches of deleted files, open existing ones and start the updates. A second call has no effect."""
        if self._thread is None:
            for path in self._folder.glob("*"):
                if not path.name.startswith(f"{self._identity}-"):
                    shutil.rmtree(path, ignore_errors=True)
            self._update_caches()
            self._thread = threading.Thread(target=self._run, name="texts-caches", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the updates. Blocks until the current batches are committed, which takes one or two seconds in a very large workspace."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)
        for cache in self._caches.values():
            cache.stop()
        for cache in self._caches.values():
            cache.join()

    def find(self, workspace_id: int) -> TermCache | None:
        """Return the cache of a workspace; None if it has none."""
        return self._caches.get(workspace_id)

    @property
    def are_caught_up(self) -> bool:
        """True if the cache of each large workspace contains all of its documents."""
        caches = [self._caches.get(workspace_id) for workspace_id in self._list_large()]
        return all(cache is not None and cache.is_caught_up for cache in caches)

    def delete_stale(self, connection: sqlite3.Connection) -> None:
        """Delete the caches with words of deleted rows. A process that uses one uses SQLite until it is built again."""
        names = {self._get_folder(workspace_id).name for (workspace_id,) in connection.execute(_LIST_WITHOUT_GONE).fetchall()}
        for path in self._folder.glob("*"):
            if path.is_dir() and (path.name not in names or _has_deletions(path)):
                shutil.rmtree(path, ignore_errors=True)

    def _run(self) -> None:
        while not self._stop.wait(self._limits.poll_interval_s):
            try:
                self._update_caches()
            except Exception as error:  # noqa: BLE001 - only caches: SQLite answers meanwhile, and the next attempt follows
                _log.warning("texts.cache_failed", reason=f"{type(error).__name__}: {error}")
                self._stop.wait(self._limits.retry_delay_s)

    def _update_caches(self) -> None:
        """Add the caches of workspaces that have become large, and remove those of workspaces without documents."""
        large_ids = self._list_large()
        for workspace_id in self._caches.keys() - large_ids:
            self._caches[workspace_id].stop()
        caches = {workspace_id: cache for workspace_id, cache in self._caches.items() if workspace_id in large_ids}
        for workspace_id in large_ids - caches.keys():
            cache = caches[workspace_id] = TermCache(
                self._get_folder(workspace_id),
                workspace_id,
                context_weight=self._context_weight,
                read=self._read,
                write=self._write,
                limits=self._limits,
            )
            cache.start()
        self._caches = caches

    def _list_large(self) -> set[int]:
        rows = self._read(lambda connection: connection.execute(_LIST_LARGE, (self._limits.min_documents,)).fetchall())
        return {workspace_id for (workspace_id,) in cast("list[tuple[int]]", rows)}

    def _get_folder(self, workspace_id: int) -> Path:
        return self._folder / f"{self._identity}-{workspace_id}"


class TermCache:
    """
    The cache of one workspace, updated by its own thread.

    Args:
        folder: Folder of the cache.
        context_weight: Weight of a word in the context relative to one in the content.
        read: Runs a function with a read-only connection.
        write: Runs a function in a transaction.
        limits: Bounds on the use and the updates of the cache.
    """

    def __init__(self, folder: Path, workspace_id: int, *, context_weight: float, read: Read, write: Read, limits: TermCacheLimits) -> None:
        self._folder = folder
        self._workspace_id = workspace_id
        self._context_weight = context_weight
        self._read = read
        self._write = write
        self._limits = limits
        words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.lowercase())
        self._analyzer = words.filter(tantivy.Filter.ascii_fold()).filter(tantivy.Filter.stemmer("english")).build()
        self._index: tantivy.Index | None = None
        self._snapshot: _Snapshot | None = None
        self._damaged_snapshot: _Snapshot | None = None
        self._meta_mtime_ns = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open an existing cache and start the updates. A second call has no effect."""
        if self._thread is None:
            with contextlib.suppress(*_DAMAGE, sqlite3.Error):  # the thread has the same error, and repairs it
                self._refresh()
            self._thread = threading.Thread(target=self._run, name="texts-cache", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the updates after the current batch."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end of the updates."""
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    @property
    def is_caught_up(self) -> bool:
        """True if the cache contains all documents."""
        return self._count_new() == 0

    def count_documents(self, words: Iterable[str]) -> dict[str, tuple[int, int]] | None:
        """Return for each of *words* the approximate number of documents that have it, and that of all. None if there is no cache yet."""
        snapshot = self._snapshot
        return None if snapshot is None else {word: (snapshot.count_rows(word), snapshot.row_count) for word in words}

    def search(self, connection: sqlite3.Connection, table: str, query: FtsQuery, limit: int) -> list[tuple[float, str]] | None:
        """Return (score, memory id) of the best documents; lower scores are better. None if SQLite must answer."""
        snapshot = self._snapshot
        if snapshot is None or not query.words:
            return None
        most_new = self._limits.max_new_documents
        new_count = connection.execute(_COUNT_NEWER, (self._workspace_id, snapshot.last_row, most_new + 1)).fetchone()[0]
        if new_count > most_new:
            return None
        try:
            share = min(1.0, snapshot.compute_share(query.required_tokens[0]))
            match_count = sum(map(snapshot.count_rows, query.words_and_stems))
            if match_count <= self._limits.min_matching_documents or match_count * share + new_count < limit:
                return None
            return _search(connection, table, snapshot, query, limit, share=share, has_new=new_count > 0)
        except _DAMAGE as error:
            _log.warning("texts.cache_failed", reason=str(error))
            self._snapshot, self._damaged_snapshot = None, snapshot
            return None

    def _run(self) -> None:
        changed_s: float | None = None
        limits = self._limits
        while not self._stop.wait(limits.poll_interval_s):
            try:
                damaged, self._damaged_snapshot = self._damaged_snapshot, None
                if damaged is not None:
                    # A damaged index can open without an error and would count as intact again.
                    raise OSError("a search found damage in it")  # noqa: TRY301 - deleted below, as every damaged cache
                self._refresh()
                new = self._count_new()
                changed_s = (changed_s or time.monotonic()) if new else None
                if changed_s is not None and (new >= limits.update_after_rows or time.monotonic() - changed_s >= limits.update_delay_s):
                    changed_s = None
                    if self._has_room():
                        self._update()
                    else:
                        _log.warning("texts.cache_waits", reason=f"the cache needs {limits.min_free_bytes:,} bytes of free disk space")
                        self._stop.wait(limits.retry_delay_s)
            except Exception as error:  # noqa: BLE001 - only a cache: SQLite answers meanwhile, and the next attempt follows
                _log.warning("texts.cache_failed", reason=f"{type(error).__name__}: {error}")
                self._forget_index()
                if isinstance(error, _DAMAGE):
                    shutil.rmtree(self._folder, ignore_errors=True)
                self._stop.wait(limits.retry_delay_s)

    def _count_new(self) -> int:
        """Return the number of rows added or deleted since the last update, at most some more than `update_after_rows` of each."""
        covered_row = 0 if self._snapshot is None else self._snapshot.last_row

        def count(connection: sqlite3.Connection) -> int:
            newer = (self._workspace_id, covered_row, self._limits.update_after_rows + 1)
            (new_count,) = connection.execute(_COUNT_NEWER, newer).fetchone()
            (gone_count,) = connection.execute(_COUNT_GONE, (self._workspace_id,)).fetchone()
            return int(new_count) + int(gone_count)

        return self._run_read(count)

    def _refresh(self) -> None:
        """Open a newer state that this or another process wrote. Close the index if its files were deleted, for example by an erasure."""
        if self._index is not None and not (self._folder / "meta.json").exists():
            self._forget_index()
        with contextlib.suppress(FileNotFoundError):
            mtime_ns = (self._folder / "meta.json").stat().st_mtime_ns
            if mtime_ns != self._meta_mtime_ns:
                snapshot = _Snapshot(self._open_index(), self._analyzer, self._context_weight)
                if snapshot.last_row > self._run_read(lambda connection: int(connection.execute(_LAST_ROW).fetchone()[0])):
                    raise ValueError("it is newer than texts.db, which was restored from an older copy")
                self._snapshot, self._meta_mtime_ns = snapshot, mtime_ns

    def _forget_index(self) -> None:
        self._snapshot = self._index = None
        self._meta_mtime_ns = 0

    def _open_index(self) -> tantivy.Index:
        """Open or create the index. Delete a damaged one first."""
        if self._index is None:
            try:
                self._index = self._create_index()
            except _DAMAGE:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._index = self._create_index()
        return self._index

    def _create_index(self) -> tantivy.Index:
        builder = tantivy.SchemaBuilder()
        builder.add_integer_field("row", indexed=True, fast=True)
        builder.add_text_field("content", tokenizer_name="words", index_option="freq")
        builder.add_text_field("context", tokenizer_name="words", index_option="freq")
        builder.add_text_field("tokens", tokenizer_name="whitespace", index_option="basic")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        index = tantivy.Index(builder.build(), path=str(self._folder))
        index.register_tokenizer("words", self._analyzer)
        index.searcher()
        return index

    def _has_room(self) -> bool:
        folder = next(parent for parent in self._folder.parents if parent.exists())
        return shutil.disk_usage(folder).free >= self._limits.min_free_bytes

    def _update(self) -> None:
        index = self._open_index()
        try:
            writer = index.writer(_WRITER_HEAP_BYTES, 1)
        except ValueError:
            return  # another process has the writer
        started_s, covered_row = time.monotonic(), _Snapshot(index, self._analyzer, self._context_weight).last_row
        last = self._run_read(lambda connection: int(connection.execute(_MAX_ROW, (self._workspace_id,)).fetchone()[0]))
        # Set first: from now on, deletions of these rows are recorded for the cache.
        self._write(lambda connection: connection.execute(_SET_COVERED, (last, self._workspace_id)))
        added_count = self._add_rows(writer, covered_row, last)
        deleted_rows = self._run_read(lambda connection: [int(row) for (row,) in connection.execute(_DELETED_ROWS, (self._workspace_id,))])
        for row in deleted_rows:
            writer.delete_documents_by_term("row", row)
        writer.commit()
        if deleted_rows:
            self._write(lambda connection: connection.execute(_CLEAR_DELETED_ROWS, (rows_to_json(deleted_rows),)))
        writer.wait_merging_threads()
        self._snapshot = _Snapshot(index, self._analyzer, self._context_weight)
        if added_count >= _ROWS_PER_COMMIT:
            _log.info("texts.cache_built", documents=added_count, seconds=round(time.monotonic() - started_s, 1))

    def _add_rows(self, writer: tantivy.IndexWriter, covered_row: int, last: int) -> int:
        """Add the rows after *covered_row* up to *last*, or until the cache is closed. Return their number."""
        added_count = uncommitted = 0
        while not self._stop.wait(_BATCH_PAUSE_S):
            rows = self._run_read(
                lambda connection, covered_row=covered_row: connection.execute(
                    _ROWS, (self._workspace_id, covered_row, last, _ROWS_PER_BATCH)
                ).fetchall()
            )
            if not rows:
                break
            for row, content, context, tokens in rows:
                document = tantivy.Document()
                document.add_integer("row", row)
                document.add_text("content", content)
                document.add_text("context", context)
                document.add_text("tokens", tokens)
                writer.add_document(document)
            covered_row = rows[-1][0]
            added_count, uncommitted = added_count + len(rows), uncommitted + len(rows)
            if uncommitted >= _ROWS_PER_COMMIT:
                writer.commit()
                uncommitted = 0
        return added_count

    def _run_read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return cast("T", self._read(work))


class _Snapshot:
    """The state of the cache at one moment. It contains all rows up to `last_row` that existed at that moment."""

    def __init__(self, index: tantivy.Index, analyzer: tantivy.TextAnalyzer, context_weight: float) -> None:
        index.reload()  # changes of other processes
        self._schema = index.schema
        self._analyze = analyzer.analyze
        self._context_weight = context_weight
        self._searcher = index.searcher()
        self.row_count = max(self._searcher.num_docs, 1)
        last = self._searcher.search(Query.all_query(), 1, count=False, order_by_field="row").hits
        self.last_row = self._get_rows([address for _, address in last])[0] if last else 0

    def count_rows(self, word: str) -> int:
        """Return the approximate number of rows that contain *word*."""
        return max(map(self._count_stem, self._analyze(word)), default=0)

    def compute_share(self, tokens: Iterable[str]) -> float:
        """Return the fraction of rows with one of *tokens*. A row with two of them counts twice."""
        return sum(self._searcher.doc_freq("tokens", token) for token in tokens) / self.row_count

    def search(self, words: Sequence[str], required_tokens: Sequence[Sequence[str]], limit: int) -> dict[int, float]:
        """Return the scores of the best rows with any of *words* and one of each of *required_tokens*; higher scores are better."""
        stems = [stem for word in words for stem in self._analyze(word)]
        in_context = [Query.boost_query(self._term_query("context", stem, "freq"), self._context_weight) for stem in stems]
        any_stem = [*(self._term_query("content", stem, "freq") for stem in stems), *in_context]
        query = Query.boolean_query([(Occur.Should, part) for part in any_stem])
        for tokens in required_tokens:
            any_token = Query.boolean_query([(Occur.Should, self._term_query("tokens", token, "basic")) for token in tokens])
            query = Query.boolean_query([(Occur.Must, query), (Occur.Must, Query.const_score_query(any_token, 0.0))])
        hits = self._searcher.search(query, limit, count=False).hits
        rows = self._get_rows([address for _, address in hits])
        return {row: float(score) for row, (score, _) in zip(rows, hits, strict=True)}

    def score_pairs(self, pairs: Sequence[str], texts: Mapping[int, str]) -> dict[int, float]:
        """Return additional scores of *texts* in which the words of *pairs* are adjacent. Each pair counts once per text."""
        weights = {tuple(stems): self._inverse_frequency(stems) for stems in map(self._analyze, pairs) if len(stems) == 2}
        stems_by_row = {row: self._analyze(text) for row, text in texts.items()} if weights else {}
        average_length = sum(map(len, stems_by_row.values())) / max(len(stems_by_row), 1)
        matched = {row: {pair for pair in pairwise(stems) if pair in weights} for row, stems in stems_by_row.items()}
        return {
            row: math.fsum(map(weights.__getitem__, pairs_of_row)) * _bm25_weight(1.0, len(stems_by_row[row]) / average_length)
            for row, pairs_of_row in matched.items()
            if pairs_of_row
        }

    def score_texts(self, words: Sequence[str], texts: Mapping[int, tuple[str, str]]) -> dict[int, float]:
        """Return scores of texts that are not in the cache, on the same scale. *texts* maps rows to (content, context)."""
        weights = {stem: self._inverse_frequency([stem]) for word in words for stem in self._analyze(word)} if texts else {}
        stems_by_row = {row: (self._analyze(content), self._analyze(context)) for row, (content, context) in texts.items()}
        average_length = max(sum(len(stems) for stems, _ in stems_by_row.values()) / max(len(stems_by_row), 1), 1.0)
        return {
            row: sum(
                weight
                * (
                    _bm25_weight(stems.count(stem), len(stems) / average_length)
                    + self._context_weight * _bm25_weight(context.count(stem), 1.0)
                )
                for stem, weight in weights.items()
            )
            for row, (stems, context) in stems_by_row.items()
        }

    def _count_stem(self, stem: str) -> int:
        """Return the number of rows with *stem*, including rows that were deleted recently."""
        return max(self._searcher.doc_freq("content", stem), self._searcher.doc_freq("context", stem))

    def _inverse_frequency(self, stems: Iterable[str]) -> float:
        """Return the sum of the inverse document frequencies (bm25) of *stems*."""
        total = self.row_count
        return sum(inverse_frequency(count, total) for count in map(self._count_stem, stems))

    def _term_query(self, field: str, term: str, option: str) -> Query:
        return Query.term_query(self._schema, field, term, option)

    def _get_rows(self, addresses: list[tantivy.DocAddress]) -> list[int]:
        return [int(value or 0) for value in self._searcher.fast_field_values("row", addresses)]


def _search(
    connection: sqlite3.Connection, table: str, snapshot: _Snapshot, query: FtsQuery, limit: int, *, share: float, has_new: bool
) -> list[tuple[float, str]] | None:
    checks_owner = query.is_unfiltered and share >= MIN_UNFILTERED_SHARE
    scores, ids = dict[int, float](), dict[int, str]()
    fetch_count = math.ceil(_OVERFETCH_FACTOR * limit / (share if checks_owner else 1.0)) + _OVERFETCH_EXTRA
    for _ in range(2):
        scores = snapshot.search(query.words_and_stems, () if checks_owner else query.required_tokens, fetch_count)
        ids = filter_visible(connection, scores, query, checks_owner=checks_owner)
        if len(ids) >= limit or len(scores) < fetch_count:
            break
        fetch_count *= _REFETCH_FACTOR
    newer = dict[int, str]()
    if has_new:
        find_newer = f"SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid > ?"  # noqa: S608 - own words
        newer_rows = [row for (row,) in connection.execute(find_newer, (query.to_expression(query.words_and_stems), snapshot.last_row))]
        newer = filter_visible(connection, newer_rows, query, checks_owner=False)
    if len(ids) + len(newer) < limit:
        return None
    scores = {row: scores[row] for row in ids} | snapshot.score_texts(query.words_and_stems, _load_texts(connection, newer))
    ids |= newer
    # The best scores come first. Further down, a pair of words cannot lift a document to the top.
    best = sorted(scores, key=lambda row: -scores[row])[:limit] if query.pairs else []
    pair_scores = snapshot.score_pairs(query.pairs, {row: text for row, (text, _) in _load_texts(connection, best).items()})
    return [(-(scores[row] + pair_scores.get(row, 0.0)), memory_id) for row, memory_id in ids.items()]


def filter_visible(connection: sqlite3.Connection, rows: Iterable[int], query: FtsQuery, *, checks_owner: bool) -> dict[int, str]:
    """Return {row: memory id} of those of *rows* that the filter allows. *checks_owner* is for rows found without access conditions."""
    values = {**query.values, "ids": rows_to_json(rows)}
    statement = " AND ".join((_VISIBLE, *([_IS_OWNED] if checks_owner else []), *query.row_conditions))
    # One JSON row: fetching several would release the GIL between rows and wait for it on a busy server.
    memory_ids: dict[str, str] = orjson.loads(connection.execute(statement, values).fetchone()[0])
    return {int(row): memory_id for row, memory_id in memory_ids.items()}


def _load_texts(connection: sqlite3.Connection, rows: Iterable[int]) -> dict[int, tuple[str, str]]:
    records = connection.execute(_TEXTS, (_MAX_READ_CHARS, rows_to_json(rows))).fetchall() if rows else []
    return {row: (content, context) for row, content, context in records}


def _bm25_weight(count: float, length: float) -> float:
    """Return the bm25 weight of a word that occurs *count* times in a text of *length*, relative to the average length."""
    return count * (_BM25_K1 + 1) / (count + _BM25_K1 * (1 - _BM25_B + _BM25_B * length)) if count else 0.0


def rows_to_json(rows: Iterable[int]) -> str:
    return orjson.dumps(list(rows)).decode()


def _has_deletions(folder: Path) -> bool:
    """Return whether a segment has deleted rows. True also if the metadata cannot be read."""
    try:
        meta = cast("dict[str, list[dict[str, object]]]", orjson.loads((folder / "meta.json").read_bytes()))
        return any(segment["deletes"] is not None for segment in meta["segments"])
    except (OSError, ValueError, KeyError, TypeError):
        return True
