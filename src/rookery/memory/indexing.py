"""From pending to indexed: embed, upsert to the vector index, index the words, say so in the record (spec 3.4, D-51)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.tracing import span
from rookery.memory.models import Document, Memory, Passage, Vectored
from rookery.memory.ports import Embedder, TextIndex, VectorIndex
from rookery.memory.rebuild import Rebuild
from rookery.memory.store import indexing as store

EMBED = "EmbedMemory"
DELETE = "DeleteFromIndex"
"""The kinds of job, by the spec's names (6.1)."""

AGAIN = "again"
"""In an EmbedMemory job's payload: index it also if nothing that is said of it changed; its confidence did."""

_SHOWN_TAGS = 12
"""More tags than this say little about a text, and every chunk carries them."""

_log = structlog.stdlib.get_logger("rookery.memory")


class Indexer:
    """Brings the derived indexes to what the records say; whatever is done twice does no harm."""

    def __init__(self, *, db: Database, embedder: Embedder, vectors: VectorIndex, texts: TextIndex, clock: Clock, rebuild: Rebuild) -> None:
        self._db = db
        self._embedder = embedder
        self._vectors = vectors
        self._texts = texts
        self._clock = clock
        self._rebuild = rebuild

    @property
    def model(self) -> str:
        """The embedder's model: what was indexed with another one is stale (D-54)."""
        return self._embedder.model

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
            await self._index(memories, words_only=words_only)
        except EngineUnavailable:
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

    async def drop(self, workspace_id: int, ids: Sequence[str]) -> None:
        """
        Take *ids* out of both indexes; unknown ones do no harm.

        Raises:
            EngineUnavailable: An engine is down.
        """
        if ids:
            await self._vectors.drop(workspace_id, ids)
            await self._texts.drop(workspace_id, ids)

    async def _index(self, memories: Sequence[Memory], *, words_only: bool) -> None:
        documents = [document(memory) for memory in memories]
        if not words_only:
            passages = [passage(memory) for memory in memories]
            with span("embedding"):
                vectors = await self._embedder.embed_passages(passages)
            pairs = zip(documents, vectors, strict=True)
            await self._vectors.put([Vectored(document=each, vectors=chunks) for each, chunks in pairs])
            await self._rebuild.keep_up(list(zip(memories, documents, passages, strict=True)))
        await self._texts.put(documents)
        at, model = self._clock(), self._embedder.model
        spaces: dict[int, list[str]] = {}
        for memory in memories:
            spaces.setdefault(memory.workspace_id, []).append(memory.id)

        def settle(tx: Tx) -> dict[int, list[str]]:
            if not words_only:
                store.mark_indexed(tx, memories, model=model, at=at)
            gone: dict[int, list[str]] = {}
            for workspace_id, ids in spaces.items():
                alive = store.alive(tx, workspace_id, ids, at=at)
                if len(alive) < len(ids):
                    gone[workspace_id] = [each for each in ids if each not in alive]
            return gone

        # Deleted while it was embedded: its DeleteFromIndex may have run before our put, so what we put must go again.
        for workspace_id, ids in (await self._db.write(settle)).items():
            await self.drop(workspace_id, ids)


def document(memory: Memory) -> Document:
    """Return what the derived indexes hold of *memory* (spec 2.6, D-46)."""
    return Document(
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
    )


def passage(memory: Memory) -> Passage:
    """
    Return what is embedded of *memory*: its content, each chunk after a line of its tags (D-55).

    Not its type and day: before every short text they are most alike, and recall of single turns lost a point by them.
    """
    return Passage(context=", ".join(memory.tags[:_SHOWN_TAGS]), content=memory.content)
