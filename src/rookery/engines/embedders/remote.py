"""An embedder that is a service: OpenAI's `/v1/embeddings`, whoever serves it, or Ollama's `/api/embed`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import TypeVar

import numpy as np

from rookery.engines.embedders import chunks
from rookery.engines.embedders.addresses import RemoteModel
from rookery.engines.embedders.http_client import EmbeddingClient, RetryPolicy, Rows, TextRejectedError
from rookery.engines.embedders.query_cache import QueryCache
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import Passage, Vector

T = TypeVar("T")

CHUNK_TOKENS, OVERLAP_TOKENS = 256, 40
"""
About how many tokens of content are in a chunk, and how many of them are the last chunk's too. Every model that is served today reads
512 or more, what a chunk is about is told better by less of it (see `model.CHUNK_TOKENS`), and each request costs.
"""
_MAX_CONTEXT_CHARS = 300
"""Characters of a passage's context that go before each chunk."""

_MAX_BATCH_TEXTS = 64
_MAX_BATCH_CHARS = 60_000
_MAX_PASSAGE_REQUESTS = 4
_MAX_QUERY_REQUESTS = 16
"""Requests on their way: a service that is asked for more at a time answers all of them later."""

_PASSAGE_RETRY = RetryPolicy(max_attempts=5, timeout_s=120.0)
_QUERY_RETRY = RetryPolicy(max_attempts=3, timeout_s=15.0)
_SINGLE_TEXT_RETRY = RetryPolicy(max_attempts=2, timeout_s=60.0)
_CHECK_RETRY = RetryPolicy(max_attempts=1, timeout_s=5.0)

_MIN_SPLIT_CHARS = 64
"""Characters: a text as short as this is not refused for its length."""

_PROBE_TEXT = "The heron stands still."
_HEALTHY_FOR_S = 30.0
"""So long after an answer the service is taken to be well without being asked."""

_CLOSED_REASON = "it is closed"


