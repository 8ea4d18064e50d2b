"""Recall in a large workspace whose IVF file is not built yet, and among many equally relevant memories."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

from rookery.engines.vectors import ivf_build
from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.engines.vectors.search import IndexLimits
from rookery.memory.models import RecallMode
from rookery.memory.recall_models import RecallRequest, RecallResult
from tests.conftest import FakeClock, eventually
from tests.memory.makers import DIMENSION, MemoryRig, build_rig, make_caller


async def recall(rig: MemoryRig, mode: RecallMode) -> RecallResult:
    """Recall in workspace 1."""
    return await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode=mode, top_k=100))


async def test_recall_uses_full_text_until_the_ivf_file_of_a_large_workspace_is_built(
    rig: MemoryRig, data_dir: Path, clock: FakeClock
) -> None:
    """After a restore, recall uses full text with a notice until the IVF file is built."""
    for content in ("heron roof", "heron boat", "swallow bridge"):
        await rig.remember(content)
    await rig.run_jobs()
    limits = IndexLimits(max_exact_floats=2 * DIMENSION, max_warmup_s=0.1, build_poll_s=0.01)
    vectors = EmbeddedVectorIndex(data_dir / "vectors.db", model=rig.embedder.model, dimension=DIMENSION, limits=limits)
    restored_rig = build_rig(rig.db, data_dir, clock, embedder=rig.embedder, vectors=vectors)
    (data_dir / "vectors.lists").mkdir()

    with ivf_build.lock_folder(data_dir / "vectors.lists"):
        for mode in ("semantic", "hybrid", "keyword"):
            result = await recall(restored_rig, mode)
            assert (result.notice is not None) == (mode != "keyword")
            assert sorted(hit.memory.content for hit in result.hits) == ["heron boat", "heron roof"]
    await eventually(lambda: restored_rig.vectors.is_ready(1))
    result = await recall(restored_rig, "semantic")

    await restored_rig.close()
    assert result.notice is None
    near_contents = [hit.memory.content for hit in result.hits if hit.score.similarity is not None and hit.score.similarity > 0.5]
    assert sorted(near_contents) == ["heron boat", "heron roof"]


async def test_other_tasks_run_while_a_recall_reads_many_records(rig: MemoryRig) -> None:
    """A recall reads all equally relevant memories in batches, and other tasks run between two batches."""
    memories = [await rig.remember(f"heron number{number}") for number in range(120)]
    await rig.run_jobs()
    turns, turns_at_lookup = 0, list[int]()

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    rig.hooks.before_lookup = lambda: turns_at_lookup.append(turns)
    turn_task = asyncio.create_task(count_turns())
    result = await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode="keyword", top_k=5))
    turn_task.cancel()

    assert [hit.memory.id for hit in result.hits] == sorted(memory.id for memory in memories)[:5]
    assert len(turns_at_lookup) > 5
    assert all(next_turn > turn for turn, next_turn in pairwise(turns_at_lookup))
