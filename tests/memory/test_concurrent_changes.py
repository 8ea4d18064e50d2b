"""Changes during indexing: the indexes end with the latest content (spec 3.4, D-46)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from sqlalchemy import update

from rookery.engines import vectors as vector_engines
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Database
from rookery.kernel.jobs import jobs
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.indexing import Indexer, build_document, build_passage
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.memory.models import AccessFilter, EmbeddedDocument, Memory, MemoryChange, Passage, RecallRequest, Vector, VectorHit
from tests.conftest import FakeClock
from tests.memory.makers import MemoryRig, StemEmbedder, build_rig, make_caller

_PATIENCE_S = 30.0


@dataclass
class _Slow(StemEmbedder):
    """Waits with what mentions the heron until it is let go; all else is quick."""

    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return each content's direction."""
        if any("heron" in passage.content for passage in passages):
            self.waiting.set()
            await asyncio.wait_for(self.go.wait(), _PATIENCE_S)
        return await super().embed_passages(passages)


async def _overtake(database: Database, folder: Path, clock: FakeClock, change: MemoryChange) -> tuple[Memory, list[str], list[str]]:
    """Change a memory while another process re-indexes it; return it, what is found by its old words, and by its new ones."""
    slow = build_rig(database, folder, clock, embedder=_Slow())
    quick = build_rig(database, folder, clock)
    embedder = slow.embedder
    assert isinstance(embedder, _Slow)
    memory = await quick.remember("The heron nests on the roof.")
    await quick.run_jobs()
    reindex = asyncio.create_task(slow.services.reindexer.reindex(ReindexRequest()))
    await asyncio.wait_for(embedder.waiting.wait(), _PATIENCE_S)
    await quick.services.records.change(make_caller(), memory.id, change)
    await quick.run_jobs()
    embedder.go.set()
    await asyncio.wait_for(reindex, _PATIENCE_S)

    fresh = await quick.reload(memory)
    by_words = await quick.services.recall.find(make_caller(), RecallRequest(query="otter", mode="keyword"))
    by_meaning = await quick.services.recall.find(make_caller(), RecallRequest(query="The otter swims.", mode="semantic"))
    await slow.close()
    await quick.close()
    alike = [hit.memory.id for hit in by_meaning.hits if hit.similarity is not None and hit.similarity > 0.99]
    return fresh, [hit.memory.id for hit in by_words.hits], alike


async def test_a_reindex_that_is_overtaken_by_a_change_does_not_undo_it(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """Spec 3.4: what a run read before the change, and puts after it, is not what stays, while the record says indexed."""
    clock.advance(hours=1)
    fresh, by_words, by_meaning = await _overtake(
        database, data_dir, clock, MemoryChange(changed_fields=frozenset({"content"}), content="The otter swims.")
    )

    assert fresh.indexed_at is not None
    assert fresh.indexed_at >= fresh.updated_at
    assert (by_words, by_meaning) == ([fresh.id], [fresh.id])


async def test_what_a_killed_worker_put_over_a_change_does_not_stay(rig: MemoryRig) -> None:
    """Spec 3.4: its job is taken over, and done though the record says indexed: by the change's own job, before it was put over."""
    memory = await rig.remember("The heron nests on the roof.")
    taken = update(jobs).values(owner="elsewhere:1:killed", run_at=to_micros(rig.clock() + timedelta(minutes=5)))
    await rig.db.write(lambda tx: tx.execute(taken, {}))
    await rig.services.records.change(
        make_caller(), memory.id, MemoryChange(changed_fields=frozenset({"content"}), content="The otter swims.")
    )
    await rig.run_jobs()
    (old,) = await rig.embedder.embed_passages([build_passage(memory)])
    await rig.vectors.put([EmbeddedDocument(document=build_document(memory), vectors=old)])
    await rig.texts.put([build_document(memory)])

    rig.clock.advance(minutes=6)
    await rig.run_jobs()

    for mode in ("semantic", "keyword"):
        found = await rig.services.recall.find(make_caller(), RecallRequest(query="The otter swims.", mode=mode))
        assert [hit.memory.id for hit in found.hits if hit.score > 0.99] == [memory.id], mode


@dataclass
class _SlowDrop:
    """A vector index of another process, which waits before it drops."""

    index: vector_engines.VectorEngine
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        """Put them."""
        await self.index.put(items)

    async def is_ready(self, workspace_id: int) -> bool:
        """Be ready as it is."""
        return await self.index.is_ready(workspace_id)

    async def search(self, vector: Vector, *, access_filter: AccessFilter, limit: int) -> list[VectorHit]:
        """Return what is near."""
        return await self.index.search(vector, access_filter=access_filter, limit=limit)

    async def compute_similarities(self, vector: Vector, *, workspace_id: int, ids: Collection[str]) -> Mapping[str, float]:
        """Return how near they are."""
        return await self.index.compute_similarities(vector, workspace_id=workspace_id, ids=ids)

    async def get_vectors(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        """Return what is stored."""
        return await self.index.get_vectors(workspace_id, ids)

    async def delete(self, workspace_id: int, ids: Collection[str]) -> None:
        """Drop them, once it is let go."""
        self.waiting.set()
        await asyncio.wait_for(self.go.wait(), _PATIENCE_S)
        await self.index.delete(workspace_id, ids)

    async def count(self, workspace_id: int) -> int:
        """Count them."""
        return await self.index.count(workspace_id)


async def test_what_is_restored_while_it_is_dropped_is_found_again(rig: MemoryRig) -> None:
    """Spec 3.4, D-46: the job of an archiving that is overtaken by a restore does not leave a memory that nothing finds."""
    memory = await rig.remember("The otter swims.")
    await rig.run_jobs()
    slow = _SlowDrop(rig.vectors)
    rebuild = EmbeddingMigration(current=IndexVersion(embedder=rig.embedder, vectors=slow), model_versions=rig.vectors)
    indexer = Indexer(db=rig.db, embedder=rig.embedder, vectors=slow, texts=rig.texts, clock=rig.clock, migration=rebuild)
    await rig.services.records.archive(make_caller(), memory.id)
    dropping = asyncio.create_task(indexer.delete(1, [memory.id]))
    await asyncio.wait_for(slow.waiting.wait(), _PATIENCE_S)
    await rig.services.records.restore(make_caller(), memory.id)
    await rig.run_jobs()
    slow.go.set()
    await asyncio.wait_for(dropping, _PATIENCE_S)

    for mode in ("semantic", "keyword"):
        found = await rig.services.recall.find(make_caller(), RecallRequest(query="otter", mode=mode))
        assert [hit.memory.id for hit in found.hits] == [memory.id], mode
