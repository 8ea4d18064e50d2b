"""An HTTP client for embedding services, with retries."""

from __future__ import annotations

import asyncio
import base64
import binascii
import email.utils
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import httpx2
import numpy as np
import numpy.typing as npt
import orjson
import structlog

from rookery.engines.embedders.addresses import RemoteModel
from rookery.kernel.errors import EngineUnavailable

Rows = npt.NDArray[np.float32]

_CONNECT_TIMEOUT_S = 5.0
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Maximum size of a response. 64 texts of 4,096 numbers are about 6 MB of JSON."""

_MIN_RETRY_DELAY_S = 0.4
_MAX_RETRY_DELAY_S = 20.0
_STATUS_OK, _STATUS_NOT_FOUND = 200, 404
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""

_TEXT_ERROR_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses that one text may cause. Ollama returns 500 when a model computes NaN."""

_MAX_LOGGED_CHARS = 300

_log = structlog.stdlib.get_logger("rookery.embedders")


class TextRejectedError(Exception):
    """The service answered, but rejected the texts or failed on them. The caller checks which one it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits for the attempts of a request and for their total time."""

    max_attempts: int
    timeout_s: float


class EmbeddingClient:
    """A client that posts texts and reads vectors. Its errors, `TextRejectedError` and `EngineUnavailable`, name neither host nor key."""

    def __init__(self, remote: RemoteModel, *, verify_ssl: bool) -> None:
        self._remote = remote
        self._verify_ssl = verify_ssl
        self._client: httpx2.AsyncClient | None = None

    async def embed(self, texts: Sequence[str], policy: RetryPolicy) -> Rows:
        """
        Return one row for each of *texts*, as the service returns them. Rows have the same length and may contain NaN or infinity.

        Raises:
            TextRejectedError: The service answered, but failed with these texts.
            EngineUnavailable: The service did not answer in time or not in a readable form, or rejected the key.
        """
        deadline = time.monotonic() + policy.timeout_s
        backoff_s, attempt = _MIN_RETRY_DELAY_S, 0
        while True:
            attempt += 1
            result = await self._try(texts, deadline)
            if isinstance(result, np.ndarray):
                return result
            delay_s = result.retry_after_s if result.retry_after_s is not None else backoff_s * random.uniform(0.7, 1.3)  # noqa: S311 - spreads retries
            if attempt >= policy.max_attempts or time.monotonic() + delay_s >= deadline:
                if result.is_maybe_text_error:
                    raise TextRejectedError(result.reason)
                raise EngineUnavailable("embedder", result.reason, retry_after_s=max(1, min(3600, math.ceil(result.retry_after_s or 5))))
            await asyncio.sleep(delay_s)
            backoff_s = min(2 * backoff_s, _MAX_RETRY_DELAY_S)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _try(self, texts: Sequence[str], deadline: float) -> Rows | _RetryableFailure:
        try:
            async with asyncio.timeout(max(0.05, deadline - time.monotonic())):
                response, body = await self._post(texts)
        except TimeoutError:
            return _RetryableFailure("the service did not answer in time")
        except httpx2.HTTPError as error:
            return _RetryableFailure(_describe_error(error))
        except httpx2.InvalidURL as error:
            raise EngineUnavailable("embedder", "the address of the service is invalid") from error
        if body is None:
            raise EngineUnavailable("embedder", "the response of the service is larger than 64 MiB")
        if response.status_code != _STATUS_OK:
            return self._parse_failure(response, body)
        try:
            return _parse_response(self._remote, body, len(texts))
        except _InvalidResponseError as error:
            return _RetryableFailure(f"the response of the service is invalid: {error}")

    async def _post(self, texts: Sequence[str]) -> tuple[httpx2.Response, bytes | None]:
        """Return the response and its body; None as body if it is larger than `_MAX_RESPONSE_BYTES`."""
        client = self._get_client()
        async with client.stream("POST", self._remote.endpoint, content=orjson.dumps(_build_request(self._remote, texts))) as response:
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _MAX_RESPONSE_BYTES:
                    return response, None
            return response, bytes(body)

    def _get_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            key = self._remote.key
            headers = {"content-type": "application/json", "user-agent": "rookery"}
            if key is not None:
                headers["authorization"] = f"Bearer {key.reveal()}"
            self._client = httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S),
                verify=self._verify_ssl,
                follow_redirects=False,  # a redirect would send the key to another host
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30.0),
            )
        return self._client

    def _parse_failure(self, response: httpx2.Response, body: bytes) -> _RetryableFailure:
        """Return or raise the meaning of a status. The body is only logged, since it may quote a key or a text."""
        status = response.status_code
        excerpt = body[:_MAX_LOGGED_CHARS].decode(errors="replace")
        if self._remote.key is not None:
            excerpt = excerpt.replace(self._remote.key.reveal(), "…")
        _log.warning("embedder.request_failed", status=status, response=excerpt)
        if status in {401, 403}:
            raise EngineUnavailable("embedder", f"the service rejects the configured key (status {status})")
        if status == _STATUS_NOT_FOUND:
            raise EngineUnavailable("embedder", f"the address or the model {self._remote.model_name!r} was not found (status 404)")
        is_maybe_text_error = status in _TEXT_ERROR_STATUSES
        if status in _RETRYABLE_STATUSES:
            return _RetryableFailure(
                f"the service returned status {status}",
                retry_after_s=_parse_retry_after_s(response),
                is_maybe_text_error=is_maybe_text_error,
            )
        if is_maybe_text_error:
            raise TextRejectedError(f"the service returned status {status}")
        raise EngineUnavailable("embedder", f"the service returned status {status}")


