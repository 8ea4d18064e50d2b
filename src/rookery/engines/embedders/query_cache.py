"""Questions and their vectors: the same question asked again, or by many at once, is embedded once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from rookery.memory.models import Vector

MAX_CACHED_QUERIES = 4096
"""Answers that are kept: 1.5 KB each at 384 dimensions."""

MAX_QUERY_CHARS = 4000
"""Characters of a question that are looked at; 256 tokens of English have about 1,100."""


class QueryCache:
    """Answers by *embed*, each once as long as it is kept."""

    def __init__(self, embed: Callable[[str], Awaitable[Vector]], *, max_entries: int = MAX_CACHED_QUERIES) -> None:
        self._embed = embed
        self._max_entries = max_entries
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._pending: dict[str, asyncio.Task[Vector]] = {}

    async def get(self, text: str) -> Vector:
        """Return the vector of a question; raises what *embed* does, to all who wait."""
        question = text.strip()[:MAX_QUERY_CHARS]
        answer = self._vectors.get(question)
        if answer is not None:
            self._vectors.move_to_end(question)
            return answer
        asked = self._pending.get(question)
        if asked is None:
            asked = self._pending[question] = asyncio.create_task(self._compute(question))
        # A caller that goes away does not take the answer from the others.
        return await asyncio.shield(asked)

    def clear(self) -> None:
        """Forget all answers."""
        self._vectors.clear()

    async def _compute(self, question: str) -> Vector:
        try:
            answer = await self._embed(question)
        finally:
            del self._pending[question]
        self._vectors[question] = answer
        if len(self._vectors) > self._max_entries:
            self._vectors.popitem(last=False)
        return answer
