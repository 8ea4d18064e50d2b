"""
The collections, points and filters of Qdrant as JSON. No I/O.

Each model version has a collection, with a point for each chunk of a memory. A single point with all vectors of a memory (a multivector)
would be replaced at once, but the graph of such points found 84 of 100 of the nearest memories, that of single vectors 97 (measured).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rookery.engines.vectors.qdrant_connection import QdrantServer
from rookery.kernel.clock import format_iso, from_micros
from rookery.memory.models import EmbeddedDocument, Vector
from rookery.memory.ports import ModelVersion
from rookery.memory.visibility import AllOf, AnyOf, Condition, Conditions, VectorFilter

Json: TypeAlias = Mapping[str, object]

DISTANCE = "Dot"
"""The cosine of vectors of unit length. Qdrant's own `Cosine` scales them once more, which changes their last bits."""

SEARCH_EFFORT = 400
"""Chunks of a workspace that a search by the graph keeps in view."""

_LINKS = 16
_OVERSAMPLING = 2.0

_SUFFIX = re.compile(r"-[0-9a-f]{12}")
_SUFFIX_BYTES = 6
_POINTS = uuid.UUID("6f6b6572-7900-5d1a-8e5b-0000766563f1")
"""The namespace of the ids of points."""

_TENANT, _MEMORY, _CHUNK = "tenant", "memory_id", "chunk"
_TIMES = frozenset({"created_at", "expires_at"})
_KEYWORD: Json = {"type": "keyword", "enable_hnsw": False}
_TIME: Json = {"type": "datetime", "enable_hnsw": False}

INDEXES: Mapping[str, Json] = {
    _TENANT: {"type": "keyword", "is_tenant": True},
    _MEMORY: _KEYWORD,
    _CHUNK: {"type": "integer", "lookup": True, "range": False, "enable_hnsw": False},
    **dict.fromkeys(("org", "project", "agent_id", "session_id", "memory_scope", "type", "source", "tags", "labels"), _KEYWORD),
    "confidence": {"type": "float", "enable_hnsw": False},
    **dict.fromkeys(sorted(_TIMES), _TIME),
}
"""The indexes of the payload: every field that a filter may name. The graph has links within the workspaces alone."""


def name_collection(base: str, version: ModelVersion) -> str:
    digest = blake2b(f"{version.dimension} {version.model}".encode(), digest_size=_SUFFIX_BYTES).hexdigest()
    return f"{base}-{digest}"


def is_version_collection(name: str, base: str) -> bool:
    """Return whether *name* is that of a collection of any version."""
    return name.startswith(base) and _SUFFIX.fullmatch(name[len(base) :]) is not None


def create_collection(server: QdrantServer, version: ModelVersion) -> Json:
    """Return the body that creates the collection of *version*."""
    vectors: dict[str, object] = {"size": version.dimension, "distance": DISTANCE, "on_disk": server.is_on_disk}
    body: dict[str, object] = {
        "vectors": vectors,
        # No graph over all workspaces: each query names one, and each workspace has links of its own.
        "hnsw_config": {"m": 0, "payload_m": _LINKS, "on_disk": server.is_on_disk},
        "on_disk_payload": True,
        "replication_factor": server.replicas,
        # A read by any copy sees each write that was answered.
        "write_consistency_factor": server.replicas,
        "strict_mode_config": {
            "enabled": True,
            "unindexed_filtering_retrieve": False,
            "unindexed_filtering_update": False,
            "search_allow_exact": True,
        },
        "metadata": {"program": "rookery", "model": version.model, "dimension": version.dimension},
    }
    if server.shards is not None:
        body["shard_number"] = server.shards
    if server.quantization == "scalar":
        body["quantization_config"] = {"scalar": {"type": "int8", "quantile": 0.99, "always_ram": True}}
    elif server.quantization == "binary":
        body["quantization_config"] = {"binary": {"always_ram": True}}
    return body


def build_put(items: Sequence[EmbeddedDocument]) -> Json:
    """Return the body that writes the chunks of documents and then deletes those that their memories had before."""
    points = [point for item in items for point in _make_points(item)]
    ids_by_workspace = dict[int, list[str]]()
    for item in items:
        ids_by_workspace.setdefault(item.document.workspace_id, []).append(item.document.memory_id)
    current: Json = {"has_id": [point["id"] for point in points]}
    deletions = [
        {"delete": {"filter": {"must": _match_memories(workspace_id, ids), "must_not": [current]}}}
        for workspace_id, ids in ids_by_workspace.items()
    ]
    return {"operations": [{"upsert": {"points": points}}, *deletions]}


def build_search(query: Vector, condition: Json, *, limit: int, is_exact: bool, is_quantized: bool) -> Json:
    """Return the body of a search for the nearest chunks."""
    parameters: dict[str, object] = {"exact": True} if is_exact else {"hnsw_ef": max(SEARCH_EFFORT, limit), "acorn": {"enable": True}}
    if is_quantized:
        parameters["quantization"] = {"ignore": True} if is_exact else {"rescore": True, "oversampling": _OVERSAMPLING}
    return {"query": _to_numbers(query), "filter": condition, "params": parameters, "limit": limit, "with_payload": [_MEMORY]}


