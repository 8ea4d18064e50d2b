"""An embedder that is a service: OpenAI's `/v1/embeddings`, whoever serves it, or Ollama's `/api/embed`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import TypeVar

import numpy as np

from rookery.engines.embedders import chunks
from rookery.engines.embedders.addresses import Remote
from rookery.engines.embedders.questions import Questions
from rookery.engines.embedders.wire import Patience, Refused, Rows, Wire
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import Passage, Vector

T = TypeVar("T")

CHUNK, OVERLAP = 256, 40
"""
About how many tokens of content are in a chunk, and how many of them are the last chunk's too. Every model that is served today reads
512 or more, what a chunk is about is told better by less of it (see `model.CHUNK`), and each request costs.
"""
_CONTEXT_LIMIT = 300
"""Characters of a passage's context that go before each chunk."""

_BATCH_TEXTS = 64
_BATCH_CHARACTERS = 60_000
_PASSAGES_AT_ONCE = 4
_QUERIES_AT_ONCE = 16
"""Requests on their way: a service that is asked for more at a time answers all of them later."""

_FOR_PASSAGES = Patience(tries=5, within_s=120.0)
_FOR_QUERIES = Patience(tries=3, within_s=15.0)
_FOR_ONE_TEXT = Patience(tries=2, within_s=60.0)
_FOR_CHECKS = Patience(tries=1, within_s=5.0)

_SHORTEST_CUT = 64
"""Characters: a text as short as this is not refused for its length."""

_PROBE = "The heron stands still."
_FRESH_S = 30.0
"""So long after an answer the service is taken to be well without being asked."""

_CLOSED = "it is closed"


