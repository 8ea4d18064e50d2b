"""Indexing of memories: embed, write the vector index and the full-text index, mark the record as indexed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import TypeVar

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.engine_breakers import EngineBreaker, EngineWrites
from rookery.kernel.errors import OUTAGES, EngineReadOnly, RookeryError, StorageFull
from rookery.kernel.jobs import JobQueue
from rookery.kernel.tracing import start_span
from rookery.memory.concurrency import Batcher, ForegroundBackoff
from rookery.memory.embedding_migration import EmbeddingMigration
from rookery.memory.models import EmbeddedDocument, IndexDocument, Memory, Passage, read_fields
from rookery.memory.passages import embed_memories
from rookery.memory.ports import Embedder, IndexName, TextIndex, VectorIndex
from rookery.memory.store import indexing as store

EMBED_JOB = "EmbedMemory"
DELETE_JOB = "DeleteFromIndex"
"""The kinds of jobs."""

EMBED_IMPORTED_JOB = "EmbedMoved"
"""Like EmbedMemory, for imported memories. It runs after what agents store, and is not part of their backlog."""

WORDS_JOB = "IndexWords"
"""The words of memories whose vectors were written while the full-text index accepted no writes."""

FORCE_FIELD = "again"
"""A flag in the payload of EmbedMemory: index the memory even if its content did not change, because its confidence did."""

_MAX_CONTEXT_TAGS = 12
"""Maximum tags that are embedded with each chunk. A long list of tags describes a text poorly."""

_DOCUMENT_FIELDS = tuple(column.name for column in fields(IndexDocument) if column.name != "memory_id")

T = TypeVar("T")

_MAX_PASSES = 8
"""Maximum passes over memories that change while they are indexed. Later changes are indexed by their own jobs."""

_MAX_PENDING_OFFERS = 256
"""Maximum concurrent writes to the full-text index while storing. Beyond this the index lags, and the jobs do the work."""

_CLEANUP_RETRY_DELAYS_S = (0.5, 1.0, 2.0, 5.0, 10.0, *(30.0,) * 120)
"""Delays after which the removal of words is tried again while the record store or the full-text index is down: for an hour."""

_MAX_CLEANUP_WAIT_S = 1.0
"""Maximum wait of a response for the full-text index."""

_NO_WORKSPACE, _NO_MEMORY = 0, "00000000-0000-7000-8000-000000000000"
"""The ids that `check_writes` deletes. No workspace and no memory has them."""

_NOT_EMBEDDABLE = "the embedder returns no vector for this text"

_log = structlog.stdlib.get_logger("rookery.memory")


class Indexer:
    """
    The writer of the derived indexes. All operations are idempotent.

    Args:
        early_writes: The circuit breaker of writes to the full-text index beside a request that stores.
        writes: Records which index refuses writes.
    """

    def __init__(
        self,
        *,
        db: Database,
        embedder: Embedder,
        vectors: VectorIndex,
        texts: TextIndex,
        clock: Clock,
        migration: EmbeddingMigration,
        early_writes: EngineBreaker,
        writes: EngineWrites,
        jobs: JobQueue,
    ) -> None:
        self._db = db
        self._embedder = embedder
        self._vectors = vectors
        self._texts = texts
        self._clock = clock
        self._migration = migration
        self._early_writes = early_writes
        self._writes = writes
        self._jobs = jobs
        self._backoff = ForegroundBackoff()
        self._batcher = Batcher[IndexDocument, bool](self._offer_batch)
        self._pending_offers = set[asyncio.Task[bool]]()
        self._cleanup_tasks = set[asyncio.Task[None]]()

    @property
    def model(self) -> str:
        """The embedder's model. Memories indexed with another model are stale."""
        return self._embedder.model

    async def wait_for_idle(self) -> None:
        """Wait until no memory is being stored, for a bounded time. Indexing runs in the idle moments."""
        await self._backoff.wait_for_idle()

    async def check_writes(self, engine: IndexName) -> None:
        """
        Delete an unknown memory from the index *engine*, to learn whether it accepts writes. An index in this process is not checked.

        Raises:
            EngineUnavailable: It is down or accepts only reads.
            StorageFull: Its disk is full.
        """
        index = self._vectors if engine == "vectors" else self._texts
        if self._writes.is_watched(engine):
            await self._writes.call(engine, lambda: index.drop(_NO_WORKSPACE, [_NO_MEMORY]))

    async def recheck_writes(self, engine: IndexName) -> None:
        """Try a write again if the index *engine* refused the last one, so that its state is current."""
        if self._writes.describe(engine) is not None:
            with suppress(EngineReadOnly, StorageFull):
                await self.check_writes(engine)

    async def index(self, memories: Sequence[Memory], *, words_only: bool = False, defers_words: bool = False) -> Mapping[str, str]:
        """
        Index *memories*, of any workspaces, as given. Return the reasons of failures by memory id.

        Memories that were deleted or archived or that expired meanwhile are removed from the indexes again. A memory that cannot be
        embedded does not affect the others.

        Args:
            words_only: Write only the full-text index; the records are not marked as indexed.
            defers_words: If the full-text index accepts no writes, leave the words to jobs.

        Raises:
            EngineUnavailable: An engine is down; some of *memories* may be indexed.
        """
        if not memories:
            return {}
        try:
            return await self._index_until_current(memories, words_only=words_only, defers_words=defers_words)
        except OUTAGES:
            raise
        except Exception as error:  # noqa: BLE001 - the batch is halved until the memory that fails is alone; then it is logged
            if len(memories) > 1:
                half = len(memories) // 2
                return {
                    **await self.index(memories[:half], words_only=words_only, defers_words=defers_words),
                    **await self.index(memories[half:], words_only=words_only, defers_words=defers_words),
                }
            _log.exception("memory.not_indexed", memory_id=memories[0].id)
            return {memories[0].id: f"{type(error).__name__}: {error}"}

    async def index_words_during(
        self, memories: Sequence[Memory], storing: Awaitable[T], *, stored_ids: Callable[[T], Collection[str]]
    ) -> T:
        """
        Write new *memories* to the full-text index while *storing* runs, and return its result.

        Keyword search finds the memories as soon as they are stored; semantic recall finds them when their jobs are done. If the
        full-text index fails here, the jobs write to it too.

        Args:
            stored_ids: Returns the ids of *memories* that were stored; the others are removed from the index again.
        """
        offer = self._start_offer(memories)
        self._backoff.begin_request()
        try:
            outcome = await storing
        except asyncio.CancelledError:
            self._start_cleanup(offer, memories)  # it is unknown whether the memories were stored
            raise
        except BaseException:
            await self._clean_up_soon(offer, memories)
            raise
        finally:
            self._backoff.end_request()
        written_ids = stored_ids(outcome)
        # If the write was late, another process may have deleted the memories before their words were in the index.
        if not offer.done() or any(memory.id not in written_ids for memory in memories):
            await self._clean_up_soon(offer, memories)
        return outcome

    async def update_words(self, memory: Memory) -> None:
        """Write a changed or restored memory to the full-text index now. Failures are left to its job."""
        await self._clean_up_soon(self._start_offer([memory]), [memory])

    def _start_offer(self, memories: Sequence[Memory]) -> asyncio.Future[bool]:
        if len(memories) == 1 and self._batcher.pending_count < _MAX_PENDING_OFFERS:
            return self._batcher.submit(build_document(memories[0]))
        task = asyncio.ensure_future(
            self._try_offer([build_document(memory) for memory in memories] if len(self._pending_offers) < _MAX_PENDING_OFFERS else [])
        )
        self._pending_offers.add(task)
        task.add_done_callback(self._pending_offers.discard)
        return task

    async def _offer_batch(self, documents: Sequence[IndexDocument]) -> list[bool]:
        return [await self._try_offer(documents)] * len(documents)

    async def _try_offer(self, documents: Sequence[IndexDocument]) -> bool:
        """
        Return whether *documents* may be in the full-text index, also if the answer of its server was lost.

        Failures do not fail the request that stores the memories.
        """
        is_sent = False

        async def put() -> None:
            nonlocal is_sent
            is_sent = True
            await self._writes.call("texts", lambda: self._texts.put(documents, is_early=True))

        if documents:
            try:
                await self._early_writes.call(put)
            except OUTAGES:
                pass
            except Exception:  # noqa: BLE001 - logged; the job of each memory retries and reports it
                _log.exception("memory.full_text_failed", memories=len(documents))
        return is_sent

    async def _clean_up_soon(self, offer: asyncio.Future[bool], memories: Sequence[Memory]) -> None:
        """Wait for *offer* and its clean-up for a bounded time. A late clean-up continues in the background."""
        await asyncio.wait([self._start_cleanup(offer, memories)], timeout=_MAX_CLEANUP_WAIT_S)

    def _start_cleanup(self, offer: asyncio.Future[bool], memories: Sequence[Memory]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._clean_up_after(offer, memories))
        self._cleanup_tasks.add(task)
        task.add_done_callback(self._cleanup_tasks.discard)
        return task

    async def _clean_up_after(self, offer: asyncio.Future[bool], memories: Sequence[Memory]) -> None:
        try:
            if await offer:
                await self._retry_delete_dead_words(memories)
        except Exception:  # noqa: BLE001 - logged; recall reads the records, so words without a record have no effect
            _log.exception("memory.full_text_cleanup_failed", memories=len(memories))

    async def _retry_delete_dead_words(self, memories: Sequence[Memory]) -> None:
        """Remove dead words as soon as the stores are available. Memories that were not stored have no job that would do it."""
        for delay_s in _CLEANUP_RETRY_DELAYS_S:
            try:
                return await self._delete_dead_words(memories)
            except OUTAGES:
                await asyncio.sleep(delay_s)
        return _log.warning("memory.full_text_not_cleaned", memories=len(memories))

    async def _delete_dead_words(self, memories: Sequence[Memory]) -> None:
        """Remove those of *memories* from the full-text index that were never stored, or were deleted or archived meanwhile."""
        workspace_id, at = memories[0].workspace_id, self._clock()
        ids = [memory.id for memory in memories]
        live_ids = await self._db.lookup(lambda tx: store.filter_live(tx, workspace_id, ids, at=at))
        dead_memories = [memory for memory in memories if memory.id not in live_ids]
        if dead_memories:
            await self._writes.call("texts", lambda: self._texts.drop(workspace_id, [memory.id for memory in dead_memories]))

    async def delete(self, workspace_id: int, ids: Sequence[str]) -> None:
        """
        Remove *ids* from both indexes, except memories restored meanwhile. Unknown ids are ignored.

        Raises:
            EngineUnavailable: An engine is down. The memories are removed from the other index.
        """
        if not ids:
            return
        try:
            await self._writes.call("vectors", lambda: self._vectors.drop(workspace_id, ids))
        finally:
            await self._writes.call("texts", lambda: self._texts.drop(workspace_id, ids))
        # A memory restored before this deletion may have been indexed by its own job already.
        at = self._clock()
        live_memories = await self._db.lookup(lambda tx: store.get_live(tx, workspace_id, ids, at=at))
        if live_memories:
            await self.index(live_memories)

    async def delete_or_defer(self, workspace_id: int, ids: Sequence[str]) -> None:
        """Remove *ids* from both indexes as `delete` does. If an engine is down, leave that to jobs."""
        try:
            await self.delete(workspace_id, ids)
        except OUTAGES:
            new_jobs = [(workspace_id, {"memory_id": memory_id}) for memory_id in ids]
            await self._db.write(lambda tx: self._jobs.enqueue_many(tx, DELETE_JOB, new_jobs))

    async def _index_until_current(self, memories: Sequence[Memory], *, words_only: bool, defers_words: bool) -> Mapping[str, str]:
        """
        Index *memories*, then those that changed meanwhile. Otherwise an old version could overwrite a newer one.

        Return the reasons of those that cannot be embedded.
        """
        reasons = dict[str, str]()
        for _ in range(_MAX_PASSES):
            if not memories:
                break
            memories, rejected = await self._put(memories, words_only=words_only, defers_words=defers_words)
            reasons = {**reasons, **dict.fromkeys(rejected, _NOT_EMBEDDABLE)}
        return reasons

    async def _put(self, memories: Sequence[Memory], *, words_only: bool, defers_words: bool) -> tuple[Sequence[Memory], Collection[str]]:
        """
        Write *memories* to the indexes.

        Return those that changed since they were read, in their current state, and the ids of those that cannot be embedded.
        """
        documents = [build_document(memory) for memory in memories]
        # The full-text index comes first: it works also while the embedder is down.
        words_error = await self._put_words(documents)
        if words_error is not None and not defers_words:
            raise words_error
        embedded_memories = memories
        if not words_only:
            embedded_memories = await self._put_vectors(memories, documents)
        at, model = self._clock(), self._embedder.model
        spaces: dict[int, list[str]] = {}
        for memory in memories:
            spaces.setdefault(memory.workspace_id, []).append(memory.id)

        def mark_indexed(tx: Tx) -> tuple[dict[int, list[str]], list[Memory]]:
            if not words_only:
                store.mark_indexed(tx, embedded_memories, model=model, at=at)
            if words_error is not None:
                new_jobs = [(memory.workspace_id, {"memory_id": memory.id}) for memory in memories]
                self._jobs.enqueue_many(tx, WORDS_JOB, new_jobs)
            dead_ids: dict[int, list[str]] = {}
            for workspace_id, ids in spaces.items():
                live_ids = store.filter_live(tx, workspace_id, ids, at=at)
                if len(live_ids) < len(ids):
                    dead_ids[workspace_id] = [memory_id for memory_id in ids if memory_id not in live_ids]
            return dead_ids, store.get_changed(tx, memories, at=at)

        dead_ids, changed_memories = await self._db.write(mark_indexed)
        # Deleted while it was embedded: its DeleteFromIndex job may have run before the write above, so it is deleted again.
        for workspace_id, ids in dead_ids.items():
            await self.delete_or_defer(workspace_id, ids)
        embedded_ids = {memory.id for memory in embedded_memories}
        return changed_memories, [memory.id for memory in memories if memory.id not in embedded_ids]

    async def _put_words(self, documents: Sequence[IndexDocument]) -> RookeryError | None:
        """Write *documents* to the full-text index. Return the error of an index that is down or accepts no writes."""
        try:
            await self._writes.call("texts", lambda: self._texts.put(documents))
        except OUTAGES as error:
            return error
        return None

    async def _put_vectors(self, memories: Sequence[Memory], documents: Sequence[IndexDocument]) -> Sequence[Memory]:
        """Write the vectors of *memories*. Return those that could be embedded."""
        passages = [build_passage(memory) for memory in memories]
        with start_span("embedding"):
            vectors = await embed_memories(self._embedder, memories, passages)
        embedded = [
            (memory, EmbeddedDocument(document=document, vectors=chunks))
            for memory, document, chunks in zip(memories, documents, vectors, strict=True)
            if chunks is not None
        ]
        if embedded:
            await self._migration.prepare_writes({memory.workspace_id for memory, _ in embedded})
            await self._writes.call("vectors", lambda: self._vectors.put([item for _, item in embedded]))
        await self._migration.update_previous_index(list(zip(memories, documents, passages, strict=True)))
        return [memory for memory, _ in embedded]


def build_document(memory: Memory) -> IndexDocument:
    """Return the document that the derived indexes store for *memory*."""
    return IndexDocument(memory_id=memory.id, **read_fields(memory, _DOCUMENT_FIELDS))


def build_passage(memory: Memory) -> Passage:
    """
    Return the text of *memory* to embed: its content, with a line of its tags before each chunk.

    Type and day are left out: they made short texts too similar, and recall of single turns lost a point.
    """
    return Passage(context=", ".join(memory.tags[:_MAX_CONTEXT_TAGS]), content=memory.content)
