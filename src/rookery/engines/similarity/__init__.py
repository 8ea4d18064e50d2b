"""Similarity, computed with numpy: of texts and a query (`tools.ports.TextSimilarity`), and of memories with each other."""

from __future__ import annotations

from collections.abc import Callable

from rookery.engines.similarity.cache import SimilarityCache, VectorMatrix
from rookery.memory.ports import Embedder


def open(embedder: Embedder, *, is_loaded: Callable[[], bool] = lambda: True) -> SimilarityCache:  # noqa: A001 - each engine folder has one
    """Return a similarity cache over *embedder* (see `SimilarityCache`). Fast: nothing is embedded before the first text."""
    return SimilarityCache(embedder, lambda: VectorMatrix(embedder.dimension), is_loaded=is_loaded)
