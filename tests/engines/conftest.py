"""Documents, filters and Hypothesis strategies for the engine suites."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pytest
from hypothesis import strategies as st

from rookery.engines.texts.embedded import TextIndexLimits
from rookery.engines.texts.term_cache import TermCacheLimits
from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, MemoryScope, Vector, VectorHit
from rookery.memory.ports import VectorIndex
from rookery.memory.visibility import build_vector_filter, filter_ids, is_visible
from tests.engines.ivf import OpenIndex, open_index

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

_MOMENTS = st.sampled_from([NOW - timedelta(days=1), NOW, NOW + timedelta(microseconds=1)])
_ORGS = ["acme", "Acme"]
_PROJECTS = ["api", "web"]
_CONFIDENCES = st.sampled_from([0.3, 0.5, 0.1 + 0.2])


SMALL_CACHE = TextIndexLimits(
    cache=TermCacheLimits(min_documents=0, min_matching_documents=-1, update_after_rows=1, poll_interval_s=0.005, retry_delay_s=0.01)
)
"""A full-text index that has a cache for few documents too, and updates it immediately."""


class Closable(Protocol):
    """An engine that has to be closed."""

    async def close(self) -> None: ...


E = TypeVar("E", bound=Closable)


class CloseAtEnd:
    """Closes engines at the end of the test, the last one first."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack

    def __call__(self, engine: E) -> E:
        """Return *engine*."""
        self._stack.push_async_callback(engine.close)
        return engine


@pytest.fixture
async def close_at_end() -> AsyncIterator[CloseAtEnd]:
    """Yield a function that returns the engine it gets, and closes it at the end of the test."""
    async with contextlib.AsyncExitStack() as stack:
        yield CloseAtEnd(stack)


@pytest.fixture
def open_vectors(tmp_path: Path, close_at_end: CloseAtEnd) -> OpenIndex:
    """Return a function that opens another instance of the same index, as a separate process or a restart would."""
    return lambda limits=None: close_at_end(open_index(tmp_path, limits=limits))


def make_document(memory_id: str = "a", **fields: object) -> IndexDocument:
    """Return a document of workspace 1."""
    document = IndexDocument(
        memory_id=memory_id,
        workspace_id=1,
        org="acme",
        project="api",
        agent_id=None,
        session_id=None,
        memory_scope=MemoryScope.PROJECT,
        type="observation",
        tags=(),
        confidence=0.5,
        source="manual",
        content="the heron nests on the roof",
        created_at=NOW,
        updated_at=NOW,
        expires_at=None,
    )
    return replace(document, **fields)


def vector(*numbers: float, width: int = 4) -> Vector:
    """Return the normalized vector of *numbers*, filled up with zeros."""
    row = np.zeros(width, dtype="<f4")
    row[: len(numbers)] = numbers
    return (row / np.linalg.norm(row)).astype("<f4").tobytes()


def make_embedded(memory_id: str = "a", *vectors: Vector, **fields: object) -> EmbeddedDocument:
    """Return a document of workspace 1 with *vectors*."""
    return EmbeddedDocument(document=make_document(memory_id, **fields), vectors=vectors or (vector(1),))


def make_filter(workspace_id: int = 1, **fields: object) -> AccessFilter:
    """Return a filter for everything in a workspace except private memories."""
    return replace(AccessFilter(workspace_id=workspace_id, at=NOW), **fields)


def damage(path: Path, *, at: int) -> None:
    """Overwrite a file from *at* on, or create one that is not a database."""
    content = path.read_bytes() if path.exists() else b""
    path.write_bytes(content[:at] + b"\xa5" * max(10_000, len(content) - at))


def remove(path: Path, *, with_journal: bool = True) -> None:
    """Delete a database."""
    for file in list(path.parent.glob(f"{path.name}*")) if with_journal else [path]:
        file.unlink()


def _optional(values: Sequence[str]) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(values)


def _optional_set(values: Sequence[str]) -> st.SearchStrategy[frozenset[str] | None]:
    return st.none() | st.frozensets(st.sampled_from(values))


