"""Changes during indexing: the indexes end with the latest content."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from rookery.engines import vectors as vector_engines
from rookery.engines.texts.embedded import EmbeddedTextIndex
from rookery.kernel.clock import to_micros
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.kernel.engine_breakers import EngineBreakers
from rookery.kernel.errors import EngineUnavailable, StorageFull
from rookery.kernel.jobs import jobs
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.indexing import Indexer, build_document, build_passage
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.memory.models import EmbeddedDocument, IndexDocument, Memory, MemoryChange, Passage, Vector, VectorHit
from rookery.memory.ports import ModelVersion
from rookery.memory.recall_models import RecallRequest
from rookery.memory.visibility import VectorFilter
from tests.conftest import FakeClock, eventually
from tests.deadlines import HANG_S
from tests.memory.makers import MemoryRig, StemEmbedder, build_rig, make_caller


@dataclass
class _BlockingEmbedder(StemEmbedder):
    """An embedder that blocks on texts with "heron" until `go` is set."""

    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return the vectors of each passage."""
        if any("heron" in passage.content for passage in passages):
            self.waiting.set()
            await asyncio.wait_for(self.go.wait(), HANG_S)
        return await super().embed_passages(passages)


async def _change_during_reindex(
    database: Database, folder: Path, clock: FakeClock, change: MemoryChange
) -> tuple[Memory, list[str], list[str]]:
    """Change a memory during a re-index in another process; return it, the ids found by its new words, and those near its new vector."""
    slow = build_rig(database, folder, clock, embedder=_BlockingEmbedder())
    quick = build_rig(database, folder, clock)
    embedder = slow.embedder
    assert isinstance(embedder, _BlockingEmbedder)
    memory = await quick.remember("The heron nests on the roof.")
    await quick.run_jobs()
    reindex = asyncio.create_task(slow.services.reindexer.reindex(ReindexRequest()))
    await asyncio.wait_for(embedder.waiting.wait(), HANG_S)
    await quick.services.records.change(make_caller(), memory.id, change)
    await quick.run_jobs()
    embedder.go.set()
    await asyncio.wait_for(reindex, HANG_S)

    current = await quick.reload(memory)
    by_words = await quick.services.recall.find(make_caller(), RecallRequest(query="otter", mode="keyword"))
    by_meaning = await quick.services.recall.find(make_caller(), RecallRequest(query="The otter swims.", mode="semantic"))
    await slow.close()
    await quick.close()
    near_ids = [hit.memory.id for hit in by_meaning.hits if hit.score.similarity is not None and hit.score.similarity > 0.99]
    return current, [hit.memory.id for hit in by_words.hits], near_ids


async def test_a_reindex_does_not_undo_a_concurrent_change(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """A re-index that read the old content and writes after the change does not leave the old content in the index."""
    clock.advance(hours=1)
    current, by_words, by_meaning = await _change_during_reindex(database, data_dir, clock, MemoryChange.of(content="The otter swims."))

    assert current.indexed_at is not None
    assert current.indexed_at >= current.updated_at
    assert (by_words, by_meaning) == ([current.id], [current.id])


async def test_old_content_written_by_a_killed_worker_is_replaced(rig: MemoryRig) -> None:
    """Another worker repeats the killed worker's job, although the record is already marked as indexed."""
    memory = await rig.remember("The heron nests on the roof.")
    claim = update(jobs).values(owner="elsewhere:1:killed", run_at=to_micros(rig.clock() + timedelta(minutes=5)))
    await rig.db.write(lambda tx: tx.execute(claim, {}))
    await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(content="The otter swims."))
    await rig.run_jobs()
    (old_vectors,) = await rig.embedder.embed_passages([build_passage(memory)])
    await rig.vectors.put([EmbeddedDocument(document=build_document(memory), vectors=old_vectors)])
    await rig.texts.put([build_document(memory)])

    rig.clock.advance(minutes=6)
    await rig.run_jobs()

    for mode in ("semantic", "keyword"):
        recall = await rig.services.recall.find(make_caller(), RecallRequest(query="The otter swims.", mode=mode))
        assert [hit.memory.id for hit in recall.hits if hit.score.total > 0.99] == [memory.id], mode


