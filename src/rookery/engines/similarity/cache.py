"""How near texts are to a question in meaning, by an embedder: `tools.ports.Meanings`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import Passage
from rookery.memory.ports import Embedder

if TYPE_CHECKING:
    # For its type alone: it brings numpy, which starting need not wait for.
    from rookery.engines.similarity.vector_matrix import VectorMatrix

_log = structlog.stdlib.get_logger("rookery.tools")

_MAX_TEXTS = 20_000
"""Texts that are kept, 1.5 KB each and themselves; what is over that is forgotten, and embedded again when it is asked for."""
_BATCH_SIZE = 16
_MAX_WAIT_S = 0.25
"""How long a question waits for texts that were never embedded."""


class SimilarityCache:
    """
    Embeds each text once in the life of the process, in batches, in a task of its own that the first unknown text starts.

    A question never waits long for them: those not yet embedded have no answer.
    """

    def __init__(self, embedder: Embedder, load: Callable[[], VectorMatrix]) -> None:
        """Do nothing yet; *load* makes the table of vectors at the first text."""
        self._embedder = embedder
        self._load = load
        self._matrix: VectorMatrix | None = None
        self._pending: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._failure: EngineUnavailable | None = None
        self._has_logged_failure = False

    async def compare(self, question: str, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of the question with each of *texts*."""
        rows = await self._get_matrix()
        learning = self._start_embedding(rows, texts)
        if learning is not None:
            await asyncio.wait({learning}, timeout=_MAX_WAIT_S)
        return rows.compute_similarities(await self._embedder.embed_query(question), texts)

    async def preload(self, texts: Iterable[str]) -> None:
        """Embed those of *texts* that never were."""
        learning = self._start_embedding(await self._get_matrix(), texts)
        if learning is not None:
            # Whoever waits may leave; the others still wait.
            await asyncio.wait({learning})
            if self._failure is not None:
                raise self._failure

    async def aclose(self) -> None:
        """Stop embedding."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _get_matrix(self) -> VectorMatrix:
        if self._matrix is None:
            rows = await asyncio.to_thread(self._load)
            if self._matrix is None:  # meanwhile another may have loaded them, and an empty table is false
                self._matrix = rows
        return self._matrix

    def _start_embedding(self, rows: VectorMatrix, texts: Iterable[str]) -> asyncio.Task[None] | None:
        new = [text for text in texts if text not in rows]
        if not new:
            return None
        self._pending.update(dict.fromkeys(new[:_MAX_TEXTS]))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._embed_pending(rows), name="tools-meanings")
        return self._task

    async def _embed_pending(self, rows: VectorMatrix) -> None:
        self._failure = None
        try:
            while self._pending:
                batch = list(self._pending)[:_BATCH_SIZE]
                # The first chunk has the name and what the tool is for.
                vectors = await self._embedder.embed_passages([Passage(context="", content=text) for text in batch])
                if len(rows) + len(batch) > _MAX_TEXTS:
                    rows.clear()
                rows.add(batch, [of_text[0] for of_text in vectors])
                for text in batch:
                    del self._pending[text]
            self._has_logged_failure = False
        except EngineUnavailable as error:
            self._pending.clear()
            self._failure = error
            if not self._has_logged_failure:
                _log.warning("tools.search_by_words_alone", reason=error.message)
            self._has_logged_failure = True