@dataclass(frozen=True, slots=True)
class _RetryableFailure:
    """The failure of a request that may succeed when it is sent again."""

    reason: str
    retry_after_s: float | None = None
    is_maybe_text_error: bool = False


class _InvalidResponseError(Exception):
    """An invalid response; the message contains the reason."""


def _build_request(remote: RemoteModel, texts: Sequence[str]) -> dict[str, object]:
    body: dict[str, object] = {"model": remote.model_name, "input": list(texts)}
    if remote.kind == "openai":
        body["encoding_format"] = "float"
    else:
        body["truncate"] = False  # too long texts are rejected and split here, instead of being truncated silently
    if remote.requested_dimension is not None:
        body["dimensions"] = remote.requested_dimension
    return body


def _parse_response(remote: RemoteModel, body: bytes, expected_count: int) -> Rows:
    """Return the rows of a response; raises `_InvalidResponseError`."""
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise _InvalidResponseError("it is not JSON") from None
    value = parsed.get("data" if remote.kind == "openai" else "embeddings") if isinstance(parsed, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(value, list):
        raise _InvalidResponseError("it has no vectors")
    items = cast("list[object]", value)
    if len(items) != expected_count:
        raise _InvalidResponseError(f"it has {len(items)} vectors for {expected_count} texts")
    rows = [_parse_vector(item) for item in (_sort_by_index(items) if remote.kind == "openai" else items)]
    if len({len(row) for row in rows}) != 1 or not len(rows[0]):
        raise _InvalidResponseError("its vectors are empty or have different dimensions")
    return np.stack(rows)


def _sort_by_index(items: list[object]) -> list[object]:
    """Return the vectors of OpenAI's `data`, ordered by their index."""
    vectors: list[object] = [None] * len(items)
    for number, entry in enumerate(items):
        if not isinstance(entry, dict):
            raise _InvalidResponseError("an item of data is not an object")
        item = cast("dict[str, object]", entry)
        index = item.get("index", number)
        if not isinstance(index, int) or not 0 <= index < len(vectors) or vectors[index] is not None:
            raise _InvalidResponseError("an index in data is invalid or repeated")
        vectors[index] = item.get("embedding")
    return vectors


def _parse_vector(vector: object) -> npt.NDArray[np.float32]:
    """Return a vector from a list of numbers or from base64, which some services return regardless of `encoding_format`."""
    try:
        if isinstance(vector, str):
            return np.frombuffer(base64.b64decode(vector, validate=True), dtype="<f4").astype(np.float32)
        if isinstance(vector, list):
            row = np.asarray(cast("list[float]", vector), dtype=np.float64)
            if row.ndim == 1:
                return row.astype(np.float32)
    except (ValueError, TypeError, OverflowError, binascii.Error):
        pass
    raise _InvalidResponseError("a vector is not a list of numbers")


def _describe_error(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "the service did not answer in time"
    if isinstance(error, httpx2.ConnectError):
        return "the connection to the service could not be opened"
    return f"the connection to the service failed ({type(error).__name__})"


def _parse_retry_after_s(response: httpx2.Response) -> float | None:
    """Return the value of Retry-After in seconds from now; None if it is missing or invalid."""
    text = response.headers.get("retry-after")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
