"""From pending to indexed: embed, upsert to the vector index, index the words, say so in the record (spec 3.4, D-51)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.tracing import start_span
from rookery.memory.backoff import ForegroundBackoff
from rookery.memory.batcher import Batcher
from rookery.memory.embedding_migration import EmbeddingMigration
from rookery.memory.metadata import build_labels
from rookery.memory.models import EmbeddedDocument, IndexDocument, Memory, Passage
from rookery.memory.ports import Embedder, TextIndex, VectorIndex
from rookery.memory.store import indexing as store

EMBED_JOB = "EmbedMemory"
DELETE_JOB = "DeleteFromIndex"
"""The kinds of job, by the spec's names (6.1)."""

EMBED_IMPORTED_JOB = "EmbedMoved"
"""As EmbedMemory, of what was imported: by the hundred thousand, so behind what agents store, and no backlog of theirs (D-17)."""

FORCE_FIELD = "again"
"""In an EmbedMemory job's payload: index it also if nothing that is said of it changed; its confidence did."""

_MAX_CONTEXT_TAGS = 12
"""More tags than this say little about a text, and every chunk carries them."""

T = TypeVar("T")

_MAX_PASSES = 8
"""Who changes a memory more often than this while it is indexed will hear of the last change by that one's own job."""

_MAX_PENDING_OFFERS = 256
"""So many may be on their way to the full-text index at once; more mean that it does not keep up, and are left to their jobs."""

_MAX_CLEANUP_WAIT_S = 1.0
"""Longer than this no answer waits for the full-text index."""

_log = structlog.stdlib.get_logger("rookery.memory")


