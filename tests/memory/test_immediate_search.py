"""A memory is found by full text when `remember` responds, and by meaning when it is indexed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from rookery.engines.texts.embedded import EmbeddedTextIndex
from rookery.kernel.db import Database
from rookery.kernel.errors import EngineUnavailable, ValidationFailed
from rookery.kernel.pages import PageSlice
from rookery.memory.events import MemoryStored
from rookery.memory.indexing import EMBED_JOB
from rookery.memory.models import AccessFilter, IndexDocument, Memory, MemoryChange, MemoryFilter, TextQuery
from rookery.memory.recall_models import RecallRequest
from tests.conftest import FakeClock, eventually
from tests.deadlines import HANG_S
from tests.memory.makers import HERON, MemoryRig, build_rig, make_caller, make_draft

SearchFunction = Literal["semantic", "keyword", "hybrid"]


class _ControlledTexts(EmbeddedTextIndex):
    """
    A full-text engine whose early writes the test can delay or fail.

    Attributes:
        failing: The error that a write raises.
        gate: A write waits until this is set.
        started: The number of writes that began.
        finished: The number of writes that ended.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failing: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = self.finished = 0

    async def put(self, documents: Sequence[IndexDocument], *, is_early: bool = False) -> None:
        if not is_early:
            await super().put(documents)
            return
        self.started += 1
        await self.gate.wait()
        if self.failing is not None:
            raise self.failing
        await super().put(documents, is_early=True)
        self.finished += 1


@pytest.fixture
def texts(data_dir: Path) -> _ControlledTexts:
    """Return the full-text engine of the rig."""
    return _ControlledTexts(data_dir / "texts.db")


@pytest.fixture
async def rig(database: Database, data_dir: Path, clock: FakeClock, texts: _ControlledTexts) -> AsyncIterator[MemoryRig]:
    """Yield the memory domain with a full-text engine that the test controls."""
    rig = build_rig(database, data_dir, clock, texts=texts)
    yield rig
    await rig.close()


async def _search(rig: MemoryRig, query: str) -> list[str]:
    return [hit.memory.content for hit in (await rig.services.search.find(make_caller(), query, MemoryFilter(), page=PageSlice(20))).hits]


async def _recall(rig: MemoryRig, query: str, mode: SearchFunction = "hybrid", keywords: Sequence[str] = ()) -> list[str]:
    request = RecallRequest(query=query, mode=mode, keywords=tuple(keywords))
    return [hit.memory.content for hit in (await rig.services.recall.find(make_caller(), request)).hits]


async def _change(rig: MemoryRig, memory: Memory, content: str) -> Memory:
    return await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(content=content))


async def _has_content(rig: MemoryRig, memory: Memory, content: str) -> bool:
    return (await rig.reload(memory)).content == content


async def _count_index_matches(rig: MemoryRig, word: str) -> int:
    """Return the number of matches in the full-text index itself, also of entries without a record."""
    return await rig.texts.count(1, query=TextQuery(any_of=(word,)), access_filter=AccessFilter(workspace_id=1, at=rig.clock()))


async def _is_index_empty(rig: MemoryRig, word: str) -> bool:
    return await _count_index_matches(rig, word) == 0


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
async def test_a_new_memory_is_found_by_full_text_before_any_job_ran(rig: MemoryRig, mode: SearchFunction) -> None:
    """`remember` writes the full-text index together with the record."""
    await rig.remember()

    assert (await _recall(rig, "heron", mode), await _search(rig, "nesting")) == ([HERON], [HERON])


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
async def test_a_keyword_finds_a_memory_without_a_vector(rig: MemoryRig, mode: SearchFunction) -> None:
    """A memory found by keyword alone is part of the results."""
    await rig.remember()

    assert await _recall(rig, "what lives up there", mode, keywords=["heron"]) == [HERON]


async def test_a_memory_is_found_while_the_embedder_is_down(rig: MemoryRig) -> None:
    """An engine that is down does not stop the other one."""
    rig.embedder.is_down = True
    await rig.remember()
    await rig.run_jobs()

    assert await _search(rig, "heron") == [HERON]


async def test_a_batch_is_found_immediately(rig: MemoryRig) -> None:
    """A batch behaves like single writes; a rejected memory is not in the index."""
    drafts = [make_draft(f"heron number {number}") for number in range(3)]
    bad = make_draft("a heron that replaces nothing", supersedes_id="mem_unknown")
    await rig.services.remember.store_many(make_caller(), [*drafts, bad])

    assert sorted(await _search(rig, "heron")) == [draft.content for draft in drafts]
    assert await _count_index_matches(rig, "replaces") == 0


async def test_a_change_is_found_immediately_and_the_old_words_are_not(rig: MemoryRig) -> None:
    """After PATCH, search finds the new words and no longer the old ones."""
    memory = await rig.remember()
    await rig.run_jobs()
    await _change(rig, memory, "A crane nests here.")

    assert (await _search(rig, "crane"), await _search(rig, "heron")) == (["A crane nests here."], [])


