"""Similarity, computed with numpy: of texts and a query (`tools.ports.TextSimilarity`), and of memories with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rookery.engines.similarity.cache import SimilarityCache
from rookery.memory.ports import Embedder

if TYPE_CHECKING:
    from rookery.engines.similarity.cache import VectorMatrix


def open(embedder: Embedder, *, is_loaded: Callable[[], bool] = lambda: True) -> SimilarityCache:  # noqa: A001 - each engine folder has one
    """Return a similarity cache over *embedder* (see `SimilarityCache`). Fast: nothing is embedded before the first text."""

    def load() -> VectorMatrix:
        from rookery.engines.similarity.cache import VectorMatrix  # optional dependencies, imported in the thread that loads them

        return VectorMatrix(embedder.dimension)

    return SimilarityCache(embedder, load, is_loaded=is_loaded)
