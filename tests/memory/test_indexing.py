from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rookery.kernel.db import Database
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.jobs import Job, JobDone
from rookery.kernel.pages import PageSlice
from rookery.memory.indexing import EMBED_JOB, build_passage
from rookery.memory.jobs import BATCH_SIZE, RETRY_DELAYS_S, MemoryJobs
from rookery.memory.models import Memory, MemoryChange, MemoryFilter, MemoryState, Passage, get_state
from rookery.memory.recall_models import RecallRequest
from tests.conftest import FakeClock
from tests.memory.makers import HERON, MODEL, MemoryRig, StemEmbedder, build_rig, make_caller, make_memory


async def _state(rig: MemoryRig, memory: Memory) -> MemoryState:
    return get_state(await rig.reload(memory), model=MODEL)


async def _recall(rig: MemoryRig, query: str) -> list[str]:
    return [hit.memory.content for hit in (await rig.services.recall.find(make_caller(), RecallRequest(query=query))).hits]


def _jobs(rig: MemoryRig) -> MemoryJobs:
    return MemoryJobs(db=rig.db, queue=rig.jobs, indexer=rig.services.indexer, clock=rig.clock)


def make_job(memory: Memory, kind: str = EMBED_JOB) -> Job:
    """Return a job for *memory* as the worker passes it to the handler."""
    return Job(
        id=f"job-{memory.id}",
        kind=kind,
        workspace_id=memory.workspace_id,
        payload={"memory_id": memory.id},
        attempts=0,
        created_at=memory.created_at,
        ready_at=memory.created_at,
    )


async def test_a_memory_goes_from_pending_to_indexed(rig: MemoryRig) -> None:
    """indexed_at is set after both indexes are written."""
    memory = await rig.remember()
    before = await _state(rig, memory)
    rig.clock.advance(seconds=1)
    await rig.run_jobs()

    assert (before, await _state(rig, memory)) == (MemoryState.PENDING_EMBED, MemoryState.INDEXED)
    assert (await rig.reload(memory)).indexed_at == rig.clock()
    assert (await rig.reload(memory)).updated_at == memory.updated_at


async def test_long_memories_of_one_workspace_do_not_delay_another(rig: MemoryRig) -> None:
    """Workspaces take turns, and a batch ends before it is too much work. Later batches index the rest."""
    long_memories = [await rig.remember(f"{number} " + "word " * 9_000) for number in range(BATCH_SIZE + 2)]
    short = await rig.remember(by=make_caller(workspace_id=2, public_workspace_id=2))

    first = await rig.worker.run_ready(EMBED_JOB)
    indexed = [memory for memory in long_memories if (await rig.reload(memory)).indexed_at is not None]

    assert (first, (await rig.reload(short)).indexed_at) == (BATCH_SIZE, rig.clock())
    assert len(indexed) == 2
    await rig.run_jobs()
    assert [memory.id for memory in long_memories if (await rig.reload(memory)).indexed_at is None] == []


async def test_a_long_memory_does_not_wait_for_the_backlogs_of_others(rig: MemoryRig) -> None:
    """Each workspace has its share of characters, so a long memory has its turn while others have many short ones."""
    others = [make_caller(workspace_id=number, public_workspace_id=number) for number in (2, 3)]
    for number in range(60):
        for other in others:
            await rig.remember(f"{number} " + "word " * 460, by=other)
    long_memory = await rig.remember("word " * 9_990)

    for _ in range(3):
        await rig.worker.run_ready(EMBED_JOB)

    assert (await rig.reload(long_memory)).indexed_at is not None
    assert await rig.jobs.count_pending(EMBED_JOB, 2) > 0
    assert await rig.jobs.count_pending(EMBED_JOB, 3) > 0