async def test_a_new_version_is_found_immediately_and_the_superseded_one_is_not(rig: MemoryRig) -> None:
    """A superseded memory is removed from every index."""
    memory = await rig.remember()
    await rig.remember("The heron moved to the barn.", supersedes_id=memory.id)

    assert await _search(rig, "heron") == ["The heron moved to the barn."]
    await rig.run_jobs()
    assert await _count_index_matches(rig, "heron") == 1


async def test_a_restored_memory_is_found_immediately(rig: MemoryRig) -> None:
    """Full-text search finds it before any job ran."""
    memory = await rig.remember()
    await rig.services.records.archive(make_caller(), memory.id)
    found_while_archived = await _search(rig, "heron")
    await rig.run_jobs()
    await rig.services.records.restore(make_caller(), memory.id)

    assert (found_while_archived, await _search(rig, "heron")) == ([], [HERON])


async def test_a_memory_deleted_before_indexing_leaves_no_index_entry(rig: MemoryRig) -> None:
    """A deleted memory is removed from all stores."""
    memory = await rig.remember()
    await rig.services.records.delete(make_caller(), memory.id)
    found_after_delete = await _search(rig, "heron")
    await rig.run_jobs()

    assert (found_after_delete, await _count_index_matches(rig, "heron")) == ([], 0)


async def test_a_rejected_memory_leaves_no_index_entry(rig: MemoryRig) -> None:
    """The transaction of the record failed."""
    with pytest.raises(ValidationFailed):
        await rig.remember("a heron that replaces nothing", supersedes_id="mem_unknown")

    assert await _count_index_matches(rig, "heron") == 0


async def test_a_duplicate_has_no_index_entry_of_its_own(rig: MemoryRig) -> None:
    """`dedupe` returns the existing memory."""
    await rig.remember()
    await rig.remember(dedupe=True)

    assert await _count_index_matches(rig, "heron") == 1


@pytest.mark.parametrize("failing", [EngineUnavailable("texts", "it is switched off"), RuntimeError("a bug")], ids=["down", "bug"])
async def test_a_memory_is_stored_while_the_index_fails(rig: MemoryRig, texts: _ControlledTexts, failing: Exception) -> None:
    """The record is stored, and its job writes the index later."""
    texts.failing = failing
    memory = await rig.remember()
    await _change(rig, memory, "A crane nests here.")
    found_before = await _search(rig, "crane")
    await rig.run_jobs()

    assert (found_before, await _search(rig, "crane")) == ([], ["A crane nests here."])


async def test_an_index_that_hangs_delays_the_response_only_briefly(rig: MemoryRig, texts: _ControlledTexts) -> None:
    """The caller does not wait for the index; search finds the memory when the index continues."""
    texts.gate.clear()
    memory = await asyncio.wait_for(rig.remember(), timeout=HANG_S)
    found_before = await _search(rig, "heron")
    texts.gate.set()
    await rig.run_jobs()

    assert (found_before, await _search(rig, "heron")) == ([], [memory.content])


async def test_an_index_write_that_ends_after_the_deletion_is_undone(rig: MemoryRig, texts: _ControlledTexts) -> None:
    """Another process may delete a memory while this one still writes its index entry."""
    texts.gate.clear()
    task = asyncio.create_task(rig.remember())
    await eventually(lambda: rig.jobs.count_pending(EMBED_JOB, 1))
    (event,) = [event for event in rig.events if isinstance(event, MemoryStored)]
    await rig.services.records.delete(make_caller(), event.memory_id)
    await rig.run_jobs()
    texts.gate.set()
    await task

    assert await _count_index_matches(rig, "heron") == 0


async def test_a_late_index_write_is_undone_without_its_caller(rig: MemoryRig, texts: _ControlledTexts) -> None:
    """The caller already has its response when the write ends."""
    texts.gate.clear()
    memory = await rig.remember()
    await rig.services.records.delete(make_caller(), memory.id)
    await rig.run_jobs()
    texts.gate.set()

    await eventually(lambda: texts.finished)
    await eventually(partial(_is_index_empty, rig, "heron"))


async def test_the_index_write_of_a_cancelled_and_rejected_memory_is_undone(rig: MemoryRig, texts: _ControlledTexts) -> None:
    """The write was never acknowledged."""
    texts.gate.clear()
    task = asyncio.create_task(rig.remember("a heron that replaces nothing", supersedes_id="mem_unknown"))
    await eventually(lambda: texts.started)
    task.cancel()
    with pytest.raises((asyncio.CancelledError, ValidationFailed)):
        await task
    texts.gate.set()

    await eventually(lambda: texts.finished)
    await eventually(partial(_is_index_empty, rig, "heron"))


async def test_a_late_index_write_does_not_replace_a_newer_content(rig: MemoryRig, texts: _ControlledTexts) -> None:
    """The newer content stays, whatever the order of writes."""
    memory = await rig.remember()
    texts.gate.clear()
    first = asyncio.create_task(_change(rig, memory, "A crane nests here."))
    await eventually(partial(_has_content, rig, memory, "A crane nests here."))
    first_gate, texts.gate = texts.gate, asyncio.Event()
    texts.gate.set()
    await _change(rig, memory, "A stork nests here.")
    await rig.run_jobs()
    first_gate.set()
    await first

    assert (await _search(rig, "stork"), await _search(rig, "crane")) == (["A stork nests here."], [])
