"""The embedder of models that run on the CPU, in threads of this process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import structlog

from rookery.engines.embedders.inputs import MAX_CACHED_QUERIES, QueryCache, group_by_length
from rookery.engines.embedders.model_files import InvalidModelError
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.models import Passage, Vector
from rookery.memory.ports import EmbedderFeature

if TYPE_CHECKING:
    # Types only: the module imports numpy, onnxruntime and tokenizers, which take a third of a second at start.
    from rookery.engines.embedders.model import Chunk, EmbeddingModel

T = TypeVar("T")
P = ParamSpec("P")

_LOAD_RETRY_INTERVAL_S = 5.0
_CLOSED_REASON = "the embedder is closed"

_log = structlog.stdlib.get_logger("rookery.embedder")


class EmbeddedEmbedder:
    """
    An implementation of `memory.ports.Embedder` without a server.

    Queries and passages have separate threads, so a query does not wait behind an import of thousands of memories. Passages are computed in
    small batches, so writers take turns. Each thread uses one core: onnxruntime and tokenizers release the GIL while they compute.
    """

    lacks = frozenset[EmbedderFeature]()

    def __init__(
        self,
        *,
        model: str,
        dimension: int,
        load: Callable[[], EmbeddingModel],
        description: str = "",
        full_similarity: float | None = None,
        check_prefix: str | None = None,
        max_cached_queries: int = MAX_CACHED_QUERIES,
    ) -> None:
        """
        Store the arguments. *load* runs later in a thread, and again after it raised `EngineUnavailable`.

        Args:
            model: Name and version of the model that *load* returns; stored with each vector.
            description: See `EmbedderEngine`.
            full_similarity: See `memory.ports.Embedder`.
            check_prefix: `check` loads the model, and raises `WrongSettings` with this text before the reason if its files are not usable.
                None: `check` does nothing.
        """
        self.model = model
        self.dimension = dimension
        self.description = description or model
        self.full_similarity = full_similarity
        self._check_prefix = check_prefix
        self._load = load
        threads = max(1, (os.cpu_count() or 1) // 2)
        self._query_threads = ThreadPoolExecutor(max_workers=min(4, threads), thread_name_prefix="embed-query")
        self._passage_threads = ThreadPoolExecutor(max_workers=min(4, threads), thread_name_prefix="embed-passage")
        self._loading: Future[EmbeddingModel] | None = None
        self._loading_started_s = 0.0
        self._lock = Lock()
        self._is_closed = False
        self._query_cache = QueryCache(self._embed_query, max_entries=max_cached_queries)

    @property
    def is_starting(self) -> bool:
        """True while the model is being loaded."""
        loading = self._loading
        return loading is not None and not loading.done()

    @property
    def is_loaded(self) -> bool:
        """True if the model is in memory."""
        loading = self._loading
        return loading is not None and loading.done() and loading.exception() is None

    async def check(self) -> None:
        """
        Load a model of the user, whose files can be wrong; do nothing for other models.

        Raises:
            WrongSettings: The files are not those of a usable model.
            EngineUnavailable: The model cannot be loaded now.
        """
        if self._check_prefix is None:
            return
        try:
            await asyncio.shield(asyncio.wrap_future(self._start_loading()))
        except InvalidModelError as error:
            raise WrongSettings(f"{self._check_prefix}: {error}") from error
        except EngineUnavailable:
            raise
        except Exception as error:
            raise EngineUnavailable("embedder", f"the model could not be loaded: {error}") from error

    async def warm(self) -> None:
        """Load the model and wait for it; raises `EngineUnavailable`."""
        await self._load_model()

    async def probe(self) -> None:
        """Raise `EngineUnavailable` if the last attempt to load the model failed, after another attempt."""
        if self._loading is not None:
            await self._load_model()

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of a query. Repeated and concurrent equal queries are computed once."""
        try:
            return await self._query_cache.get(text)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and (task is None or not task.cancelling()):
                raise EngineUnavailable("embedder", _CLOSED_REASON) from None
            raise

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return the vectors of each passage's chunks, in order."""
        if not passages:
            return []
        model = await self._load_model()
        chunks = [await self._run(self._passage_threads, model.split_passage, passage) for passage in passages]
        rows = [(index, chunk) for index, of_passage in enumerate(chunks) for chunk in of_passage]
        vectors = await self._embed_chunks(model, [chunk for _, chunk in rows])
        results: list[list[Vector]] = [[] for _ in passages]
        for (index, _), vector in zip(rows, vectors, strict=True):
            results[index].append(vector)
        return [tuple(result) for result in results]

    async def close(self) -> None:
        """Stop the threads after their current work. A second call has no effect."""
        self._is_closed = True
        await asyncio.to_thread(self._stop)
        self._loading = None
        self._query_cache.clear()

    def _stop(self) -> None:
        self._query_threads.shutdown(wait=True, cancel_futures=True)
        self._passage_threads.shutdown(wait=True, cancel_futures=True)

    def _embed_query(self, question: str) -> Awaitable[Vector]:
        """Start to compute a vector. If the model is loaded, its thread has the work when this returns."""
        loading = self._start_loading()
        if not (loading.done() and loading.exception() is None):
            return self._load_and_embed_query(question)
        return asyncio.wrap_future(self._submit(self._query_threads, _embed_query, loading.result(), question))

    async def _load_and_embed_query(self, question: str) -> Vector:
        model = await self._load_model()
        return await self._run(self._query_threads, model.embed_query, question)

    async def _embed_chunks(self, model: EmbeddingModel, chunks: Sequence[Chunk]) -> list[Vector]:
        vectors = [b""] * len(chunks)
        for batch in group_by_length([len(chunk.ids) for chunk in chunks]):
            computed = await self._run(self._passage_threads, model.embed_tokens, [chunks[index].ids for index in batch])
            for index, vector in zip(batch, computed, strict=True):
                vectors[index] = vector
        return vectors

    async def _load_model(self) -> EmbeddingModel:
        """Return the model. It is loaded once; after a failure it is loaded again, at most every `_LOAD_RETRY_INTERVAL_S`."""
        loading = self._start_loading()
        if loading.done() and loading.exception() is None:
            return loading.result()
        return await self._await_future(asyncio.shield(asyncio.wrap_future(loading)))

    def _start_loading(self) -> Future[EmbeddingModel]:
        with self._lock:
            if self._is_closed:
                raise EngineUnavailable("embedder", _CLOSED_REASON)
            has_failed = self._loading is not None and self._loading.done() and self._loading.exception() is not None
            if self._loading is None or (has_failed and time.monotonic() - self._loading_started_s > _LOAD_RETRY_INTERVAL_S):
                self._loading_started_s = time.monotonic()
                self._loading = self._query_threads.submit(self._load_and_log)
            return self._loading

    def _load_and_log(self) -> EmbeddingModel:
        started = time.monotonic()
        model = self._load()
        _log.debug("embedder.model_loaded", model=self.description, seconds=round(time.monotonic() - started, 2))
        return model

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._await_future(asyncio.wrap_future(self._submit(threads, work, *args, **kwargs)))

    def _submit(self, threads: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return threads.submit(work, *args, **kwargs)
        except RuntimeError as error:
            raise EngineUnavailable("embedder", _CLOSED_REASON) from error

    async def _await_future(self, future: asyncio.Future[T]) -> T:
        """Await *future* and convert its errors to `EngineUnavailable`."""
        try:
            return await future
        except asyncio.CancelledError:
            if self._is_closed and future.cancelled():
                raise EngineUnavailable("embedder", _CLOSED_REASON) from None
            raise
        except EngineUnavailable:
            raise
        except Exception as error:
            raise _map_error(error) from error


def _embed_query(model: EmbeddingModel, question: str) -> Vector:
    """Return the vector of *question*; its errors are those of the port."""
    try:
        return model.embed_query(question)
    except EngineUnavailable:
        raise
    except Exception as error:
        raise _map_error(error) from error


def _map_error(error: Exception) -> EngineUnavailable:
    return EngineUnavailable("embedder", f"the embedder failed: {error}")