def build_fetch(workspace_id: int, ids: Collection[str], *, limit: int, offset: object) -> Json:
    """Return the body of the query of the chunks of memories. *offset* is the `next_page_offset` of the last page, or None."""
    page: Json = {} if offset is None else {"offset": offset}
    matching = {"must": _match_memories(workspace_id, ids)}
    return {"filter": matching, "limit": limit, "with_payload": [_MEMORY, _CHUNK], "with_vector": True, **page}


def match_workspace(workspace_id: int) -> Json:
    """Return the filter of all chunks of a workspace."""
    return {"must": [_match_tenant(workspace_id)]}


def match_first_chunks(workspace_id: int) -> Json:
    """Return the filter of one chunk of each memory of a workspace."""
    return {"must": [_match_tenant(workspace_id), _match(_CHUNK, 0)]}


def match_memories(workspace_id: int, ids: Collection[str]) -> Json:
    """Return the filter of all chunks of memories."""
    return {"must": _match_memories(workspace_id, ids)}


def render_filter(where: VectorFilter) -> Json | None:
    """Return a filter as JSON; None if nothing can match."""
    required = _render_conditions(where.required)
    if required is None:
        return None
    must = [_match_tenant(where.workspace_id), *required]
    if where.alternatives is not None:
        alternatives = [rendered for conditions in where.alternatives if (rendered := _render_conditions(conditions)) is not None]
        if not alternatives:
            return None
        if all(alternatives):  # one without conditions admits everything
            must.append({"should": [{"must": conditions} for conditions in alternatives]})
    return {"must": must}


def to_vector(numbers: object) -> Vector:
    return np.asarray(numbers, "<f4").tobytes()


def _render_conditions(conditions: Conditions) -> list[Json] | None:
    rendered = list[Json]()
    for field, condition in conditions.items():
        if isinstance(condition, AnyOf) and not condition.values:
            return None
        rendered += _render_one(field, condition)
    return rendered


def _render_one(field: str, condition: Condition) -> Iterator[Json]:
    if isinstance(condition, AllOf):
        for facet in sorted(condition.values):
            is_label = facet.startswith("\0")
            yield _match("labels" if is_label else "tags", facet[1:] if is_label else facet)
        return
    is_missing: Json = {"is_empty": {"key": field}}
    if isinstance(condition, AnyOf):
        names = sorted(value for value in condition.values if value is not None)
        matches: list[Json] = [_match_any(field, names)] if names else []
        matches += [is_missing] if None in condition.values else []
        yield matches[0] if len(matches) == 1 else {"should": matches}
        return
    limits = {name: _to_limit(field, limit) for name, limit in (("gte", condition.minimum), ("lt", condition.end)) if limit is not None}
    within: Json = {"key": field, "range": limits} if limits else {"must_not": [is_missing]}
    yield {"should": [within, is_missing]} if condition.or_missing else within


def _to_limit(field: str, limit: float) -> object:
    """Return a limit of a range. Times are texts, with microseconds."""
    return format_iso(from_micros(int(limit))) if field in _TIMES else limit


def _match_memories(workspace_id: int, ids: Collection[str]) -> list[Json]:
    return [_match_tenant(workspace_id), _match_any(_MEMORY, sorted(ids))]


def _match_tenant(workspace_id: int) -> Json:
    return _match(_TENANT, str(workspace_id))


def _match(field: str, value: object) -> Json:
    return {"key": field, "match": {"value": value}}


def _match_any(field: str, values: Sequence[str]) -> Json:
    return _match(field, values[0]) if len(values) == 1 else {"key": field, "match": {"any": values}}


def _make_points(item: EmbeddedDocument) -> Iterator[Json]:
    """Return the points of a document: its fields, and the others that filters name."""
    document = item.document
    payload: dict[str, object] = {
        "workspace_id": document.workspace_id,
        _TENANT: str(document.workspace_id),  # the index of tenants is one of texts
        _MEMORY: document.memory_id,
        "org": document.org,
        "project": document.project,
        "agent_id": document.agent_id,
        "session_id": document.session_id,
        "memory_scope": document.memory_scope.value,
        "type": document.type,
        "tags": list(document.tags),
        "labels": sorted(document.labels),
        "confidence": document.confidence,
        "source": document.source,
        "created_at": format_iso(document.created_at),
        "expires_at": None if document.expires_at is None else format_iso(document.expires_at),
    }
    for number, vector in enumerate(item.vectors):
        chunk: dict[str, object] = {**payload, _CHUNK: number}
        if number == 0:
            chunk["content"] = document.content  # once a memory: the content of many chunks is long
        yield {"id": _make_point_id(document.workspace_id, document.memory_id, number), "vector": _to_numbers(vector), "payload": chunk}


def _make_point_id(workspace_id: int, memory_id: str, chunk: int) -> str:
    return str(uuid.uuid5(_POINTS, f"{workspace_id}/{chunk}/{memory_id}"))


def _to_numbers(vector: Vector) -> NDArray[np.float32]:
    """Return a vector as numbers, which are written in JSON with as many digits as identify them."""
    return np.frombuffer(vector, "<f4").astype(np.float32)
