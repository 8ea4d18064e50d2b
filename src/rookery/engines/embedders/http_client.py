"""What is said to an embedding service and what it answers, over HTTP, as often as is worth it."""

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
"""Bytes: 64 texts of 4,096 numbers are about 6 MB of JSON."""

_MIN_RETRY_DELAY_S = 0.4
_MAX_RETRY_DELAY_S = 20.0
_STATUS_OK, _STATUS_NOT_FOUND = 200, 404
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""

_TEXT_ERROR_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses that may be due to one text: 500 is what Ollama says when a model answers with what is no number."""

_MAX_LOGGED_CHARS = 300

_log = structlog.stdlib.get_logger("rookery.embedders")


class TextRejectedError(Exception):
    """The service answers, but not to this; whether the texts are why is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a request is made, and how long all of that may take."""

    max_attempts: int
    timeout_s: float


class EmbeddingClient:
    """A client that posts texts and reads vectors. Its errors, `TextRejectedError` and `EngineUnavailable`, name neither host nor key."""

    def __init__(self, remote: RemoteModel, *, verify_ssl: bool) -> None:
        self._remote = remote
        self._verify_ssl = verify_ssl
        self._client: httpx2.AsyncClient | None = None

    async def embed(self, texts: Sequence[str], patience: RetryPolicy) -> Rows:
        """
        Return a row for each of *texts*, as the service gives them: of one width, finite or not.

        Raises:
            Refused: It answers, but not to these.
            EngineUnavailable: It does not answer, in time, in a form that can be read; or it refuses us.
        """
        deadline = time.monotonic() + patience.timeout_s
        wait_s, attempt = _MIN_RETRY_DELAY_S, 0
        while True:
            attempt += 1
            tried = await self._try(texts, deadline)
            if isinstance(tried, np.ndarray):
                return tried
            later = tried.retry_after_s if tried.retry_after_s is not None else wait_s * random.uniform(0.7, 1.3)  # noqa: S311 - spreads retries
            if attempt >= patience.max_attempts or time.monotonic() + later >= deadline:
                if tried.is_maybe_text_error:
                    raise TextRejectedError(tried.reason)
                raise EngineUnavailable("embedder", tried.reason, retry_after_s=max(1, min(3600, math.ceil(tried.retry_after_s or 5))))
            await asyncio.sleep(later)
            wait_s = min(2 * wait_s, _MAX_RETRY_DELAY_S)

    async def aclose(self) -> None:
        """Let go of the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _try(self, texts: Sequence[str], deadline: float) -> Rows | _RetryableFailure:
        try:
            async with asyncio.timeout(max(0.05, deadline - time.monotonic())):
                response, body = await self._post(texts)
        except TimeoutError:
            return _RetryableFailure("it did not answer in time")
        except httpx2.HTTPError as error:
            return _RetryableFailure(_describe_error(error))
        except httpx2.InvalidURL as error:
            raise EngineUnavailable("embedder", "its address cannot be used") from error
        if body is None:
            raise EngineUnavailable("embedder", "its answer is larger than 64 MiB")
        if response.status_code != _STATUS_OK:
            return self._parse_failure(response, body)
        try:
            return _parse_response(self._remote, body, len(texts))
        except _InvalidResponseError as error:
            return _RetryableFailure(f"its answer cannot be read: {error}")

    async def _post(self, texts: Sequence[str]) -> tuple[httpx2.Response, bytes | None]:
        """Return the answer and its body; no body: it is too large to be one."""
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
                follow_redirects=False,  # a redirect would take the key elsewhere
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30.0),
            )
        return self._client

    def _parse_failure(self, response: httpx2.Response, body: bytes) -> _RetryableFailure:
        """Return what a status means; what the service says of it is for the log alone, since it may quote a key or a text."""
        status = response.status_code
        said = body[:_MAX_LOGGED_CHARS].decode(errors="replace")
        if self._remote.key is not None:
            said = said.replace(self._remote.key.reveal(), "…")
        _log.warning("embedder.refused", status=status, said=said)
        if status in {401, 403}:
            raise EngineUnavailable("embedder", f"it refuses our key (status {status})")
        if status == _STATUS_NOT_FOUND:
            raise EngineUnavailable("embedder", f"it knows no such address or no model {self._remote.model_name!r} (status 404)")
        may_be_the_text = status in _TEXT_ERROR_STATUSES
        if status in _RETRYABLE_STATUSES:
            return _RetryableFailure(
                f"it answers with status {status}", retry_after_s=_parse_retry_after_s(response), is_maybe_text_error=may_be_the_text
            )
        if may_be_the_text:
            raise TextRejectedError(f"it answers with status {status}")
        raise EngineUnavailable("embedder", f"it answers with status {status}")


