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
    from rookery.engines.meanings.rows import Rows

_log = structlog.stdlib.get_logger("rookery.tools")

_MOST = 20_000
"""Texts that are kept, 1.5 KB each and themselves; what is over that is forgotten, and embedded again when it is asked for."""
_BATCH = 16
_PATIENCE_S = 0.25
"""How long a question waits for texts that were never embedded."""


class Nearness:
    """
    Embeds each text once in the life of the process, in batches, in a task of its own that the first unknown text starts.

    A question never waits long for them: those not yet embedded have no answer.
    """

    def __init__(self, embedder: Embedder, load: Callable[[], Rows]) -> None:
        """Do nothing yet; *load* makes the table of vectors at the first text."""
        self._embedder = embedder
        self._load = load
        self._rows: Rows | None = None
        self._wanted: dict[str, None] = {}
        self._learning: asyncio.Task[None] | None = None
        self._failure: EngineUnavailable | None = None
        self._is_told = False

    async def alike(self, question: str, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of the question with each of *texts*."""
        rows = await self._table()
        learning = self._learn(rows, texts)
        if learning is not None:
            await asyncio.wait({learning}, timeout=_PATIENCE_S)
        return rows.alike(await self._embedder.embed_query(question), texts)

    async def learn(self, texts: Iterable[str]) -> None:
        """Embed those of *texts* that never were."""
        learning = self._learn(await self._table(), texts)
        if learning is not None:
            # Whoever waits may leave; the others still wait.
            await asyncio.wait({learning})
            if self._failure is not None:
                raise self._failure

    async def aclose(self) -> None:
        """Stop embedding."""
        if self._learning is not None:
            self._learning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._learning

    async def _table(self) -> Rows:
        if self._rows is None:
            rows = await asyncio.to_thread(self._load)
            if self._rows is None:  # meanwhile another may have loaded them, and an empty table is false
                self._rows = rows
        return self._rows

    def _learn(self, rows: Rows, texts: Iterable[str]) -> asyncio.Task[None] | None:
        new = [text for text in texts if text not in rows]
        if not new:
            return None
        self._wanted.update(dict.fromkeys(new[:_MOST]))
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._embed(rows), name="tools-meanings")
        return self._learning

    async def _embed(self, rows: Rows) -> None:
        self._failure = None
        try:
            while self._wanted:
                batch = list(self._wanted)[:_BATCH]
                # The first chunk has the name and what the tool is for.
                vectors = await self._embedder.embed_passages([Passage(context="", content=text) for text in batch])
                if len(rows) + len(batch) > _MOST:
                    rows.clear()
                rows.put(batch, [of_text[0] for of_text in vectors])
                for text in batch:
                    del self._wanted[text]
            self._is_told = False
        except EngineUnavailable as error:
            self._wanted.clear()
            self._failure = error
            if not self._is_told:
                _log.warning("tools.search_by_words_alone", reason=error.message)
            self._is_told = True
