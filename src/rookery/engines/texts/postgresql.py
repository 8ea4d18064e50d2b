"""
A full-text index in PostgreSQL, without an extension, which any number of hosts share.

A question is answered from the documents with its rarest words, in two requests: the numbers of documents with each word, which are cached,
and the search. A search with syntax scores every document that matches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from typing import Generic, TypeVar, cast

from rookery.engines.texts import postgresql_sql
from rookery.engines.texts.postgresql_query import ScoreWeights, build_count, build_search
from rookery.engines.texts.postgresql_sql import PostgresQuery, Term, build_put, build_query, make_row
from rookery.engines.texts.words import inverse_frequency, stem_query
from rookery.kernel.postgresql import PostgresConnection, PostgresPool
from rookery.memory.models import AccessFilter, IndexDocument, TextHit, TextQuery
from rookery.memory.ports import TextFeature

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_VALIDITY_FACTOR = 200.0
"""The time for which a value is valid, in times that it took to count. So counting takes at most a two-hundredth of the time."""

_MAX_VALIDITY_S = 600.0
_MAX_CACHED = 20_000

T = TypeVar("T")

ENGINE = "texts"

_QUERY_TIMEOUT_S = 5.0
_WRITE_TIMEOUT_S = 30
_LONG_TIMEOUT_S = 3600
_BATCH_DOCUMENTS = 500

_MAX_SCORED_DOCUMENTS = 2_000
_MIN_DOCUMENTS_FACTOR = 5
"""As in the embedded engine: documents that a question scores, and candidates for each result that it needs at least."""

_PAIRED_FACTOR = 2
"""Documents whose pairs of words count, for each result of a question. Further down, a pair cannot lift a document to the top."""

_SET_LOCAL = "SELECT set_config('statement_timeout', %(timeout)s, true), set_config('synchronous_commit', %(commit)s, true)"

_BEFORE_ALL = (-1, "")

_ALL = ""
"""In place of a word in the cache of counts: all documents of a workspace, with their mean length."""


class CountCache(Generic[K, V]):
    """
    A cache of values that a server counts.

    In a small workspace, where counting is fast, they are always nearly up to date.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: dict[K, tuple[float, V]] = {}

    async def get(self, keys: Sequence[K], count: Callable[[Sequence[K]], Awaitable[Sequence[V]]]) -> list[V]:
        """Return the values of *keys*. *count* returns those that are not cached or no longer valid, in order."""
        now_s = self._clock()
        values = {key: entry[1] for key in keys if (entry := self._values.get(key)) is not None and entry[0] > now_s}
        missing = [key for key in dict.fromkeys(keys) if key not in values]
        if missing:
            counted_values = dict(zip(missing, await count(missing), strict=True))
            end_s = self._clock()
            valid_until_s = end_s + min(_VALIDITY_FACTOR * (end_s - now_s), _MAX_VALIDITY_S)
            if len(self._values) + len(counted_values) > _MAX_CACHED:
                self._values.clear()
            self._values |= {key: (valid_until_s, value) for key, value in counted_values.items()}
            values |= counted_values
        return [values[key] for key in keys]