class RemoteEmbedder:
    """
    `memory.ports.Embedder` by a service.

    Questions do not wait behind passages: each have requests of their own. A text that the service refuses is told from a service
    that is down by asking it for another one; a passage that is refused for its length is cut once more.
    """

    def __init__(self, remote: Remote, *, verify_ssl: bool = True) -> None:
        """Do nothing yet."""
        self.model = remote.model
        self.dimension = remote.width
        self._remote = remote
        self._wire = Wire(remote, verify_ssl=verify_ssl)
        self._questions = Questions(self._ask)
        self._for_passages = asyncio.Semaphore(_PASSAGES_AT_ONCE)
        self._for_queries = asyncio.Semaphore(_QUERIES_AT_ONCE)
        self._answered_at_s = float("-inf")
        self._is_closed = False

    @property
    def is_starting(self) -> bool:
        """Never: a service is asked, not loaded."""
        return False

    async def check(self) -> None:
        """See `Engine`."""
        try:
            await self._probe()
        except _WrongWidth as wrong:
            raise WrongSettings(f"ROOKERY_EMBEDDER: {wrong.says}") from wrong

    async def warm(self) -> None:
        """Ask the service for a vector, unless it has just given one; raises `EngineUnavailable`."""
        if time.monotonic() - self._answered_at_s > _FRESH_S:
            try:
                await self._probe()
            except _WrongWidth as wrong:
                raise EngineUnavailable("embedder", wrong.says) from wrong

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a question; of one that is too long for the model its beginning counts."""
        return await self._questions.answer(text)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return for each passage the vectors of its chunks, in order."""
        texts = [(index, text) for index, passage in enumerate(passages) for text in self._chunks(passage)]
        batches = _batches([text for _, text in texts])
        found = await _all([self._batch([text for _, text in texts[first:last]]) for first, last in batches])
        results: list[list[Vector]] = [[] for _ in passages]
        for (index, _), vectors in zip(texts, (vectors for batch in found for vectors in batch), strict=True):
            results[index] += vectors
        return [tuple(result) for result in results]

    async def close(self) -> None:
        """See `Engine`."""
        self._is_closed = True
        self._questions.forget()
        await self._wire.aclose()

    def _chunks(self, passage: Passage) -> list[str]:
        offsets = chunks.guessed(passage.content)
        if not offsets:
            return [self._passage(passage.context, passage.content)]
        ranges = chunks.cut(offsets, size=CHUNK, overlap=OVERLAP)
        return [self._passage(passage.context, passage.content[offsets[first][0] : offsets[last - 1][1]]) for first, last in ranges]

    def _passage(self, context: str, content: str) -> str:
        said = f"{context[:_CONTEXT_LIMIT]}\n{content}" if context else content
        return self._remote.passage_prefix + said

    async def _ask(self, question: str) -> Vector:
        async with self._for_queries:
            while True:
                text = self._remote.query_prefix + question
                try:
                    (vector,) = await self._vectors([text], _FOR_QUERIES)
                except Refused as refused:
                    await self._must_be_well(refused)
                    if len(question) <= _SHORTEST_CUT:
                        raise NotEmbeddable from refused
                    question = question[: len(question) // 2]
                else:
                    return vector

    async def _batch(self, texts: Sequence[str]) -> list[list[Vector]]:
        """Return for each text its vectors: one, unless it had to be cut."""
        async with self._for_passages:
            try:
                return [[vector] for vector in await self._vectors(texts, _FOR_PASSAGES)]
            except Refused as refused:
                await self._must_be_well(refused)
                return await self._apart(texts)

    async def _apart(self, texts: Sequence[str]) -> list[list[Vector]]:
        """Return the same of a batch that was refused, by its halves; one text alone is cut into two, if it may be too long."""
        if len(texts) > 1:
            half = len(texts) // 2
            return [*await self._either(texts[:half]), *await self._either(texts[half:])]
        (text,) = texts
        if len(text) <= _SHORTEST_CUT:
            raise NotEmbeddable
        half = len(text) // 2
        return [[vector for part in (text[:half], text[half:]) for vectors in await self._either([part]) for vector in vectors]]

    async def _either(self, texts: Sequence[str]) -> list[list[Vector]]:
        try:
            return [[vector] for vector in await self._vectors(texts, _FOR_ONE_TEXT)]
        except Refused:
            return await self._apart(texts)

    async def _must_be_well(self, refused: Refused) -> None:
        """Do nothing if the service embeds what nobody could refuse: then it is the texts that it refused."""
        try:
            await self._probe()
        except Refused:
            raise EngineUnavailable("embedder", str(refused)) from refused
        except _WrongWidth as wrong:
            raise EngineUnavailable("embedder", wrong.says) from wrong

    async def _probe(self) -> None:
        try:
            self._unit(await self._rows([_PROBE], _FOR_CHECKS))
        except Refused as refused:
            raise EngineUnavailable("embedder", str(refused)) from refused

    async def _vectors(self, texts: Sequence[str], patience: Patience) -> list[Vector]:
        try:
            rows = await self._rows([text if text.strip() else "." for text in texts], patience)
        except _WrongWidth as wrong:
            raise EngineUnavailable("embedder", wrong.says) from wrong
        return self._unit(rows)

    async def _rows(self, texts: Sequence[str], patience: Patience) -> Rows:
        if self._is_closed:
            raise EngineUnavailable("embedder", _CLOSED)
        rows = await self._wire.rows(texts, patience)
        given, asked = rows.shape[1], self._remote.dimensions
        if given > self.dimension:
            advice = f"set ROOKERY_VECTOR_DIMENSION={given}" if asked is None else f"its model cannot be asked for dimensions={asked}"
            raise _WrongWidth(f"its vectors have {given} dimensions, more than the {self.dimension} that are stored: {advice}")
        if asked is not None and given != asked:
            raise _WrongWidth(f"its vectors have {given} dimensions, and dimensions={asked} was asked for: its model cannot do that")
        return rows

    def _unit(self, rows: Rows) -> list[Vector]:
        vectors = _unit(rows, width=self.dimension)
        self._answered_at_s = time.monotonic()
        return vectors


class _WrongWidth(Exception):
    """The service works, and its vectors do not fit."""

    def __init__(self, says: str) -> None:
        super().__init__(says)
        self.says = says


def _unit(rows: Rows, *, width: int) -> list[Vector]:
    """Return *rows* with the length 1, filled up with zeros: cosines stay as they are (D-54)."""
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise Refused("it answers with what is no vector")
    filled = np.zeros((len(rows), width), dtype="<f4")
    filled[:, : rows.shape[1]] = wide / lengths
    return [row.tobytes() for row in filled]


def _batches(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return the ranges of *texts* that go together in a request."""
    ranges: list[tuple[int, int]] = []
    first = characters = 0
    for index, text in enumerate(texts):
        if index > first and (index - first >= _BATCH_TEXTS or characters + len(text) > _BATCH_CHARACTERS):
            ranges.append((first, index))
            first, characters = index, 0
        characters += len(text)
    return [*ranges, (first, len(texts))] if texts else []


async def _all(works: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Await all at once; if one fails, the others are stopped."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