@dataclass(frozen=True, slots=True)
class _RetryableFailure:
    """A request that may succeed when it is made again."""

    reason: str
    retry_after_s: float | None = None
    is_maybe_text_error: bool = False


class _InvalidResponseError(Exception):
    """An answer that is not of the form that it should have; in words."""


def _build_request(remote: RemoteModel, texts: Sequence[str]) -> dict[str, object]:
    body: dict[str, object] = {"model": remote.model_name, "input": list(texts)}
    if remote.kind == "openai":
        body["encoding_format"] = "float"
    else:
        body["truncate"] = False  # rather refused, and cut by us, than silently embedded in part
    if remote.requested_dimension is not None:
        body["dimensions"] = remote.requested_dimension
    return body


def _parse_response(remote: RemoteModel, body: bytes, number: int) -> Rows:
    """Return the rows of an answer; raises `_InvalidResponseError`."""
    try:
        answer: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise _InvalidResponseError("it is no JSON") from None
    found = answer.get("data" if remote.kind == "openai" else "embeddings") if isinstance(answer, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(found, list):
        raise _InvalidResponseError("it has no vectors")
    listed = cast("list[object]", found)
    if len(listed) != number:
        raise _InvalidResponseError(f"it has {len(listed)} vectors for {number} texts")
    rows = [_parse_vector(each) for each in (_sort_by_index(listed) if remote.kind == "openai" else listed)]
    if len({len(row) for row in rows}) != 1 or not len(rows[0]):
        raise _InvalidResponseError("its vectors differ in width, or are empty")
    return np.stack(rows)


def _sort_by_index(listed: list[object]) -> list[object]:
    """Return the vectors of OpenAI's `data`, each at its index."""
    placed: list[object] = [None] * len(listed)
    for number, each in enumerate(listed):
        if not isinstance(each, dict):
            raise _InvalidResponseError("its data are no objects")
        item = cast("dict[str, object]", each)
        index = item.get("index", number)
        if not isinstance(index, int) or not 0 <= index < len(placed) or placed[index] is not None:
            raise _InvalidResponseError("the indexes of its vectors are wrong")
        placed[index] = item.get("embedding")
    return placed


def _parse_vector(vector: object) -> npt.NDArray[np.float32]:
    """Return a vector that is a list of numbers, or such numbers in base64, as some services answer whatever they are asked for."""
    try:
        if isinstance(vector, str):
            return np.frombuffer(base64.b64decode(vector, validate=True), dtype="<f4").astype(np.float32)
        if isinstance(vector, list):
            row = np.asarray(cast("list[float]", vector), dtype=np.float64)
            if row.ndim == 1:
                return row.astype(np.float32)
    except (ValueError, TypeError, OverflowError, binascii.Error):
        pass
    raise _InvalidResponseError("a vector is no list of numbers")


def _describe_error(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx2.ConnectError):
        return "no connection to it can be made"
    return f"the connection to it failed ({type(error).__name__})"


def _parse_retry_after_s(response: httpx2.Response) -> float | None:
    """Return what Retry-After says, in seconds from now."""
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
