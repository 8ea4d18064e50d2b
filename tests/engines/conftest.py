"""Shared parts of the engine suites: document makers and Hypothesis strategies for documents and filters."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, MemoryScope, Vector, VectorHit
from rookery.memory.ports import VectorIndex
from rookery.memory.visibility import is_visible
from tests.engines.ivf import OpenIndex, open_index

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

_MOMENTS = st.sampled_from([NOW - timedelta(days=1), NOW, NOW + timedelta(microseconds=1)])
_ORGS = ["acme", "Acme"]
_PROJECTS = ["api", "web"]
_CONFIDENCES = st.sampled_from([0.3, 0.5, 0.1 + 0.2])


@pytest.fixture
async def open_vectors(tmp_path: Path) -> AsyncIterator[OpenIndex]:
    """Open the same index as often as asked: as another process would, or as this one after a restart."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it() -> EmbeddedVectorIndex:
            index = open_index(tmp_path)
            stack.push_async_callback(index.close)
            return index

        yield open_it


def make_document(memory_id: str = "a", **fields: object) -> IndexDocument:
    """Make a document of workspace 1."""
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
    """Make a unit vector of *numbers*, then zeros."""
    row = np.zeros(width, dtype="<f4")
    row[: len(numbers)] = numbers
    return (row / np.linalg.norm(row)).astype("<f4").tobytes()


def vectored(memory_id: str = "a", *vectors: Vector, **fields: object) -> EmbeddedDocument:
    """Make a document of workspace 1 with *vectors*."""
    return EmbeddedDocument(document=make_document(memory_id, **fields), vectors=vectors or (vector(1),))


def everywhere(workspace_id: int = 1, **fields: object) -> AccessFilter:
    """See what one sees without filters."""
    return replace(AccessFilter(workspace_id=workspace_id, at=NOW), **fields)


def damage(path: Path, *, at: int) -> None:
    """Overwrite a file from *at* on, or make one that is no database."""
    whole = path.read_bytes() if path.exists() else b""
    path.write_bytes(whole[:at] + b"\xa5" * max(10_000, len(whole) - at))


def remove(path: Path, *, with_journal: bool = True) -> None:
    """Delete a database."""
    for file in list(path.parent.glob(f"{path.name}*")) if with_journal else [path]:
        file.unlink()


def _maybe(values: Sequence[str]) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(values)


def _maybe_some(values: Sequence[str]) -> st.SearchStrategy[frozenset[str] | None]:
    return st.none() | st.frozensets(st.sampled_from(values))


documents = st.lists(
    st.builds(
        IndexDocument,
        memory_id=st.integers(0, 30).map(lambda number: f"m{number:02}"),
        workspace_id=st.sampled_from([1, 1, 1, 2]),
        org=_maybe(_ORGS),
        project=_maybe(_PROJECTS),
        agent_id=_maybe(["kim", "lee"]),
        session_id=_maybe(["s1", "s2"]),
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
"""Documents of few distinct values, so that filters meet them."""

withins = st.builds(
    AccessFilter,
    workspace_id=st.sampled_from([1, 1, 2, 3]),
    at=st.just(NOW),
    org=_maybe(_ORGS),
    project=_maybe(_PROJECTS),
    agent_id=_maybe(["kim", "nobody"]),
    session_id=_maybe(["s1", "s3"]),
    scopes=st.none() | st.frozensets(st.sampled_from(MemoryScope)),
    type=_maybe(["decision", "unheard of"]),
    tags=st.frozensets(st.sampled_from(["a", "b", "a b", '"', "unheard of"]), max_size=2),
    labels=st.frozensets(st.sampled_from(["a", "1f", "2e"]), max_size=2),
    source=_maybe(["manual", "unheard of"]),
    since=st.none() | _MOMENTS,
    until=st.none() | _MOMENTS,
    min_confidence=st.none() | _CONFIDENCES,
    orgs=_maybe_some([*_ORGS, "unheard of"]),
    projects=_maybe_some([*_PROJECTS, "unheard of"]),
)
"""Every filter, each often left out."""


EAST, NORTH = vector(1), vector(0, 1)

CROSSES = [vector(*signs) for signs in ((1,), (0, 1), (1, 1, 1, 1), (1, 1, -1, 1), (-1, 1, 1, -1), (-1,))]
"""Vectors whose products are exact in floats, and often equal."""


def cosine(one: Vector, other: Vector) -> float:
    """Multiply as slowly and as exactly as it can be done."""
    return sum(float(a) * float(b) for a, b in zip(np.frombuffer(one, "<f4"), np.frombuffer(other, "<f4"), strict=True))


def naive(items: Sequence[EmbeddedDocument], query: Vector, within: AccessFilter, limit: int) -> list[VectorHit]:
    """Do what `search` promises, without an index; for vectors whose products are exact in floats, up to their length."""
    best = {
        item.document.memory_id: max(round(cosine(query, chunk), 5) for chunk in item.vectors)
        for item in items
        if is_visible(within, item.document)
    }
    order = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return [VectorHit(memory_id=memory_id, similarity=similarity) for memory_id, similarity in order[:limit]]


def rounded(answer: Sequence[VectorHit]) -> list[VectorHit]:
    """Forgive engines the last bits of a float."""
    return [replace(near, similarity=round(near.similarity, 5)) for near in answer]


async def found(index: VectorIndex, query: Vector = EAST, *, limit: int = 10, within: AccessFilter | None = None) -> list[str]:
    """Return the ids that are near *query*."""
    return [near.memory_id for near in await index.search(query, access_filter=within or everywhere(), limit=limit)]
