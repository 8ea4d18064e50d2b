"""An embedder that uses a service: OpenAI's `/v1/embeddings` from any vendor, Ollama's, or Text Embeddings Inference's."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import httpx2
import numpy as np
import orjson
import structlog

from rookery.engines.embedders import RemoteModel
from rookery.engines.embedders.inputs import QueryCache, approximate_tokens, split_tokens
from rookery.engines.embedders.service_protocols import InvalidResponseError, Rows, build_request, parse_model_name, parse_response
from rookery.kernel.clock import utc_now
from rookery.kernel.egress.service_client import (
    LOGIN_STATUSES,
    ResponseTooLarge,
    RetryableFailure,
    RetryBounds,
    ServiceClient,
    ServiceResponse,
    describe_connection_error,
    find_proxy,
    is_temporary,
    repeat,
)
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.model_service_urls import ModelServiceKind
from rookery.kernel.money import CHARS_PER_TOKEN
from rookery.kernel.questions import keep_ends
from rookery.kernel.retry_delays import find_retry_delay
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import Passage, Vector
from rookery.memory.ports import EmbedderFeature, TokenMeter

T = TypeVar("T")

CHUNK_TOKENS, OVERLAP_TOKENS = 256, 40
"""Approximate content tokens of a chunk, and the number of them that it shares with the previous chunk.

Every common model accepts at least 512 tokens. A shorter text has a more specific vector (see `model.CHUNK_TOKENS`), but each request has a
cost.
"""
_MAX_CONTEXT_CHARS = 300
"""Maximum characters of a passage's context before each chunk."""

_MAX_BATCH_TEXTS: Mapping[ModelServiceKind, int] = {"openai": 64, "ollama": 64, "tei": 32}
"""Texts of a request. Text Embeddings Inference rejects more than its `--max-client-batch-size`, 32 by default."""

_MAX_BATCH_CHARS = 60_000
_MAX_PASSAGE_REQUESTS = 4
_MAX_QUERY_REQUESTS = 16
"""Limits of concurrent requests. A service that receives more at a time answers all of them later."""

_CONNECT_TIMEOUT_S = 5.0
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Maximum size of a response. 64 texts of 4,096 numbers are about 6 MB of JSON."""

_MIN_RETRY_DELAY_S = 0.4
_MAX_RETRY_AFTER_S = 3600
_RETRYABLE_TEXT_ERRORS = frozenset({HTTPStatus.FAILED_DEPENDENCY, HTTPStatus.INTERNAL_SERVER_ERROR})
_TEXT_ERROR_STATUSES = _RETRYABLE_TEXT_ERRORS | {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}
"""Statuses that one text may cause. Ollama returns 500 when a model computes NaN, and Text Embeddings Inference 424 when a model fails."""

_MAX_LOGGED_CHARS = 300

_log = structlog.stdlib.get_logger("rookery.embedders")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits for the attempts of a request and for their total time."""

    max_attempts: int
    timeout_s: float


_PASSAGE_RETRY = RetryPolicy(max_attempts=5, timeout_s=120.0)
_QUERY_RETRY = RetryPolicy(max_attempts=3, timeout_s=15.0)
_SUSPECT_RETRY = RetryPolicy(max_attempts=1, timeout_s=60.0)
_CHECK_RETRY = RetryPolicy(max_attempts=1, timeout_s=5.0)