@dataclass
class _BlockingIndex:
    """A vector index of another process that blocks deletions until `go` is set."""

    index: vector_engines.VectorEngine
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        """Store the documents."""
        await self.index.put(items)

    async def is_ready(self, workspace_id: int) -> bool:
        """Return whether the wrapped index is ready."""
        return await self.index.is_ready(workspace_id)

    async def search(self, vector: Vector, *, where: VectorFilter, limit: int) -> list[VectorHit]:
        """Return the nearest documents."""
        return await self.index.search(vector, where=where, limit=limit)

    async def fetch(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        """Return the stored vectors."""
        return await self.index.fetch(workspace_id, ids)

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Delete the documents after `go` is set."""
        self.waiting.set()
        await asyncio.wait_for(self.go.wait(), HANG_S)
        await self.index.drop(workspace_id, ids)

    async def drop_version(self, workspace_id: int, version: ModelVersion) -> None:
        """Delete the vectors of *version*."""
        await self.index.drop_version(workspace_id, version)

    async def start(self) -> None:
        """Do nothing; the wrapped index is open."""

    async def close(self) -> None:
        """Do nothing; the wrapped index is closed by its owner."""

    async def count(self, workspace_id: int) -> int:
        """Return the number of documents."""
        return await self.index.count(workspace_id)


async def test_a_memory_restored_during_its_deletion_is_found_again(rig: MemoryRig) -> None:
    """The job of an earlier archiving does not leave a restored memory without an index entry."""
    memory = await rig.remember("The otter swims.")
    await rig.run_jobs()
    slow = _BlockingIndex(rig.vectors)
    migration = EmbeddingMigration(db=rig.db, clock=rig.clock, current=IndexVersion(embedder=rig.embedder, vectors=slow))
    breakers = EngineBreakers(Settings())
    indexer = Indexer(
        db=rig.db,
        embedder=rig.embedder,
        vectors=slow,
        texts=rig.texts,
        clock=rig.clock,
        migration=migration,
        early_writes=breakers.early_text_writes,
        writes=breakers.writes,
        jobs=rig.jobs,
    )
    await rig.services.records.archive(make_caller(), memory.id)
    deletion = asyncio.create_task(indexer.delete(1, [memory.id]))
    await asyncio.wait_for(slow.waiting.wait(), HANG_S)
    await rig.services.records.restore(make_caller(), memory.id)
    await rig.run_jobs()
    slow.go.set()
    await asyncio.wait_for(deletion, HANG_S)

    for mode in ("semantic", "keyword"):
        recall = await rig.services.recall.find(make_caller(), RecallRequest(query="otter", mode=mode))
        assert [hit.memory.id for hit in recall.hits] == [memory.id], mode


class _SilentTexts(EmbeddedTextIndex):
    """A full-text index whose answers to writes are lost."""

    has_written: asyncio.Event

    async def put(self, documents: Sequence[IndexDocument], *, is_early: bool = False) -> None:
        """Write, and fail as if no answer had come."""
        await super().put(documents, is_early=is_early)
        self.has_written.set()
        raise EngineUnavailable("texts", "no answer within 2 s")


async def test_words_of_a_memory_that_was_not_stored_are_removed(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """An early write of words without an answer may have been applied. If the record is not stored, no job would remove them."""
    texts = _SilentTexts(data_dir / "texts.db")
    texts.has_written = asyncio.Event()
    rig = build_rig(database, data_dir, clock, texts=texts)

    async def fail() -> None:
        await asyncio.wait_for(texts.has_written.wait(), HANG_S)
        raise StorageFull("the disk is full")

    rig.hooks.before_write = fail
    with pytest.raises(StorageFull):
        await rig.remember("The heron nests on the roof.")
    rig.hooks.before_write = None

    await eventually(lambda: _is_empty(texts))
    await rig.close()


async def _is_empty(texts: EmbeddedTextIndex) -> bool:
    return await texts.count(1) == 0
