"""Questions and their vectors: the same question asked again, or by many at once, is embedded once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from rookery.memory.models import Vector

CACHED_QUERIES = 4096
"""Answers that are kept: 1.5 KB each at 384 dimensions."""

QUERY_LIMIT = 4000
"""Characters of a question that are looked at; 256 tokens of English have about 1,100."""


class Questions:
    """Answers by *embed*, each once as long as it is kept."""

    def __init__(self, embed: Callable[[str], Awaitable[Vector]], *, kept: int = CACHED_QUERIES) -> None:
        self._embed = embed
        self._kept = kept
        self._answers: OrderedDict[str, Vector] = OrderedDict()
        self._asked: dict[str, asyncio.Task[Vector]] = {}

    async def answer(self, text: str) -> Vector:
        """Return the vector of a question; raises what *embed* does, to all who wait."""
        question = text.strip()[:QUERY_LIMIT]
        answer = self._answers.get(question)
        if answer is not None:
            self._answers.move_to_end(question)
            return answer
        asked = self._asked.get(question)
        if asked is None:
            asked = self._asked[question] = asyncio.create_task(self._ask(question))
        # A caller that goes away does not take the answer from the others.
        return await asyncio.shield(asked)

    def forget(self) -> None:
        """Forget all answers."""
        self._answers.clear()

    async def _ask(self, question: str) -> Vector:
        try:
            answer = await self._embed(question)
        finally:
            del self._asked[question]
        self._answers[question] = answer
        if len(self._answers) > self._kept:
            self._answers.popitem(last=False)
        return answer
