"""The built-in embedder: all-MiniLM-L6-v2 on the CPU, in this process, in threads of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from rookery.engines.embedders.chunks import batches
from rookery.engines.embedders.questions import CACHED_QUERIES, Questions
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import Passage, Vector

if TYPE_CHECKING:
    # For its types alone: it brings numpy, onnxruntime and tokenizers, a third of a second that starting need not wait for.
    from rookery.engines.embedders.model import Chunk, Model

T = TypeVar("T")
P = ParamSpec("P")

_RETRY_LOADING_AFTER_S = 5.0
_CLOSED = "it is closed"


class EmbeddedEmbedder:
    """
    `memory.ports.Embedder` without a server.

    Questions and passages have threads of their own, so that a question does not wait behind an import of thousands of
    memories; passages go sub-batch by sub-batch, so that writers take turns. Each thread computes on one core:
    onnxruntime and tokenizers let go of the interpreter meanwhile.
    """

    dimension = 384

    def __init__(self, *, model: str, load: Callable[[], Model], cached_queries: int = CACHED_QUERIES) -> None:
        """
        Do nothing yet; *load* is called in a thread, again after it raised `EngineUnavailable`.

        Args:
            model: Name and version of what *load* returns, to be stored beside each vector (D-54).
        """
        self.model = model
        self._load = load
        threads = max(1, (os.cpu_count() or 1) // 2)
        self._for_queries = ThreadPoolExecutor(max_workers=min(4, threads), thread_name_prefix="embed-query")
        self._for_passages = ThreadPoolExecutor(max_workers=min(4, threads), thread_name_prefix="embed-passage")
        self._loading: Future[Model] | None = None
        self._loading_since = 0.0
        self._lock = Lock()
        self._is_closed = False
        self._questions = Questions(self._answer, kept=cached_queries)

    @property
    def is_starting(self) -> bool:
        """Whether the model is being loaded."""
        loading = self._loading
        return loading is not None and not loading.done()

    async def check(self) -> None:
        """Do nothing: its width is known."""

    async def warm(self) -> None:
        """Load the model, or wait for it; raises `EngineUnavailable`."""
        await self._model()

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a question; the same question asked again, or by many at once, is computed once."""
        return await self._questions.answer(text)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return for each passage the vectors of its chunks, in order."""
        if not passages:
            return []
        model = await self._model()
        chunks = [await self._run(self._for_passages, model.chunks, passage) for passage in passages]
        rows = [(index, chunk) for index, of_passage in enumerate(chunks) for chunk in of_passage]
        vectors = await self._vectors(model, [chunk for _, chunk in rows])
        results: list[list[Vector]] = [[] for _ in passages]
        for (index, _), vector in zip(rows, vectors, strict=True):
            results[index].append(vector)
        return [tuple(result) for result in results]

    async def close(self) -> None:
        """Stop the threads, after what they are computing now; done twice it changes nothing."""
        self._is_closed = True
        await asyncio.to_thread(self._stop)
        self._loading = None
        self._questions.forget()

    def _stop(self) -> None:
        self._for_queries.shutdown(wait=True, cancel_futures=True)
        self._for_passages.shutdown(wait=True, cancel_futures=True)

    async def _answer(self, question: str) -> Vector:
        model = await self._model()
        return await self._run(self._for_queries, model.query, question)

    async def _vectors(self, model: Model, chunks: Sequence[Chunk]) -> list[Vector]:
        vectors = [b""] * len(chunks)
        for batch in batches([len(chunk.ids) for chunk in chunks]):
            computed = await self._run(self._for_passages, model.vectors, [chunks[index].ids for index in batch])
            for index, vector in zip(batch, computed, strict=True):
                vectors[index] = vector
        return vectors

    async def _model(self) -> Model:
        """Return the model, loaded once; after a failure it is tried again, but not at every call."""
        with self._lock:
            if self._is_closed:
                raise EngineUnavailable("embedder", _CLOSED)
            failed = self._loading is not None and self._loading.done() and self._loading.exception() is not None
            if self._loading is None or (failed and time.monotonic() - self._loading_since > _RETRY_LOADING_AFTER_S):
                self._loading_since = time.monotonic()
                self._loading = self._for_queries.submit(self._load)
            loading = self._loading
        if loading.done() and loading.exception() is None:
            return loading.result()
        return await self._waited(asyncio.shield(asyncio.wrap_future(loading)))

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            future = threads.submit(work, *args, **kwargs)
        except RuntimeError as error:
            raise EngineUnavailable("embedder", _CLOSED) from error
        return await self._waited(asyncio.wrap_future(future))

    async def _waited(self, future: asyncio.Future[T]) -> T:
        """Wait for *future*; its errors in our words."""
        try:
            return await future
        except asyncio.CancelledError:
            if self._is_closed and future.cancelled():
                raise EngineUnavailable("embedder", _CLOSED) from None
            raise
        except EngineUnavailable:
            raise
        except Exception as error:
            raise EngineUnavailable("embedder", f"it failed: {error}") from error
