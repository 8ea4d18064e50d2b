"""Similarity, computed with numpy: of texts and a query (`tools.ports.TextSimilarity`), and of memories with each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.engines.similarity.cache import SimilarityCache
from rookery.memory.ports import Embedder, SpaceRow, VectorComparison, VectorIndex

if TYPE_CHECKING:
    from rookery.engines.similarity.vector_matrix import VectorMatrix


def open(embedder: Embedder) -> SimilarityCache:  # noqa: A001 - each engine folder has an `open`
    """Return a similarity cache over *embedder*. Fast: nothing is embedded before the first text."""

    def load() -> VectorMatrix:
        from rookery.engines.similarity.vector_matrix import VectorMatrix  # optional dependencies, imported in the thread that loads them

        return VectorMatrix(embedder.dimension)

    return SimilarityCache(embedder, load)


@asynccontextmanager
async def open_comparison(
    index: VectorIndex, workspace_id: int, batches: AsyncIterable[Sequence[SpaceRow]], *, folder: Path | None = None
) -> AsyncGenerator[VectorComparison]:
    """Open a comparison of memories, with a temporary copy of their vectors in *folder*; implements `memory.ports.OpenComparison`."""
    from rookery.engines.similarity.comparison import open_comparison as open_it  # numpy, imported by the first consolidation

    async with open_it(index, workspace_id, batches, folder=folder) as comparison:
        yield comparison
