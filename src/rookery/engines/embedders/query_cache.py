"""A cache of query vectors. Repeated and concurrent equal queries are embedded once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from rookery.memory.models import Vector

MAX_CACHED_QUERIES = 4096
"""Cached vectors; 1.5 KB each at 384 dimensions."""

MAX_QUERY_CHARS = 4000
"""Maximum characters of a query; the rest is cut off. 256 tokens of English have about 1,100."""


class QueryCache:
    """An LRU cache in front of *embed*."""

    def __init__(self, embed: Callable[[str], Awaitable[Vector]], *, max_entries: int = MAX_CACHED_QUERIES) -> None:
        self._embed = embed
        self._max_entries = max_entries
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._pending: dict[str, asyncio.Task[Vector]] = {}

    async def get(self, text: str) -> Vector:
        """Return the vector of a query. An error of *embed* is raised to all waiting callers."""
        query = text.strip()[:MAX_QUERY_CHARS]
        vector = self._vectors.get(query)
        if vector is not None:
            self._vectors.move_to_end(query)
            return vector
        task = self._pending.get(query)
        if task is None:
            task = self._pending[query] = asyncio.create_task(self._compute(query))
        # A cancelled caller does not cancel the task of the others.
        return await asyncio.shield(task)

    def clear(self) -> None:
        """Remove all vectors."""
        self._vectors.clear()

    async def _compute(self, query: str) -> Vector:
        try:
            vector = await self._embed(query)
        finally:
            del self._pending[query]
        self._vectors[query] = vector
        if len(self._vectors) > self._max_entries:
            self._vectors.popitem(last=False)
        return vector