class Indexer:
    """Brings the derived indexes to what the records say; whatever is done twice does no harm."""

    def __init__(
        self, *, db: Database, embedder: Embedder, vectors: VectorIndex, texts: TextIndex, clock: Clock, migration: EmbeddingMigration
    ) -> None:
        self._db = db
        self._embedder = embedder
        self._vectors = vectors
        self._texts = texts
        self._clock = clock
        self._migration = migration
        self._backoff = ForegroundBackoff()
        self._batcher = Batcher[IndexDocument, bool](self._offer_batch)
        self._pending_offers = set[asyncio.Task[bool]]()
        self._cleanup_tasks = set[asyncio.Task[None]]()

    @property
    def model(self) -> str:
        """The embedder's model: what was indexed with another one is stale (D-54)."""
        return self._embedder.model

    async def wait_for_idle(self) -> None:
        """Wait while memories are being stored one after the other, for a bounded while: what is stored is indexed in the lulls."""
        await self._backoff.wait_for_idle()

    async def index(self, memories: Sequence[Memory], *, words_only: bool = False) -> Mapping[str, str]:
        """
        Index *memories*, of any workspaces, as they are given, and return by id why some could not be.

        One that was deleted, archived or has expired meanwhile is taken out of the indexes again. One that cannot be
        embedded does not keep the others from it.

        Args:
            words_only: Only the full-text index; the records are not said to be indexed.

        Raises:
            EngineUnavailable: An engine is down; some of *memories* may be indexed.
        """
        if not memories:
            return {}
        try:
            await self._index_until_current(memories, words_only=words_only)
        except OUTAGES:
            raise
        except Exception as error:  # noqa: BLE001 - logged below, once it is alone; whatever it is, it concerns one memory
            if len(memories) > 1:
                half = len(memories) // 2
                return {
                    **await self.index(memories[:half], words_only=words_only),
                    **await self.index(memories[half:], words_only=words_only),
                }
            _log.exception("memory.not_indexed", memory_id=memories[0].id)
            return {memories[0].id: f"{type(error).__name__}: {error}"}
        return {}

    async def index_words_during(
        self, memories: Sequence[Memory], storing: Awaitable[T], *, stored_ids: Callable[[T], Collection[str]]
    ) -> T:
        """
        Put the words of new *memories* into the full-text index while *storing* stores them, and return what it returns.

        So they are found by their words as soon as they are answered for, by meaning once their jobs are done. Whatever keeps
        them out of the index is left to those jobs too (D-51).

        Args:
            stored_ids: Tells which of *memories* were stored, by id; the words of the others are taken out again.
        """
        offer = self._start_offer(memories)
        self._backoff.begin_request()
        try:
            outcome = await storing
        except asyncio.CancelledError:
            self._start_cleanup(offer, memories)  # whether it was stored nobody knows here
            raise
        except BaseException:
            await self._clean_up_soon(offer, memories)
            raise
        finally:
            self._backoff.end_request()
        kept = stored_ids(outcome)
        # Where ours came late, another process may have deleted them meanwhile, and taken out words that were not there yet.
        if not offer.done() or any(memory.id not in kept for memory in memories):
            await self._clean_up_soon(offer, memories)
        return outcome

    async def update_words(self, memory: Memory) -> None:
        """Put the words of *memory*, just changed or restored, into the full-text index at once, as far as that can be done (D-51)."""
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
        if await self._try_offer(documents):
            return [True] * len(documents)
        return [False] * len(documents)

    async def _try_offer(self, documents: Sequence[IndexDocument]) -> bool:
        """Return whether *documents* are in the index; no failure of it is one of who remembers."""
        if not documents:
            return False
        try:
            await self._texts.put_if_newer(documents)
        except OUTAGES:
            return False
        except Exception:  # noqa: BLE001 - logged; what it is their job will meet, and say of each memory alone
            _log.exception("memory.words_not_offered", memories=len(documents))
            return False
        return True

    async def _clean_up_soon(self, offer: asyncio.Future[bool], memories: Sequence[Memory]) -> None:
        """Wait until *put_if_newer* is in and tidied up after, not for long; one that is late is tidied up after by itself."""
        await asyncio.wait([self._start_cleanup(offer, memories)], timeout=_MAX_CLEANUP_WAIT_S)

    def _start_cleanup(self, offer: asyncio.Future[bool], memories: Sequence[Memory]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._clean_up_after(offer, memories))
        self._cleanup_tasks.add(task)
        task.add_done_callback(self._cleanup_tasks.discard)
        return task

    async def _clean_up_after(self, offer: asyncio.Future[bool], memories: Sequence[Memory]) -> None:
        try:
            if await offer:
                await self._delete_dead_words(memories)
        except Exception:  # noqa: BLE001 - logged; recall reads records, so that words without one lead nowhere (D-46)
            _log.exception("memory.words_not_tidied", memories=len(memories))

    async def _delete_dead_words(self, memories: Sequence[Memory]) -> None:
        """Take out the words of those of *memories* that were never stored, or were deleted or archived before they came in."""
        workspace_id, at = memories[0].workspace_id, self._clock()
        ids = [memory.id for memory in memories]
        alive = await self._db.lookup(lambda tx: store.filter_live(tx, workspace_id, ids, at=at))
        gone = [memory for memory in memories if memory.id not in alive]
        if gone:
            await self._delete_words(gone)

    async def _delete_words(self, memories: Sequence[Memory]) -> None:
        with contextlib.suppress(*OUTAGES):  # recall reads records, and finds none (D-46)
            await self._texts.delete(memories[0].workspace_id, [memory.id for memory in memories])

    async def delete(self, workspace_id: int, ids: Sequence[str]) -> None:
        """
        Take *ids* out of both indexes, but for what came back meanwhile; unknown ones do no harm.

        Raises:
            EngineUnavailable: An engine is down.
        """
        if not ids:
            return
        await self._vectors.delete(workspace_id, ids)
        await self._texts.delete(workspace_id, ids)
        # Restored before it was dropped, one may have been put by its own job already.
        at = self._clock()
        back = await self._db.lookup(lambda tx: store.get_live(tx, workspace_id, ids, at=at))
        if back:
            await self.index(back)

    async def _index_until_current(self, memories: Sequence[Memory], *, words_only: bool) -> None:
        """Put *memories*, and what they were changed into meanwhile: else what was read before could stay over what was put since."""
        for _ in range(_MAX_PASSES):
            if not memories:
                return
            memories = await self._put(memories, words_only=words_only)

    async def _put(self, memories: Sequence[Memory], *, words_only: bool) -> Sequence[Memory]:
        """Put *memories* into the indexes; return those that were changed since they were read, as they are now."""
        documents = [build_document(memory) for memory in memories]
        # Words first: they are found also while the embedder is down.
        await self._texts.put(documents)
        if not words_only:
            passages = [build_passage(memory) for memory in memories]
            with start_span("embedding"):
                vectors = await self._embedder.embed_passages(passages)
            pairs = zip(documents, vectors, strict=True)
            await self._vectors.put([EmbeddedDocument(document=each, vectors=chunks) for each, chunks in pairs])
            await self._migration.update_previous_index(list(zip(memories, documents, passages, strict=True)))
        at, model = self._clock(), self._embedder.model
        spaces: dict[int, list[str]] = {}
        for memory in memories:
            spaces.setdefault(memory.workspace_id, []).append(memory.id)

        def settle(tx: Tx) -> tuple[dict[int, list[str]], list[Memory]]:
            if not words_only:
                store.mark_indexed(tx, memories, model=model, at=at)
            gone: dict[int, list[str]] = {}
            for workspace_id, ids in spaces.items():
                alive = store.filter_live(tx, workspace_id, ids, at=at)
                if len(alive) < len(ids):
                    gone[workspace_id] = [each for each in ids if each not in alive]
            return gone, store.get_changed(tx, memories, at=at)

        gone, overtaken = await self._db.write(settle)
        # Deleted while it was embedded: its DeleteFromIndex may have run before our put, so what we put must go again.
        for workspace_id, ids in gone.items():
            await self.delete(workspace_id, ids)
        return overtaken


def build_document(memory: Memory) -> IndexDocument:
    """Return what the derived indexes hold of *memory* (spec 2.6, D-46)."""
    return IndexDocument(
        memory_id=memory.id,
        workspace_id=memory.workspace_id,
        org=memory.org,
        project=memory.project,
        agent_id=memory.agent_id,
        session_id=memory.session_id,
        memory_scope=memory.memory_scope,
        type=memory.type,
        tags=memory.tags,
        confidence=memory.confidence,
        source=memory.source,
        content=memory.content,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        expires_at=memory.expires_at,
        labels=build_labels(memory.metadata) if memory.metadata else frozenset(),
    )


def build_passage(memory: Memory) -> Passage:
    """
    Return what is embedded of *memory*: its content, each chunk after a line of its tags (D-55).

    Not its type and day: before every short text they are most alike, and recall of single turns lost a point by them.
    """
    return Passage(context=", ".join(memory.tags[:_MAX_CONTEXT_TAGS]), content=memory.content)
