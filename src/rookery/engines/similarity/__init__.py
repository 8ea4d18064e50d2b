"""The port `tools.ports.Meanings`: how near texts are to a question in meaning. There is one engine, by memory's embedder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.engines.similarity.cache import SimilarityCache
from rookery.memory.ports import Embedder

if TYPE_CHECKING:
    from rookery.engines.similarity.vector_matrix import VectorMatrix


def open(embedder: Embedder) -> SimilarityCache:  # noqa: A001 - house.md 5.3: each engine folder's open(url) picks
    """Return what compares by *embedder*; fast, since nothing is embedded before the first text."""

    def load() -> VectorMatrix:
        from rookery.engines.similarity.vector_matrix import VectorMatrix  # vendor libraries are imported in the thread that loads

        return VectorMatrix(embedder.dimension)

    return SimilarityCache(embedder, load)
