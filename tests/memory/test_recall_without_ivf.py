"""Recall in a large workspace whose vectors cannot be asked yet, and among many memories that are as relevant as each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from rookery.engines.vectors import ivf_build
from rookery.kernel.db import Tx
from rookery.memory.models import RecallMode, RecallRequest, RecallResult
from tests.conftest import FakeClock, eventually
from tests.memory.makers import DIMENSION, MemoryRig, build_rig, make_caller

T = TypeVar("T")


async def ask(rig: MemoryRig, mode: RecallMode) -> RecallResult:
    """Recall in workspace 1."""
    return await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode=mode, top_k=100))


async def test_recall_is_by_words_until_the_lists_of_a_large_workspace_are_built(
    rig: MemoryRig, data_dir: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 5: after a restore recall does not wait for minutes: it answers by words and says so (D-54), and soon as requested."""
    for content in ("heron roof", "heron boat", "swallow bridge"):
        await rig.remember(content)
    await rig.run_jobs()
    for module in ("embedded", "workspace_index"):
        monkeypatch.setattr(f"rookery.engines.vectors.{module}.MAX_EXACT_FLOATS", 2 * DIMENSION)
    monkeypatch.setattr("rookery.engines.vectors.warmup.MAX_WAIT_S", 0.1)
    monkeypatch.setattr("rookery.engines.vectors.embedded._BUILD_POLL_INTERVAL_S", 0.01)
    later = build_rig(rig.db, data_dir, clock, embedder=rig.embedder)
    (data_dir / "vectors.lists").mkdir()

    with ivf_build.lock_folder(data_dir / "vectors.lists"):
        for mode in ("semantic", "hybrid", "keyword"):
            recalled = await ask(later, mode)
            assert (recalled.notice is not None) == (mode != "keyword")
            assert sorted(hit.memory.content for hit in recalled.hits) == ["heron boat", "heron roof"]
    await eventually(lambda: later.vectors.is_ready(1), within_s=30)
    recalled = await ask(later, "semantic")

    await later.close()
    assert recalled.notice is None
    near = [hit.memory.content for hit in recalled.hits if hit.similarity is not None and hit.similarity > 0.5]
    assert sorted(near) == ["heron boat", "heron roof"]


async def test_others_are_answered_while_a_recall_reads_very_many(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 5: no pause. Of memories that are equally relevant all are read, and reading a batch does not wait for anything."""
    memories = [await rig.remember(f"heron number{number}") for number in range(120)]
    await rig.run_jobs()
    turns, seen = 0, list[int]()

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    quick: Callable[[Callable[[Tx], object]], object] = rig.db.lookup

    def noted(work: Callable[[Tx], T]) -> object:
        seen.append(turns)
        return quick(work)

    monkeypatch.setattr(rig.db, "lookup", noted)
    turning = asyncio.create_task(turn())
    recalled = await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode="keyword", top_k=5))
    turning.cancel()

    assert [hit.memory.id for hit in recalled.hits] == sorted(memory.id for memory in memories)[:5]
    assert len(seen) > 5
    assert all(later > earlier for earlier, later in pairwise(seen))
