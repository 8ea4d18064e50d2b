"""An embedder that uses a service: OpenAI's `/v1/embeddings` from any vendor, or Ollama's `/api/embed`."""

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
from rookery.memory.ports import EmbedderFeature

T = TypeVar("T")

CHUNK_TOKENS, OVERLAP_TOKENS = 256, 40
"""Approximate content tokens of a chunk, and the number of them that it shares with the previous chunk.

Every common model accepts at least 512 tokens. A shorter text has a more specific vector (see `model.CHUNK_TOKENS`), but each request has a
cost.
"""
_MAX_CONTEXT_CHARS = 300
"""Maximum characters of a passage's context before each chunk."""

_MAX_BATCH_TEXTS = 64
_MAX_BATCH_CHARS = 60_000
_MAX_PASSAGE_REQUESTS = 4
_MAX_QUERY_REQUESTS = 16
"""Limits of concurrent requests. A service that receives more at a time answers all of them later."""

_PASSAGE_RETRY = RetryPolicy(max_attempts=5, timeout_s=120.0)
_QUERY_RETRY = RetryPolicy(max_attempts=3, timeout_s=15.0)
_SINGLE_TEXT_RETRY = RetryPolicy(max_attempts=2, timeout_s=60.0)
_CHECK_RETRY = RetryPolicy(max_attempts=1, timeout_s=5.0)

_MIN_SPLIT_CHARS = 64
"""Minimum length in characters at which a rejected text is split. A shorter one is not rejected for its length."""

_PROBE_TEXT = "The heron stands still."
_HEALTHY_FOR_S = 30.0
"""Seconds after a response in which `warm` does not contact the service."""

_CLOSED_REASON = "the embedder is closed"


