"""
Requests and responses of embedding services.

    openai    POST /v1/embeddings   {"model", "input"}    {"data": [{"index", "embedding"}]}
    ollama    POST /api/embed       {"model", "input"}    {"embeddings": [[…]]}
    tei       POST /embed           {"inputs"}            [[…]]; the server has one model, which GET /info names
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import orjson

from rookery.engines.embedders import RemoteModel
from rookery.kernel.model_service_urls import ModelServiceKind

Rows = npt.NDArray[np.float32]

_MAX_TOKENS = 100_000_000
"""A number of tokens above this is no count of one request."""

_VECTOR_FIELDS: Mapping[ModelServiceKind, str | None] = {"openai": "data", "ollama": "embeddings", "tei": None}
"""The field of a response that has the vectors. None: the response is the list of them."""


class InvalidResponseError(Exception):
    """An invalid response; the message contains the reason."""


def build_request(remote: RemoteModel, texts: Sequence[str]) -> dict[str, object]:
    """Return the body of a request. Too long texts are rejected, instead of being truncated silently."""
    body: dict[str, object]
    if remote.kind == "openai":
        body = {"model": remote.model_name, "input": list(texts), "encoding_format": "float"}
    elif remote.kind == "ollama":
        body = {"model": remote.model_name, "input": list(texts), "truncate": False}
    else:
        body = {"inputs": list(texts), "truncate": False}
    if remote.requested_dimension is not None:
        body["dimensions"] = remote.requested_dimension
    return body


@dataclass(frozen=True, slots=True)
class EmbeddingResponse:
    """
    The content of a response.

    Attributes:
        tokens: The tokens that the service reports; None: it reports none.
    """

    rows: Rows
    tokens: int | None


def parse_response(remote: RemoteModel, body: bytes, expected_count: int) -> EmbeddingResponse:
    """Return the content of a response; raises `InvalidResponseError`."""
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise InvalidResponseError("it is not JSON") from None
    field = _VECTOR_FIELDS[remote.kind]
    fields = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else dict[str, object]()
    value = cast("object", parsed) if field is None else fields.get(field)
    if not isinstance(value, list):
        raise InvalidResponseError("it has no vectors")
    items = cast("list[object]", value)
    if len(items) != expected_count:
        raise InvalidResponseError(f"it has {len(items)} vectors for {expected_count} texts")
    rows = [_parse_vector(item) for item in (_sort_by_index(items) if remote.kind == "openai" else items)]
    if len({len(row) for row in rows}) != 1 or not len(rows[0]):
        raise InvalidResponseError("its vectors are empty or have different dimensions")
    return EmbeddingResponse(rows=np.stack(rows), tokens=_parse_tokens(remote, fields))


def _parse_tokens(remote: RemoteModel, fields: Mapping[str, object]) -> int | None:
    """Return the tokens that a response reports: OpenAI's `usage`, or Ollama's `prompt_eval_count`. A senseless number counts as none."""
    if remote.kind == "ollama":
        return _to_count(fields.get("prompt_eval_count"))
    usage = fields.get("usage")
    if not isinstance(usage, dict):
        return None
    counts = cast("dict[str, object]", usage)
    return _to_count(counts.get("total_tokens")) or _to_count(counts.get("prompt_tokens"))


def _to_count(value: object) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _MAX_TOKENS:
        return None
    return int(value) if int(value) == value else None


def parse_model_name(body: bytes) -> str | None:
    """Return the model that Text Embeddings Inference's `/info` names; None if *body* is something else."""
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    name = cast("dict[str, object]", parsed).get("model_id") if isinstance(parsed, dict) else None
    return name if isinstance(name, str) and name else None


def _sort_by_index(items: list[object]) -> list[object]:
    """Return the vectors of OpenAI's `data`, ordered by their index."""
    vectors: list[object] = [None] * len(items)
    for number, entry in enumerate(items):
        if not isinstance(entry, dict):
            raise InvalidResponseError("an item of data is not an object")
        item = cast("dict[str, object]", entry)
        index = item.get("index", number)
        if not isinstance(index, int) or not 0 <= index < len(vectors) or vectors[index] is not None:
            raise InvalidResponseError("an index in data is invalid or repeated")
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
    raise InvalidResponseError("a vector is not a list of numbers")