async def test_memories_of_a_workspace_are_indexed_in_their_order(rig: MemoryRig) -> None:
    """A memory that does not fit in a batch is indexed before later ones of its workspace."""
    stored = [await rig.remember(f"{number} " + "word " * 1_200) for number in range(40)]
    await rig.remember(by=make_caller(workspace_id=2, public_workspace_id=2))

    await rig.worker.run_ready(EMBED_JOB)

    is_indexed = [(await rig.reload(memory)).indexed_at is not None for memory in stored]
    assert is_indexed == sorted(is_indexed, reverse=True)
    assert 0 < sum(is_indexed) < len(stored)


async def test_jobs_run_in_batches(rig: MemoryRig) -> None:
    """The worker claims jobs in batches."""
    for number in range(BATCH_SIZE + 1):
        await rig.remember(f"memory {number}")

    assert [await rig.worker.run_ready(EMBED_JOB) for _ in range(3)] == [BATCH_SIZE, 1, 0]


async def test_a_failing_memory_is_retried_on_schedule_then_failed(rig: MemoryRig) -> None:
    """It is retried after 10, 60 and 300 s, then marked as failed, and tried again a day later."""
    rig.embedder.poison = "arsenic"
    memory = await rig.remember("arsenic")
    for wait_s in RETRY_DELAYS_S:
        assert await rig.worker.run_ready(EMBED_JOB) == 1
        assert await _state(rig, memory) is MemoryState.PENDING_EMBED
        rig.clock.advance(seconds=wait_s - 1)
        assert await rig.worker.run_ready(EMBED_JOB) == 0
        rig.clock.advance(seconds=1)
    assert await rig.worker.run_ready(EMBED_JOB) == 1

    failed = await _state(rig, memory)
    rig.embedder.poison = None
    rig.clock.advance(days=1)
    await rig.run_jobs()
    assert (failed, await _state(rig, memory)) == (MemoryState.FAILED, MemoryState.INDEXED)
    assert await rig.jobs.list_failed() == []


async def test_one_bad_memory_does_not_stop_the_indexing_of_the_others(rig: MemoryRig) -> None:
    """Only the failing memory stays pending."""
    rig.embedder.poison = "arsenic"
    memories = [await rig.remember("arsenic" if number == 5 else f"memory {number}") for number in range(9)]
    await rig.run_jobs()

    states = [await _state(rig, memory) for memory in memories]
    assert states == [MemoryState.PENDING_EMBED if number == 5 else MemoryState.INDEXED for number in range(9)]


async def test_an_engine_that_is_down_uses_no_attempt(rig: MemoryRig) -> None:
    """The worker pauses jobs of this kind instead."""
    memory = await rig.remember()
    rig.embedder.is_down = True
    for _ in range(6):
        await rig.worker.run_ready(EMBED_JOB)
    rig.embedder.is_down = False
    await rig.run_jobs()

    assert await _state(rig, memory) is MemoryState.INDEXED


async def test_the_job_of_a_deleted_memory_ends_without_error(rig: MemoryRig) -> None:
    """Without a record the job does nothing."""
    memory = await rig.remember()
    await rig.services.records.delete(make_caller(), memory.id)

    assert await _jobs(rig).embed([make_job(memory)]) == {f"job-{memory.id}": JobDone()}
    assert (rig.embedder.embedded_contents, await rig.vectors.count(1)) == ([], 0)


class _DeletingEmbedder(StemEmbedder):
    """An embedder that deletes the memory while it embeds, before the indexes are written."""

    rig: MemoryRig
    memory: Memory

    async def embed_passages(self, passages: object) -> list[tuple[bytes, ...]]:
        vectors = await super().embed_passages(passages)  # pyright: ignore[reportArgumentType] - what the port passes
        await self.rig.services.records.delete(make_caller(), self.memory.id)
        await self.rig.worker.run_ready("DeleteFromIndex")
        return vectors


