"""Texts that a killed process left in the full-text index without a memory."""

from __future__ import annotations

from dataclasses import replace

from rookery.kernel.ids import uuid7
from rookery.memory.indexing import build_document
from rookery.memory.maintenance.forgetting import ForgetRequest
from rookery.memory.maintenance.reindexing import ReindexRequest
from tests.memory.makers import MemoryRig


async def _leave_orphans(rig: MemoryRig, count: int = 2) -> None:
    """Write texts as a request does whose process is killed before the record is committed. One memory is stored."""
    memory = await rig.remember("The heron of a stored memory.")
    await rig.run_jobs()
    document = replace(build_document(memory), content="the secret heron")
    orphans = [replace(document, memory_id=uuid7(), workspace_id=1 + number % 2) for number in range(count)]
    await rig.texts.put(orphans, is_early=True)


async def _count_texts(rig: MemoryRig) -> int:
    return sum([await rig.texts.count(workspace_id) for workspace_id in (1, 2)])


async def test_orphaned_texts_are_counted_and_removed(rig: MemoryRig) -> None:
    """Those of every workspace, however many there are; texts of memories stay."""
    await _leave_orphans(rig, 1100)

    assert await rig.services.orphaned_texts.count() == 1100
    assert await rig.services.orphaned_texts.remove() == 1100
    assert (await rig.services.orphaned_texts.count(), await _count_texts(rig)) == (0, 1)


async def test_a_reindex_removes_orphaned_texts(rig: MemoryRig) -> None:
    """Before, they stayed for ever."""
    await _leave_orphans(rig)

    report = await rig.services.reindexer.reindex(ReindexRequest())

    assert (report.stopped, await _count_texts(rig)) == (None, 1)


async def test_forgetting_with_traces_removes_orphaned_texts(rig: MemoryRig) -> None:
    """The text of a memory that is forgotten may also be in such a row, which a search does not find."""
    await _leave_orphans(rig)

    report = await rig.services.maintenance.forgetting.run(ForgetRequest(workspace_id=1, erase_traces=True))

    assert (report.stopped, await _count_texts(rig)) == (None, 1)


async def test_archived_and_new_memories_are_no_orphans(rig: MemoryRig) -> None:
    """A memory whose index is not current has a record."""
    await rig.remember("new")

    assert await rig.services.orphaned_texts.count() == 0
    assert await rig.services.orphaned_texts.remove() == 0
    assert await _count_texts(rig) == 1