documents = st.lists(
    st.builds(
        IndexDocument,
        memory_id=st.integers(0, 30).map(lambda number: f"m{number:02}"),
        workspace_id=st.sampled_from([1, 1, 1, 2]),
        org=_optional(_ORGS),
        project=_optional(_PROJECTS),
        agent_id=_optional(["kim", "lee"]),
        session_id=_optional(["s1", "s2"]),
        memory_scope=st.sampled_from(MemoryScope),
        type=st.sampled_from(["decision", "context"]),
        tags=st.lists(st.sampled_from(["a", "b", "a b", '"']), max_size=3, unique=True).map(tuple),
        labels=st.frozensets(st.sampled_from(["a", "1f"]), max_size=2),
        confidence=_CONFIDENCES,
        source=st.sampled_from(["manual", "import"]),
        content=st.sampled_from(["heron", "heron roof", "heron heron roof nest"]),
        created_at=_MOMENTS,
        updated_at=_MOMENTS,
        expires_at=st.none() | _MOMENTS,
    ),
    max_size=25,
    unique_by=lambda document: (document.workspace_id, document.memory_id),
)
"""Documents with few distinct values, so that filters often match."""

access_filters = st.builds(
    AccessFilter,
    workspace_id=st.sampled_from([1, 1, 2, 3]),
    at=st.just(NOW),
    org=_optional(_ORGS),
    project=_optional(_PROJECTS),
    agent_id=_optional(["kim", "nobody"]),
    session_id=_optional(["s1", "s3"]),
    continued_session_ids=st.frozensets(st.sampled_from(["s2", "s4"]), max_size=2),
    scopes=st.none() | st.frozensets(st.sampled_from(MemoryScope)),
    type=_optional(["decision", "unknown"]),
    tags=st.frozensets(st.sampled_from(["a", "b", "a b", '"', "unknown"]), max_size=2),
    labels=st.frozensets(st.sampled_from(["a", "1f", "2e"]), max_size=2),
    source=_optional(["manual", "unknown"]),
    since=st.none() | _MOMENTS,
    until=st.none() | _MOMENTS,
    min_confidence=st.none() | _CONFIDENCES,
    orgs=_optional_set([*_ORGS, "unknown"]),
    projects=_optional_set([*_PROJECTS, "unknown"]),
)
"""Filters with all fields, each often empty."""


EAST, NORTH = vector(1), vector(0, 1)

CROSSES = [vector(*signs) for signs in ((1,), (0, 1), (1, 1, 1, 1), (1, 1, -1, 1), (-1, 1, 1, -1), (-1,))]
"""Vectors whose products are exact in floats, and often equal."""


def cosine(one: Vector, other: Vector) -> float:
    """Return the exact product of two vectors, computed slowly."""
    return sum(float(a) * float(b) for a, b in zip(np.frombuffer(one, "<f4"), np.frombuffer(other, "<f4"), strict=True))


def search_exhaustively(items: Sequence[EmbeddedDocument], query: Vector, access_filter: AccessFilter, limit: int) -> list[VectorHit]:
    """Return what `search` must return, computed without an index."""
    best = {
        item.document.memory_id: max(round(cosine(query, chunk), 5) for chunk in item.vectors)
        for item in items
        if is_visible(access_filter, item.document)
    }
    order = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return [VectorHit(memory_id=memory_id, similarity=similarity) for memory_id, similarity in order[:limit]]


def round_hits(hits: Sequence[VectorHit]) -> list[VectorHit]:
    """Round the similarities, because engines may differ in the last bits."""
    return [hit._replace(similarity=round(hit.similarity, 5)) for hit in hits]


async def find_ids(index: VectorIndex, query: Vector = EAST, *, limit: int = 10, access_filter: AccessFilter | None = None) -> list[str]:
    """Return the ids of the hits for *query*."""
    hits = await index.search(query, where=build_vector_filter(access_filter or make_filter()), limit=limit)
    return [hit.memory_id for hit in hits]


async def compute_similarities(index: VectorIndex, query: Vector, ids: Collection[str]) -> dict[str, float]:
    """Return the similarities of *query* and those of *ids* that workspace 1 has."""
    hits = await index.search(query, where=filter_ids(1, ids), limit=max(1, len(ids)))
    return {hit.memory_id: hit.similarity for hit in hits}