async def test_a_memory_deleted_while_it_is_embedded_leaves_no_index_entry(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """A deleted memory is removed from all stores, whatever runs at the same time."""
    embedder = _DeletingEmbedder()
    rig = build_rig(database, data_dir, clock, embedder=embedder)
    embedder.rig, embedder.memory = rig, await rig.remember()
    await rig.worker.run_ready(EMBED_JOB)
    remaining = (
        await rig.vectors.count(1),
        (await rig.services.search.find(make_caller(), "heron", MemoryFilter(), page=PageSlice(5))).total,
    )
    await rig.close()

    assert remaining == (0, 0)


class _ChangingEmbedder(StemEmbedder):
    """An embedder that changes the memory while it embeds."""

    rig: MemoryRig
    memory: Memory
    has_changed: bool = False

    async def embed_passages(self, passages: object) -> list[tuple[bytes, ...]]:
        vectors = await super().embed_passages(passages)  # pyright: ignore[reportArgumentType] - what the port passes
        if not self.has_changed:
            self.has_changed = True
            change = MemoryChange.of(content="A crane nests here.")
            await self.rig.services.records.change(make_caller(), self.memory.id, change)
        return vectors


async def test_a_memory_changed_while_it_is_embedded_is_indexed_with_the_new_content(
    database: Database, data_dir: Path, clock: FakeClock
) -> None:
    """indexed_at is set only if the record is unchanged since it was embedded."""
    embedder = _ChangingEmbedder()
    rig = build_rig(database, data_dir, clock, embedder=embedder)
    memory = embedder.memory = await rig.remember()
    embedder.rig = rig
    await rig.worker.run_ready(EMBED_JOB)
    first = await _state(rig, memory)
    await rig.run_jobs()
    states, recalled = (first, await _state(rig, memory)), await _recall(rig, "crane")
    await rig.close()

    assert states == (MemoryState.INDEXED, MemoryState.INDEXED)
    assert embedder.embedded_contents == [HERON, "A crane nests here."]
    assert recalled == ["A crane nests here."]


async def test_a_job_that_runs_twice_embeds_once(rig: MemoryRig) -> None:
    """Jobs run at least once, so repeats must be harmless."""
    memory = await rig.remember()
    handler = _jobs(rig).embed

    await handler([make_job(memory), make_job(memory)])
    await handler([make_job(memory)])

    assert (rig.embedder.embedded_contents, await rig.vectors.count(1)) == ([memory.content], 1)


async def test_the_job_of_a_killed_worker_runs_again(rig: MemoryRig) -> None:
    """The lease of the job expires, and another worker repeats it."""
    memory = await rig.remember()
    rig.embedder.is_down = True
    with pytest.raises(EngineUnavailable):
        await _jobs(rig).embed([make_job(memory)])
    rig.embedder.is_down = False
    task = asyncio.create_task(_jobs(rig).embed([make_job(memory)]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    await rig.run_jobs()

    assert await _recall(rig, "heron") == [memory.content]


async def test_another_model_makes_a_memory_stale(rig: MemoryRig) -> None:
    """A memory with vectors of another model is stale."""
    memory = await rig.remember()
    await rig.run_jobs()

    assert get_state(await rig.reload(memory), model="other/2") is MemoryState.STALE


def test_the_embedded_text_has_the_tags_as_context(clock: FakeClock) -> None:
    """The tags stand before the content."""
    memory = make_memory(clock, tags=("api", "deploy"))

    assert build_passage(memory) == Passage(context="api, deploy", content=memory.content)


async def test_recalls_are_kept_thirty_days(rig: MemoryRig) -> None:
    """Recall records are deleted after thirty days."""
    await rig.services.recall.find(make_caller(), RecallRequest(query="heron"))
    await rig.services.recall_buffer.flush()
    rig.clock.advance(days=30)
    first_sweep = await rig.services.retention.sweep()
    rig.clock.advance(seconds=1)

    assert (first_sweep, await rig.services.retention.sweep()) == ((0, 0), (0, 1))