_MAX_TEXT_ERRORS = 2
"""Attempts of a request that the service fails with a status that a text may cause. Then a probe text shows the cause."""

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

    def __init__(self, remote: RemoteModel, *, verify_ssl: bool = True, meter: TokenMeter | None = None) -> None:
        """Store the configuration. Nothing is sent yet. *meter* counts the tokens of each answer."""
        self.model = remote.model
        self.dimension = remote.stored_dimension
        self.description = remote.description
        self.full_similarity = remote.full_similarity
        self._remote = remote
        self._client = _EmbeddingClient(remote, verify_ssl=verify_ssl, meter=meter)
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
        except _WrongModelError as model_error:
            raise WrongSettings(f"ROOKERY_EMBEDDER: {model_error.message}") from model_error

    @property
    def is_loaded(self) -> bool:
        """Always true: the service loads its own models."""
        return True

    async def probe(self) -> None:
        """Do the same as `warm`."""
        await self.warm()

    async def warm(self) -> None:
        """Send a probe text, unless the service answered recently; raises `EngineUnavailable`."""
        if time.monotonic() - self._last_success_s > _HEALTHY_FOR_S:
            try:
                await self._probe()
            except _WrongModelError as model_error:
                raise EngineUnavailable("embedder", model_error.message) from model_error

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a query. A query that is too long for the model loses its middle."""
        return await self._query_cache.get(text)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return the vectors of each passage's chunks, in order."""
        texts = [(index, text) for index, passage in enumerate(passages) for text in self._split_passage(passage)]
        batches = _batch_ranges([text for _, text in texts], max_texts=_MAX_BATCH_TEXTS[self._remote.kind])
        results_by_batch = await _gather_all([self._embed_batch([text for _, text in texts[first:last]]) for first, last in batches])
        vectors_by_passage: list[list[Vector]] = [[] for _ in passages]
        rejected = set[int]()
        for (index, _), vectors in zip(texts, (vectors for batch in results_by_batch for vectors in batch), strict=True):
            vectors_by_passage[index] += vectors or ()
            if vectors is None:
                rejected.add(index)
        if rejected:
            raise NotEmbeddable(rejected)
        return [tuple(vectors) for vectors in vectors_by_passage]

    async def close(self) -> None:
        """Close the connections; see `EmbedderEngine`."""
        self._is_closed = True
        self._query_cache.clear()
        await self._client.aclose()

    def _split_passage(self, passage: Passage) -> list[str]:
        offsets = approximate_tokens(passage.content)
        if not offsets:
            return [self._format_passage(passage.context, passage.content)]
        ranges = split_tokens(offsets, max_tokens=CHUNK_TOKENS, overlap_tokens=OVERLAP_TOKENS)
        return [self._format_passage(passage.context, passage.content[offsets[first][0] : offsets[last - 1][1]]) for first, last in ranges]

    def _format_passage(self, context: str, content: str) -> str:
        text = f"{context[:_MAX_CONTEXT_CHARS]}\n{content}" if context else content
        return self._remote.passage_prefix + text

    async def _embed_query(self, query: str) -> Vector:
        is_suspect = False
        async with self._query_slots:
            while True:
                text = self._remote.query_prefix + query
                try:
                    (vector,) = await self._embed_texts([text], _SUSPECT_RETRY if is_suspect else _QUERY_RETRY)
                except _TextRejectedError as rejection:
                    if not is_suspect:
                        await self._require_healthy(rejection)
                    is_suspect = True
                    if len(query) <= _MIN_SPLIT_CHARS:
                        raise NotEmbeddable from rejection
                    query = "".join(keep_ends(query, len(query) // 2))
                else:
                    return vector

    async def _embed_batch(self, texts: Sequence[str]) -> list[list[Vector] | None]:
        """Return the vectors of each text: one, or more if it had to be split. None for a text that has none."""
        async with self._passage_slots:
            try:
                return [[vector] for vector in await self._embed_texts(texts, _PASSAGE_RETRY)]
            except _TextRejectedError as rejection:
                await self._require_healthy(rejection)
                return await self._embed_halves(texts)

    async def _embed_halves(self, texts: Sequence[str]) -> list[list[Vector] | None]:
        """Return the vectors of a rejected batch, computed in halves. A single text is split in two, unless it is too short for that."""
        if len(texts) > 1:
            half = len(texts) // 2
            return [*await self._embed_or_split(texts[:half]), *await self._embed_or_split(texts[half:])]
        (text,) = texts
        if len(text) <= _MIN_SPLIT_CHARS:
            return [None]
        half = len(text) // 2
        text_vectors = list[Vector]()
        for part in (text[:half], text[half:]):
            (part_vectors,) = await self._embed_or_split([part])
            if part_vectors is None:
                return [None]
            text_vectors += part_vectors
        return [text_vectors]

    async def _embed_or_split(self, texts: Sequence[str]) -> list[list[Vector] | None]:
        """Return the vectors of suspected texts. The service works, so there is no wait between two attempts, and only one for a batch."""
        for _ in range(1 if len(texts) > 1 else _MAX_TEXT_ERRORS):
            with contextlib.suppress(_TextRejectedError):
                return [[vector] for vector in await self._embed_texts(texts, _SUSPECT_RETRY)]
        return await self._embed_halves(texts)

    async def _require_healthy(self, rejection: _TextRejectedError) -> None:
        """
        Embed a probe text. Return if it succeeds, since then the texts are the cause of the rejection.

        Raises:
            EngineUnavailable: The probe text is rejected too, its vector has the wrong dimension, or the service has another model.
        """
        try:
            await self._probe()
        except _TextRejectedError:
            raise EngineUnavailable("embedder", str(rejection)) from rejection
        except _WrongModelError as model_error:
            raise EngineUnavailable("embedder", model_error.message) from model_error

    async def _probe(self) -> None:
        """Embed a probe text, and compare the served model with the address, if the service describes it."""
        try:
            served = await self._client.fetch_model_name()
            if served is not None and _last_part(served) != _last_part(self._remote.model_name):
                raise _WrongModelError(f"the service has the model {served[:100]!r}, not {self._remote.model_name!r}")
            self._normalize(await self._fetch_rows([_PROBE_TEXT], _CHECK_RETRY))
        except _TextRejectedError as rejection:
            raise EngineUnavailable("embedder", str(rejection)) from rejection

    async def _embed_texts(self, texts: Sequence[str], policy: RetryPolicy) -> list[Vector]:
        try:
            rows = await self._fetch_rows([text if text.strip() else "." for text in texts], policy)
        except _WrongModelError as model_error:
            raise EngineUnavailable("embedder", model_error.message) from model_error
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
            raise _WrongModelError(
                f"the service returns vectors with {dimension} dimensions, more than the {self.dimension} that are stored: {advice}"
            )
        if requested_dimension is not None and dimension != requested_dimension:
            raise _WrongModelError(
                f"the service returns vectors with {dimension} dimensions: its model does not support dimensions={requested_dimension}"
            )
        return rows

    def _normalize(self, rows: Rows) -> list[Vector]:
        vectors = _normalize_rows(rows, dimension=self.dimension)
        self._last_success_s = time.monotonic()
        return vectors


class _WrongModelError(Exception):
    """The service works, but its vectors have the wrong dimension or are those of another model."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def _normalize_rows(rows: Rows, *, dimension: int) -> list[Vector]:
    """Return *rows* scaled to length 1 and padded with zeros to *dimension*. Cosines do not change."""
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise _TextRejectedError("the service returned a vector that is zero, infinite or NaN")
    padded_rows = np.zeros((len(rows), dimension), dtype="<f4")
    padded_rows[:, : rows.shape[1]] = wide / lengths
    return [row.tobytes() for row in padded_rows]


def _last_part(model_name: str) -> str:
    """Return the name without its owner or folder: a service may have the model in a folder of its own."""
    return model_name.rstrip("/").rpartition("/")[2]


def _batch_ranges(texts: Sequence[str], *, max_texts: int) -> list[tuple[int, int]]:
    """Return (first, last) ranges of *texts*, one for each request."""
    ranges: list[tuple[int, int]] = []
    first = characters = 0
    for index, text in enumerate(texts):
        if index > first and (index - first >= max_texts or characters + len(text) > _MAX_BATCH_CHARS):
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


class _TextRejectedError(Exception):
    """The service answered, but rejected the texts or failed on them. The caller checks which one it was."""


class _EmbeddingClient:
    """A client that posts texts and reads vectors. Its errors, `_TextRejectedError` and `EngineUnavailable`, name neither host nor key."""

    def __init__(self, remote: RemoteModel, *, verify_ssl: bool, meter: TokenMeter | None) -> None:
        self._remote = remote
        self._meter = meter
        headers = {"content-type": "application/json"}
        if remote.key is not None:
            headers["authorization"] = f"Bearer {remote.key.reveal()}"
        proxy = find_proxy(remote.endpoint)
        self._client = ServiceClient(headers, verify_ssl=verify_ssl, connect_timeout_s=_CONNECT_TIMEOUT_S, proxy=proxy)

    async def embed(self, texts: Sequence[str], policy: RetryPolicy) -> Rows:
        """
        Return one row for each of *texts*, as the service returns them. Rows have the same length and may contain NaN or infinity.

        Raises:
            _TextRejectedError: The service answered, but failed with these texts.
            EngineUnavailable: The service did not answer in time or not in a readable form, or rejected the key.
        """
        deadline = asyncio.get_running_loop().time() + policy.timeout_s
        bounds = RetryBounds(max_attempts=policy.max_attempts, min_delay_s=_MIN_RETRY_DELAY_S, max_delay_s=policy.timeout_s)
        return await repeat(lambda: self._try(texts, deadline), bounds, deadline=deadline)

    async def fetch_model_name(self) -> str | None:
        """Return the name that the service gives to its model; None if it does not describe it. A failure counts as no description."""
        if self._remote.info_endpoint is None:
            return None
        try:
            response = await self._client.fetch("GET", self._remote.info_endpoint, timeout_s=_CHECK_RETRY.timeout_s)
        except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, ResponseTooLarge):
            return None
        return parse_model_name(response.body) if response.status == HTTPStatus.OK else None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _try(self, texts: Sequence[str], deadline: float) -> Rows | RetryableFailure:
        content = orjson.dumps(build_request(self._remote, texts))
        timeout_s = max(0.05, deadline - asyncio.get_running_loop().time())
        try:
            response = await self._client.fetch("POST", self._remote.endpoint, content, timeout_s=timeout_s, max_bytes=_MAX_RESPONSE_BYTES)
        except (TimeoutError, httpx2.HTTPError) as error:
            return _fail(describe_connection_error(error, "the service"))
        except httpx2.InvalidURL as error:
            raise EngineUnavailable("embedder", "the address of the service is invalid") from error
        except ResponseTooLarge as error:
            raise EngineUnavailable("embedder", str(error)) from error
        if response.status != HTTPStatus.OK:
            return self._parse_failure(response)
        try:
            embedded = parse_response(self._remote, response.body, len(texts))
        except InvalidResponseError as error:
            return _fail(f"the response of the service is invalid: {error}")
        if self._meter is not None:
            tokens = _estimate_tokens(texts) if embedded.tokens is None else embedded.tokens
            self._meter.record(self._remote.model_name, tokens, is_estimated=embedded.tokens is None)
        return embedded.rows

    def _parse_failure(self, response: ServiceResponse) -> RetryableFailure:
        """Return or raise the meaning of a status. The body is only logged, since it may quote a key or a text."""
        status = response.status
        excerpt = response.body[:_MAX_LOGGED_CHARS].decode(errors="replace")
        if self._remote.key is not None:
            excerpt = excerpt.replace(self._remote.key.reveal(), "…")
        _log.warning("embedder.request_failed", status=status, response=excerpt)
        if status in LOGIN_STATUSES:
            raise EngineUnavailable("embedder", f"the service rejects the configured key (status {status})")
        if status == HTTPStatus.NOT_FOUND:
            raise EngineUnavailable("embedder", f"the address or the model {self._remote.model_name!r} was not found (status 404)")
        reason = f"the service returned status {status}"
        retry_after_s = find_retry_delay(response.headers.multi_items(), status, utc_now())
        if status in _TEXT_ERROR_STATUSES:
            rejection = _TextRejectedError(reason)
            if status not in _RETRYABLE_TEXT_ERRORS:
                raise rejection
            return RetryableFailure(rejection, retry_after_s, max_attempts=_MAX_TEXT_ERRORS)
        failure = _fail(reason, retry_after_s)
        if not is_temporary(status):
            raise failure.error
        return failure


def _fail(reason: str, retry_after_s: float | None = None) -> RetryableFailure:
    error = EngineUnavailable("embedder", reason, retry_after_s=max(1, min(_MAX_RETRY_AFTER_S, math.ceil(retry_after_s or 5))))
    return RetryableFailure(error, retry_after_s)


def _estimate_tokens(texts: Sequence[str]) -> int:
    return sum(math.ceil(len(text) / CHARS_PER_TOKEN) for text in texts)