class PostgresTextIndex:
    """A `TextEngine` on a PostgreSQL server."""

    lacks = frozenset({TextFeature.ERASURE})

    def __init__(self, url: str, *, query_timeout_s: float = _QUERY_TIMEOUT_S, max_scored_documents: int = _MAX_SCORED_DOCUMENTS) -> None:
        self._query_timeout = f"{int(query_timeout_s * 1000)}ms"
        self._max_scored_documents = max_scored_documents
        self._is_set_up = False
        self._counts = CountCache[tuple[int, str], tuple[int, float]]()
        # Compiling a statement takes longer than running it, and a plan without its words may read the whole table.
        options = {"statement_timeout": self._query_timeout, "jit": "off", "plan_cache_mode": "force_custom_plan"}
        self._pool = PostgresPool(url, engine=ENGINE, options=options, on_missing_table=self._forget_table)

    async def start(self) -> None:
        async def check(connection: PostgresConnection) -> None:
            await connection.execute("SELECT 1")

        await self._pool.run(check)

    async def close(self) -> None:
        await self._pool.close()

    async def setup(self) -> None:
        self._is_set_up = False

        async def create_filter_indexes(connection: PostgresConnection) -> None:
            # For a table whose indexes were dropped. Its writes wait meanwhile, so no request does this.
            async with connection.transaction():
                await connection.execute(_SET_LOCAL, {"timeout": f"{_LONG_TIMEOUT_S}s", "commit": "on"})
                await connection.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": postgresql_sql.SETUP_LOCK})
                await _create_filter_indexes(connection)

        await self._run(create_filter_indexes)

    async def put(self, documents: Sequence[IndexDocument], *, is_early: bool = False) -> None:
        latest = {(document.workspace_id, document.memory_id): document for document in documents}
        ordered = [latest[key] for key in sorted(latest)]  # two writers that lock rows in the same order do not block each other
        statement = build_put(is_early=is_early)
        for start in range(0, len(ordered), _BATCH_DOCUMENTS):
            rows = await asyncio.to_thread(_make_rows, ordered[start : start + _BATCH_DOCUMENTS])

            async def put(connection: PostgresConnection, rows: Sequence[postgresql_sql.Parameters] = rows) -> None:
                async with connection.pipeline(), connection.transaction(), connection.cursor() as cursor:  # in one round trip
                    await cursor.execute(_SET_LOCAL, {"timeout": f"{_WRITE_TIMEOUT_S}s", "commit": "off" if is_early else "on"})
                    await cursor.executemany(statement, rows)

            await self._run(put)

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        if not ids:
            return

        async def drop(connection: PostgresConnection) -> None:
            async with connection.transaction():
                await connection.execute(_SET_LOCAL, {"timeout": f"{_WRITE_TIMEOUT_S}s", "commit": "on"})
                await connection.execute(postgresql_sql.DROP, {"workspace_id": workspace_id, "ids": sorted(set(ids))})

        await self._run(drop)

    async def search(self, query: TextQuery, *, access_filter: AccessFilter, limit: int, offset: int = 0) -> list[TextHit]:
        stemmed = stem_query(query)
        if stemmed is None:
            return []
        terms = build_query(stemmed, access_filter.workspace_id)

        async def search(connection: PostgresConnection) -> list[TextHit]:
            counts, total, average_length = await self._count_terms(connection, terms, access_filter.workspace_id)
            weights = _weigh(terms, counts, total, average_length)
            is_question = query.is_question and offset == 0

            async def find(candidate_words: Sequence[Term]) -> list[tuple[str, float, list[bool]]]:
                paired = _PAIRED_FACTOR * limit if is_question else None
                statement, parameters = build_search(
                    terms, weights, access_filter, candidate_words=candidate_words, paired=paired, limit=limit, offset=offset
                )
                cursor = await connection.execute(statement, parameters)
                return cast("list[tuple[str, float, list[bool]]]", await cursor.fetchall())

            words = terms.words
            if is_question and not terms.required and not terms.excluded:
                words = self._select_rare_words(words, [counts[word.query] for word in words], limit)
            rows = await find(words)
            if len(rows) < limit and len(words) < len(terms.words):
                rows = await find(terms.words)
            hits = [TextHit(memory_id=memory_id, score=score) for memory_id, score, _ in rows]
            if hits and is_question:
                coverage = _compute_coverage(weights.words, rows[0][2])
                hits[0] = TextHit(memory_id=hits[0].memory_id, score=hits[0].score, coverage=coverage)
            return hits

        return await self._run(search)

    async def list_ids(self, *, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        workspace_id, memory_id = after or _BEFORE_ALL

        async def read(connection: PostgresConnection) -> list[tuple[int, str]]:
            parameters = {"workspace_id": workspace_id, "memory_id": memory_id, "at_most": limit}
            cursor = await connection.execute(postgresql_sql.LIST_IDS, parameters)
            return cast("list[tuple[int, str]]", await cursor.fetchall())

        return await self._run(read)

    async def count(self, workspace_id: int, *, query: TextQuery | None = None, access_filter: AccessFilter | None = None) -> int:
        if query is None or access_filter is None:
            statement, parameters = postgresql_sql.COUNT_ALL, {"workspace_id": workspace_id}
        else:
            stemmed = stem_query(query)
            if stemmed is None:
                return 0
            statement, parameters = build_count(build_query(stemmed, workspace_id), access_filter)

        async def count(connection: PostgresConnection) -> int:
            cursor = await connection.execute(statement, parameters)
            ((total,),) = await cursor.fetchall()
            return cast("int", total)

        return await self._run(count)

    async def erase(self) -> None:
        """Free the space of deleted rows for new ones. Their bytes stay in the files of the server until they are overwritten."""

        async def vacuum(connection: PostgresConnection) -> None:
            await self._pool.set_option(connection, "statement_timeout", f"{_LONG_TIMEOUT_S}s")
            try:
                await connection.execute(postgresql_sql.VACUUM)
            finally:
                await self._pool.set_option(connection, "statement_timeout", self._query_timeout)

        await self._run(vacuum)

    async def _run(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Run *work* on the table, which is created if it is missing."""

        async def run(connection: PostgresConnection) -> T:
            if not self._is_set_up:
                await _create_table(connection)
                self._is_set_up = True
            return await work(connection)

        return await self._pool.run(run)

    def _forget_table(self) -> None:
        self._is_set_up = False

    async def _count_terms(
        self, connection: PostgresConnection, terms: PostgresQuery, workspace_id: int
    ) -> tuple[dict[str, int], int, float]:
        """Return the number of documents with each word and phrase, that of all, and their mean length."""

        async def count(keys: Sequence[tuple[int, str]]) -> list[tuple[int, float]]:
            statement = postgresql_sql.COUNT_MATCHES_AND_ALL if keys[0][1] == _ALL else postgresql_sql.COUNT_MATCHES
            parameters = {"workspace_id": workspace_id, "queries": [query for _, query in keys if query != _ALL]}
            cursor = await connection.execute(statement, parameters)
            return [(cast("int", number), cast("float", length)) for _, number, length in await cursor.fetchall()]

        queries = list(dict.fromkeys(term.query for term in (*terms.words, *terms.required, *terms.pairs)))
        (total, average_length), *counts = await self._counts.get([(workspace_id, query) for query in (_ALL, *queries)], count)
        return dict(zip(queries, (number for number, _ in counts), strict=True)), total, average_length

    def _select_rare_words(self, words: Sequence[Term], counts: Sequence[int], limit: int) -> Sequence[Term]:
        """Return the rarest *words* that find enough documents; all of them, if few documents have any."""
        if sum(counts) <= self._max_scored_documents:
            return words
        selected, document_count = list[Term](), 0
        for number, word in sorted(zip(counts, words, strict=True), key=lambda item: item[0]):
            if document_count >= _MIN_DOCUMENTS_FACTOR * limit and document_count + number > self._max_scored_documents:
                break
            selected.append(word)
            document_count += number
        return selected


async def _create_table(connection: PostgresConnection) -> None:
    cursor = await connection.execute(postgresql_sql.FIND_TABLE)
    ((exists,),) = await cursor.fetchall()
    if exists:
        return
    async with connection.transaction():
        await connection.execute(_SET_LOCAL, {"timeout": f"{_WRITE_TIMEOUT_S}s", "commit": "on"})
        await connection.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": postgresql_sql.SETUP_LOCK})
        await connection.execute(postgresql_sql.CREATE_TABLE)
        await connection.execute(postgresql_sql.CREATE_INDEX)
        await _create_filter_indexes(connection)


async def _create_filter_indexes(connection: PostgresConnection) -> None:
    for name, statement in postgresql_sql.CREATE_FILTER_INDEXES.items():
        cursor = await connection.execute(postgresql_sql.LACKS_INDEX, {"name": name})
        ((is_missing,),) = await cursor.fetchall()
        if is_missing:
            await connection.execute(statement)


def _make_rows(documents: Sequence[IndexDocument]) -> list[postgresql_sql.Parameters]:
    return [make_row(document) for document in documents]


def _weigh(terms: PostgresQuery, counts: dict[str, int], total: int, average_length: float) -> ScoreWeights:
    words, required, pairs = (
        [inverse_frequency(counts[term.query], total) for term in group] for group in (terms.words, terms.required, terms.pairs)
    )
    return ScoreWeights(words=words, required=required, pairs=pairs, average_length=max(average_length, 1.0))


def _compute_coverage(weights: Sequence[float], matched: Sequence[bool]) -> float:
    """Return the share of the words that a document has, by their weights; 1 for a query of phrases alone."""
    if not weights:
        return 1.0
    return sum(weight for weight, is_matched in zip(weights, matched, strict=True) if is_matched) / sum(weights)
