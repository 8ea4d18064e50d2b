"""Similarity of texts and a query, with cached vectors; implements `tools.ports.TextSimilarity`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import structlog

from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import Passage, Vector
from rookery.memory.ports import Embedder

_log = structlog.stdlib.get_logger("rookery.tools")

_BATCH_SIZE = 16
_MAX_WAIT_S = 0.25
"""Maximum wait of a query for texts that are not embedded yet."""

_MAX_FIRST_WAIT_S = 2.0
"""The same while the embedder loads its model. The built-in one takes 0.2 to 0.4 s (measured). The tools are embedded after it."""


class SimilarityCache:
    """
    A cache that embeds each text once per process, in batches, in a background task that the first unknown text starts.

    A query waits a limited time. Texts without a vector by then have no similarity.

    Args:
        load: Creates the matrix of vectors at the first text.
        max_texts: Cached texts; 1.5 KB each besides the text. When the cache is full, it is cleared, and texts are embedded again when
            needed.
        is_loaded: Returns whether the embedder needs no preparation. Until it does, `preload` has no effect.
    """

    def __init__(
        self, embedder: Embedder, load: Callable[[], VectorMatrix], *, max_texts: int = 20_000, is_loaded: Callable[[], bool] = lambda: True
    ) -> None:
        self._max_texts = max_texts
        self._embedder = embedder
        self._is_loaded = is_loaded
        self._load = load
        self._matrix: VectorMatrix | None = None
        self._pending: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._failure: EngineUnavailable | None = None
        self._has_logged_failure = False

    async def compare(self, question: str, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of the query and each of *texts*; None for a text without a vector yet."""
        matrix = await self._get_matrix()
        max_wait_s = _MAX_WAIT_S if self._is_loaded() else _MAX_FIRST_WAIT_S
        task = self._start_embedding(matrix, texts)
        if task is not None:
            await asyncio.wait({task}, timeout=max_wait_s)
        return matrix.compute_similarities(await self._embedder.embed_query(question), texts)

    async def preload(self, texts: Iterable[str]) -> None:
        """Embed those of *texts* that have no vector yet, and wait for them, once something else has loaded the embedder."""
        if not self._is_loaded():
            return
        task = self._start_embedding(await self._get_matrix(), texts)
        if task is not None:
            # Does not cancel the task when this caller is cancelled: others wait for it too.
            await asyncio.wait({task})
            if self._failure is not None:
                raise self._failure

    async def aclose(self) -> None:
        """Cancel the background task."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _get_matrix(self) -> VectorMatrix:
        if self._matrix is None:
            matrix = await asyncio.to_thread(self._load)
            if self._matrix is None:  # a concurrent call may have loaded it; an empty matrix is falsy
                self._matrix = matrix
        return self._matrix

    def _start_embedding(self, matrix: VectorMatrix, texts: Iterable[str]) -> asyncio.Task[None] | None:
        new = [text for text in texts if text not in matrix]
        if not new:
            return None
        self._pending.update(dict.fromkeys(new[: self._max_texts]))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._embed_pending(matrix), name="tools-meanings")
        return self._task

    async def _embed_pending(self, matrix: VectorMatrix) -> None:
        self._failure = None
        try:
            while self._pending:
                batch = list(self._pending)[:_BATCH_SIZE]
                # The first chunk contains the tool's name and purpose.
                vectors = await self._embedder.embed_passages([Passage(context="", content=text) for text in batch])
                if len(matrix) + len(batch) > self._max_texts:
                    matrix.clear()
                matrix.add(batch, [chunk_vectors[0] for chunk_vectors in vectors])
                for text in batch:
                    del self._pending[text]
            self._has_logged_failure = False
        except EngineUnavailable as error:
            self._pending.clear()
            self._failure = error
            if not self._has_logged_failure:
                _log.warning("tools.semantic_search_unavailable", reason=error.message)
            self._has_logged_failure = True


class VectorMatrix:
    """A growing matrix with one row per text. Capacity grows by half; `clear` removes all rows."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._row_numbers: dict[str, int] = {}
        self._matrix: npt.NDArray[np.float32] = np.zeros((64, dimension), dtype=np.float32)

    def __contains__(self, text: str) -> bool:
        """Return whether *text* has a vector."""
        return text in self._row_numbers

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._row_numbers)

    def add(self, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        for text, vector in zip(texts, vectors, strict=True):
            row = self._row_numbers.setdefault(text, len(self._row_numbers))
            if row >= len(self._matrix):
                new_rows = np.zeros((len(self._matrix) // 2, self._dimension), dtype=np.float32)
                self._matrix = np.concatenate([self._matrix, new_rows])
            self._matrix[row] = np.frombuffer(vector, dtype="<f4")

    def clear(self) -> None:
        """Remove all texts."""
        self._row_numbers.clear()

    def compute_similarities(self, question: Vector, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of *question* and each of *texts*; None for a text without a vector."""
        query = np.frombuffer(question, dtype="<f4")
        cosines = cast("list[float]", (self._matrix[: len(self._row_numbers)] @ query).tolist())
        row_numbers = self._row_numbers
        return [None if (row := row_numbers.get(text)) is None else cosines[row] for text in texts]