class RemoteEmbedder:
    """
    `memory.ports.Embedder` by a service.

    Questions do not wait behind passages: each have requests of their own. A text that the service refuses is told from a service
    that is down by asking it for another one; a passage that is refused for its length is cut once more.
    """

    def __init__(self, remote: RemoteModel, *, verify_ssl: bool = True) -> None:
        """Do nothing yet."""
        self.model = remote.model
        self.dimension = remote.stored_dimension
        self._remote = remote
        self._client = EmbeddingClient(remote, verify_ssl=verify_ssl)
        self._query_cache = QueryCache(self._embed_query)
        self._passage_slots = asyncio.Semaphore(_MAX_PASSAGE_REQUESTS)
        self._query_slots = asyncio.Semaphore(_MAX_QUERY_REQUESTS)
        self._last_success_s = float("-inf")
        self._is_closed = False

    @property
    def is_starting(self) -> bool:
        """Never: a service is asked, not loaded."""
        return False

    async def check(self) -> None:
        """See `Engine`."""
        try:
            await self._probe()
        except _WrongDimensionError as wrong:
            raise WrongSettings(f"ROOKERY_EMBEDDER: {wrong.message}") from wrong

    async def warm(self) -> None:
        """Ask the service for a vector, unless it has just given one; raises `EngineUnavailable`."""
        if time.monotonic() - self._last_success_s > _HEALTHY_FOR_S:
            try:
                await self._probe()
            except _WrongDimensionError as wrong:
                raise EngineUnavailable("embedder", wrong.message) from wrong

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a question; of one that is too long for the model its beginning counts."""
        return await self._query_cache.get(text)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return for each passage the vectors of its chunks, in order."""
        texts = [(index, text) for index, passage in enumerate(passages) for text in self._split_passage(passage)]
        batches = _batch_ranges([text for _, text in texts])
        found = await _gather_all([self._embed_batch([text for _, text in texts[first:last]]) for first, last in batches])
        results: list[list[Vector]] = [[] for _ in passages]
        for (index, _), vectors in zip(texts, (vectors for batch in found for vectors in batch), strict=True):
            results[index] += vectors
        return [tuple(result) for result in results]

    async def close(self) -> None:
        """See `Engine`."""
        self._is_closed = True
        self._query_cache.clear()
        await self._client.aclose()

    def _split_passage(self, passage: Passage) -> list[str]:
        offsets = chunks.approximate_tokens(passage.content)
        if not offsets:
            return [self._format_passage(passage.context, passage.content)]
        ranges = chunks.split_tokens(offsets, max_tokens=CHUNK_TOKENS, overlap_tokens=OVERLAP_TOKENS)
        return [self._format_passage(passage.context, passage.content[offsets[first][0] : offsets[last - 1][1]]) for first, last in ranges]

    def _format_passage(self, context: str, content: str) -> str:
        said = f"{context[:_MAX_CONTEXT_CHARS]}\n{content}" if context else content
        return self._remote.passage_prefix + said

    async def _embed_query(self, question: str) -> Vector:
        async with self._query_slots:
            while True:
                text = self._remote.query_prefix + question
                try:
                    (vector,) = await self._embed_texts([text], _QUERY_RETRY)
                except TextRejectedError as refused:
                    await self._require_healthy(refused)
                    if len(question) <= _MIN_SPLIT_CHARS:
                        raise NotEmbeddable from refused
                    question = question[: len(question) // 2]
                else:
                    return vector

    async def _embed_batch(self, texts: Sequence[str]) -> list[list[Vector]]:
        """Return for each text its vectors: one, unless it had to be cut."""
        async with self._passage_slots:
            try:
                return [[vector] for vector in await self._embed_texts(texts, _PASSAGE_RETRY)]
            except TextRejectedError as refused:
                await self._require_healthy(refused)
                return await self._embed_halves(texts)

    async def _embed_halves(self, texts: Sequence[str]) -> list[list[Vector]]:
        """Return the same of a batch that was refused, by its halves; one text alone is cut into two, if it may be too long."""
        if len(texts) > 1:
            half = len(texts) // 2
            return [*await self._embed_or_split(texts[:half]), *await self._embed_or_split(texts[half:])]
        (text,) = texts
        if len(text) <= _MIN_SPLIT_CHARS:
            raise NotEmbeddable
        half = len(text) // 2
        return [[vector for part in (text[:half], text[half:]) for vectors in await self._embed_or_split([part]) for vector in vectors]]

    async def _embed_or_split(self, texts: Sequence[str]) -> list[list[Vector]]:
        try:
            return [[vector] for vector in await self._embed_texts(texts, _SINGLE_TEXT_RETRY)]
        except TextRejectedError:
            return await self._embed_halves(texts)

    async def _require_healthy(self, refused: TextRejectedError) -> None:
        """Do nothing if the service embeds what nobody could refuse: then it is the texts that it refused."""
        try:
            await self._probe()
        except TextRejectedError:
            raise EngineUnavailable("embedder", str(refused)) from refused
        except _WrongDimensionError as wrong:
            raise EngineUnavailable("embedder", wrong.message) from wrong

    async def _probe(self) -> None:
        try:
            self._normalize(await self._fetch_rows([_PROBE_TEXT], _CHECK_RETRY))
        except TextRejectedError as refused:
            raise EngineUnavailable("embedder", str(refused)) from refused

    async def _embed_texts(self, texts: Sequence[str], patience: RetryPolicy) -> list[Vector]:
        try:
            rows = await self._fetch_rows([text if text.strip() else "." for text in texts], patience)
        except _WrongDimensionError as wrong:
            raise EngineUnavailable("embedder", wrong.message) from wrong
        return self._normalize(rows)

    async def _fetch_rows(self, texts: Sequence[str], patience: RetryPolicy) -> Rows:
        if self._is_closed:
            raise EngineUnavailable("embedder", _CLOSED_REASON)
        rows = await self._client.embed(texts, patience)
        given, asked = rows.shape[1], self._remote.requested_dimension
        if given > self.dimension:
            advice = f"set ROOKERY_VECTOR_DIMENSION={given}" if asked is None else f"its model cannot be asked for dimensions={asked}"
            raise _WrongDimensionError(f"its vectors have {given} dimensions, more than the {self.dimension} that are stored: {advice}")
        if asked is not None and given != asked:
            raise _WrongDimensionError(
                f"its vectors have {given} dimensions, and dimensions={asked} was asked for: its model cannot do that"
            )
        return rows

    def _normalize(self, rows: Rows) -> list[Vector]:
        vectors = _normalize_rows(rows, dimension=self.dimension)
        self._last_success_s = time.monotonic()
        return vectors


class _WrongDimensionError(Exception):
    """The service works, and its vectors do not fit."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _normalize_rows(rows: Rows, *, dimension: int) -> list[Vector]:
    """Return *embed* with the length 1, filled up with zeros: cosines stay as they are (D-54)."""
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise TextRejectedError("it answers with what is no vector")
    filled = np.zeros((len(rows), dimension), dtype="<f4")
    filled[:, : rows.shape[1]] = wide / lengths
    return [row.tobytes() for row in filled]


def _batch_ranges(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return the ranges of *texts* that go together in a request."""
    ranges: list[tuple[int, int]] = []
    first = characters = 0
    for index, text in enumerate(texts):
        if index > first and (index - first >= _MAX_BATCH_TEXTS or characters + len(text) > _MAX_BATCH_CHARS):
            ranges.append((first, index))
            first, characters = index, 0
        characters += len(text)
    return [*ranges, (first, len(texts))] if texts else []


async def _gather_all(works: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Await all at once; if one fails, the others are stopped."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