class RemoteEmbedder:
    """
    An implementation of `memory.ports.Embedder` that calls a service.

    Queries do not wait behind passages: both have their own request limits. When a text is rejected, a probe text shows whether the service
    works. A passage that is rejected for its length is split again.
    """

    lacks = frozenset({EmbedderFeature.OFFLINE, EmbedderFeature.WHOLE_TEXTS})

    def __init__(self, remote: RemoteModel, *, verify_ssl: bool = True) -> None:
        """Store the configuration. Nothing is sent yet."""
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
        """Always False: nothing has to be loaded."""
        return False

    async def check(self) -> None:
        """Send a probe text; see `EmbedderEngine`."""
        try:
            await self._probe()
        except _WrongDimensionError as dimension_error:
            raise WrongSettings(f"ROOKERY_EMBEDDER: {dimension_error.message}") from dimension_error

    async def warm(self) -> None:
        """Send a probe text, unless the service answered recently; raises `EngineUnavailable`."""
        if time.monotonic() - self._last_success_s > _HEALTHY_FOR_S:
            try:
                await self._probe()
            except _WrongDimensionError as dimension_error:
                raise EngineUnavailable("embedder", dimension_error.message) from dimension_error

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a query. A query that is too long for the model is cut at its end."""
        return await self._query_cache.get(text)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return the vectors of each passage's chunks, in order."""
        texts = [(index, text) for index, passage in enumerate(passages) for text in self._split_passage(passage)]
        batches = _batch_ranges([text for _, text in texts])
        results_by_batch = await _gather_all([self._embed_batch([text for _, text in texts[first:last]]) for first, last in batches])
        vectors_by_passage: list[list[Vector]] = [[] for _ in passages]
        for (index, _), vectors in zip(texts, (vectors for batch in results_by_batch for vectors in batch), strict=True):
            vectors_by_passage[index] += vectors
        return [tuple(vectors) for vectors in vectors_by_passage]

    async def close(self) -> None:
        """Close the connections; see `EmbedderEngine`."""
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
        text = f"{context[:_MAX_CONTEXT_CHARS]}\n{content}" if context else content
        return self._remote.passage_prefix + text

    async def _embed_query(self, query: str) -> Vector:
        async with self._query_slots:
            while True:
                text = self._remote.query_prefix + query
                try:
                    (vector,) = await self._embed_texts([text], _QUERY_RETRY)
                except TextRejectedError as rejection:
                    await self._require_healthy(rejection)
                    if len(query) <= _MIN_SPLIT_CHARS:
                        raise NotEmbeddable from rejection
                    query = query[: len(query) // 2]
                else:
                    return vector

    async def _embed_batch(self, texts: Sequence[str]) -> list[list[Vector]]:
        """Return the vectors of each text: one, or more if it had to be split."""
        async with self._passage_slots:
            try:
                return [[vector] for vector in await self._embed_texts(texts, _PASSAGE_RETRY)]
            except TextRejectedError as rejection:
                await self._require_healthy(rejection)
                return await self._embed_halves(texts)

    async def _embed_halves(self, texts: Sequence[str]) -> list[list[Vector]]:
        """Return the vectors of a rejected batch, computed in halves. A single text is split in two, unless it is too short for that."""
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

    async def _require_healthy(self, rejection: TextRejectedError) -> None:
        """
        Embed a probe text. Return if it succeeds, since then the texts are the cause of the rejection.

        Raises:
            EngineUnavailable: The probe text is rejected too, or its vector has the wrong dimension.
        """
        try:
            await self._probe()
        except TextRejectedError:
            raise EngineUnavailable("embedder", str(rejection)) from rejection
        except _WrongDimensionError as dimension_error:
            raise EngineUnavailable("embedder", dimension_error.message) from dimension_error

    async def _probe(self) -> None:
        try:
            self._normalize(await self._fetch_rows([_PROBE_TEXT], _CHECK_RETRY))
        except TextRejectedError as rejection:
            raise EngineUnavailable("embedder", str(rejection)) from rejection

    async def _embed_texts(self, texts: Sequence[str], policy: RetryPolicy) -> list[Vector]:
        try:
            rows = await self._fetch_rows([text if text.strip() else "." for text in texts], policy)
        except _WrongDimensionError as dimension_error:
            raise EngineUnavailable("embedder", dimension_error.message) from dimension_error
        return self._normalize(rows)

    async def _fetch_rows(self, texts: Sequence[str], policy: RetryPolicy) -> Rows:
        if self._is_closed:
            raise EngineUnavailable("embedder", _CLOSED_REASON)
        rows = await self._client.embed(texts, policy)
        dimension, requested_dimension = rows.shape[1], self._remote.requested_dimension
        if dimension > self.dimension:
            advice = (
                f"set ROOKERY_VECTOR_DIMENSION={dimension}"
                if requested_dimension is None
                else f"the model does not support dimensions={requested_dimension}"
            )
            raise _WrongDimensionError(
                f"the service returns vectors with {dimension} dimensions, more than the {self.dimension} that are stored: {advice}"
            )
        if requested_dimension is not None and dimension != requested_dimension:
            raise _WrongDimensionError(
                f"the service returns vectors with {dimension} dimensions: its model does not support dimensions={requested_dimension}"
            )
        return rows

    def _normalize(self, rows: Rows) -> list[Vector]:
        vectors = _normalize_rows(rows, dimension=self.dimension)
        self._last_success_s = time.monotonic()
        return vectors


class _WrongDimensionError(Exception):
    """The service works, but its vectors have the wrong dimension."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _normalize_rows(rows: Rows, *, dimension: int) -> list[Vector]:
    """Return *rows* scaled to length 1 and padded with zeros to *dimension*. Cosines do not change (D-54)."""
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise TextRejectedError("the service returned a vector that is zero, infinite or NaN")
    padded_rows = np.zeros((len(rows), dimension), dtype="<f4")
    padded_rows[:, : rows.shape[1]] = wide / lengths
    return [row.tobytes() for row in padded_rows]


def _batch_ranges(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return (first, last) ranges of *texts*, one for each request."""
    ranges: list[tuple[int, int]] = []
    first = characters = 0
    for index, text in enumerate(texts):
        if index > first and (index - first >= _MAX_BATCH_TEXTS or characters + len(text) > _MAX_BATCH_CHARS):
            ranges.append((first, index))
            first, characters = index, 0
        characters += len(text)
    return [*ranges, (first, len(texts))] if texts else []


async def _gather_all(coroutines: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Await all concurrently. If one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
