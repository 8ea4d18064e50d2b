"""What memory needs from engines. Indexes are derived: they may be dropped and rebuilt from the records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from rookery.memory.models import Document, Matched, Near, Passage, Vector, Vectored, Within, Words


class Embedder(Protocol):
    """
    Turns text into vectors. Raises `EngineUnavailable("embedder", …)` and no other engine error.

    Attributes:
        model: Name and version, as stored beside each vector; another one makes vectors stale (D-54).
        dimension: The native width.
    """

    @property
    def model(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a question; longer than the window, its beginning counts. Answers are cached."""
        ...

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return for each passage the vectors of its overlapping chunks, in order, at least one (D-55)."""
        ...


class VectorIndex(Protocol):
    """
    Memories by meaning. Raises `EngineUnavailable("vectors", …)` and no other engine error.

    A write is durable when its call returns; a query sees every write that returned before it, of any process.
    """

    async def put(self, items: Sequence[Vectored]) -> None:
        """Replace all points of each document's memory; twice the same does no harm."""
        ...

    async def near(self, vector: Vector, *, within: Within, limit: int) -> list[Near]:
        """
        Return at most *limit* memories of *within*, most similar first, ties by id.

        Args:
            vector: Unit length, the index's width.
            within: Never widened: the workspace and every filter hold for each result.
            limit: At least 1.
        """
        ...

    async def similarities(self, vector: Vector, *, workspace_id: int, ids: Collection[str]) -> Mapping[str, float]:
        """Return the similarity of those of *ids* that the workspace has; unknown ones are left out."""
        ...

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Forget *ids* of the workspace; unknown ones are ignored, so a retried job is harmless."""
        ...

    async def count(self, workspace_id: int) -> int:
        """Return how many memories of the workspace are indexed."""
        ...


class TextIndex(Protocol):
    """
    Memories by words, English stemming. Raises `EngineUnavailable("texts", …)` and no other engine error.

    Durable and fresh as `VectorIndex`.
    """

    async def setup(self) -> None:
        """Create what is missing; done twice it changes nothing (spec 4.4, brain:elastic-setup)."""
        ...

    async def put(self, documents: Sequence[Document]) -> None:
        """Replace each memory's document; twice the same does no harm."""
        ...

    async def match(self, words: Words, *, within: Within, limit: int, offset: int = 0) -> list[Matched]:
        """Return at most *limit* memories of *within* after *offset*, best first, ties by id."""
        ...

    async def total(self, words: Words, *, within: Within) -> int:
        """Return how many memories of *within* match."""
        ...

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Forget *ids* of the workspace; unknown ones are ignored."""
        ...
