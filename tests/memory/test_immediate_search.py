"""A memory is found by its words as soon as it is answered for; by meaning once it is indexed (spec 3.4, D-46, D-51)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Literal

import pytest

from rookery.kernel.errors import EngineUnavailable, ValidationFailed
from rookery.kernel.events import MemoryStored
from rookery.memory.indexing import EMBED_JOB
from rookery.memory.models import AccessFilter, IndexDocument, Memory, MemoryChange, MemoryFilter, RecallRequest, TextQuery
from tests.conftest import eventually
from tests.memory.makers import HERON, MemoryRig, make_caller, make_draft

SearchFunction = Literal["semantic", "keyword", "hybrid"]


async def _searched(rig: MemoryRig, query: str) -> list[str]:
    return [hit.memory.content for hit in (await rig.services.search.find(make_caller(), query, MemoryFilter(), limit=20)).hits]


async def _recalled(rig: MemoryRig, query: str, mode: SearchFunction = "hybrid", keywords: Sequence[str] = ()) -> list[str]:
    question = RecallRequest(query=query, mode=mode, keywords=tuple(keywords))
    return [hit.memory.content for hit in (await rig.services.recall.find(make_caller(), question)).hits]


async def _changed(rig: MemoryRig, memory: Memory, content: str) -> Memory:
    return await rig.services.records.change(make_caller(), memory.id, MemoryChange(changed_fields=frozenset({"content"}), content=content))


async def _says(rig: MemoryRig, memory: Memory, content: str) -> bool:
    return (await rig.reload(memory)).content == content


async def _indexed_words(rig: MemoryRig, word: str) -> int:
    """Count what the full-text index itself holds, which recall and search never show without the record."""
    return await rig.texts.count_matches(TextQuery(any_of=(word,)), access_filter=AccessFilter(workspace_id=1, at=rig.clock()))


async def _holds_nothing(rig: MemoryRig, word: str) -> bool:
    return await _indexed_words(rig, word) == 0


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
async def test_what_was_remembered_is_recalled_by_its_words_before_any_job_ran(rig: MemoryRig, mode: SearchFunction) -> None:
    """D-51: the text index is written with the record."""
    await rig.remember()

    assert (await _recalled(rig, "heron", mode), await _searched(rig, "nesting")) == ([HERON], [HERON])


@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
async def test_a_keyword_finds_what_has_no_vector_yet(rig: MemoryRig, mode: SearchFunction) -> None:
    """D-44: a memory found by keyword alone joins."""
    await rig.remember()

    assert await _recalled(rig, "what lives up there", mode, keywords=["heron"]) == [HERON]


async def test_it_is_found_while_the_embedder_is_down(rig: MemoryRig) -> None:
    """D-51: an engine that is down keeps the other from nothing."""
    rig.embedder.is_down = True
    await rig.remember()
    await rig.run_jobs()

    assert await _searched(rig, "heron") == [HERON]


async def test_a_batch_is_found_at_once(rig: MemoryRig) -> None:
    """D-50: as one by one; what was refused is not there."""
    drafts = [make_draft(f"heron number {number}") for number in range(3)]
    bad = make_draft("a heron that replaces nothing", supersedes_id="mem_unknown")
    await rig.services.remember.store_many(make_caller(), [*drafts, bad])

    assert sorted(await _searched(rig, "heron")) == [draft.content for draft in drafts]
    assert await _indexed_words(rig, "replaces") == 0


async def test_a_change_is_found_at_once_and_the_old_words_are_not(rig: MemoryRig) -> None:
    """After PATCH a search finds the new words at once and the old ones no longer (D-45)."""
    memory = await rig.remember()
    await rig.run_jobs()
    await _changed(rig, memory, "A crane nests here.")

    assert (await _searched(rig, "crane"), await _searched(rig, "heron")) == (["A crane nests here."], [])


async def test_what_supersedes_is_found_at_once_and_what_was_superseded_is_not(rig: MemoryRig) -> None:
    """D-41: it leaves every store."""
    memory = await rig.remember()
    await rig.remember("The heron moved to the barn.", supersedes_id=memory.id)

    assert await _searched(rig, "heron") == ["The heron moved to the barn."]
    await rig.run_jobs()
    assert await _indexed_words(rig, "heron") == 1


async def test_what_is_restored_is_found_at_once(rig: MemoryRig) -> None:
    """A restored memory is found by its words at once (spec 3.4)."""
    memory = await rig.remember()
    await rig.services.records.archive(make_caller(), memory.id)
    archived = await _searched(rig, "heron")
    await rig.run_jobs()
    await rig.services.records.restore(make_caller(), memory.id)

    assert (archived, await _searched(rig, "heron")) == ([], [HERON])


async def test_what_is_deleted_at_once_leaves_no_words_behind(rig: MemoryRig) -> None:
    """Spec 3.4: deleted is removed from all stores, also if it never was indexed."""
    memory = await rig.remember()
    await rig.services.records.delete(make_caller(), memory.id)
    shown = await _searched(rig, "heron")
    await rig.run_jobs()

    assert (shown, await _indexed_words(rig, "heron")) == ([], 0)


async def test_what_was_refused_leaves_no_words_behind(rig: MemoryRig) -> None:
    """D-46: a transaction that failed."""
    with pytest.raises(ValidationFailed):
        await rig.remember("a heron that replaces nothing", supersedes_id="mem_unknown")

    assert await _indexed_words(rig, "heron") == 0


async def test_a_duplicate_leaves_no_words_of_its_own(rig: MemoryRig) -> None:
    """D-40: dedupe returns the one that is there."""
    await rig.remember()
    await rig.remember(dedupe=True)

    assert await _indexed_words(rig, "heron") == 1


class _Texts:
    """
    A full-text engine under our control, in front of a real one.

    Attributes:
        failing: What an offer raises.
        gate: An offer waits until it is open.
        asked: How many offers began.
        offered: How many came in.
    """

    def __init__(self, rig: MemoryRig) -> None:
        self._texts = rig.texts
        self.offer_before = rig.texts.put_if_newer
        self.failing: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = self.offered = 0

    async def put_if_newer(self, documents: Sequence[IndexDocument]) -> None:
        self.asked += 1
        await self.gate.wait()
        if self.failing is not None:
            raise self.failing
        await self.offer_before(documents)
        self.offered += 1


@pytest.fixture
def texts(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> _Texts:
    """The engine that the rig stands on, with a hand on its offers."""
    texts = _Texts(rig)
    monkeypatch.setattr(rig.texts, "put_if_newer", texts.put_if_newer)
    return texts


@pytest.mark.parametrize("failing", [EngineUnavailable("texts", "it is switched off"), RuntimeError("a bug")], ids=["down", "bug"])
async def test_an_index_that_fails_keeps_no_memory_from_being_stored(rig: MemoryRig, texts: _Texts, failing: Exception) -> None:
    """D-51: the record is kept, and its job does it."""
    texts.failing = failing
    memory = await rig.remember()
    await _changed(rig, memory, "A crane nests here.")
    before = await _searched(rig, "crane")
    await rig.run_jobs()

    assert (before, await _searched(rig, "crane")) == ([], ["A crane nests here."])


async def test_an_index_that_hangs_delays_an_answer_by_a_moment_only(rig: MemoryRig, texts: _Texts) -> None:
    """D-51: no caller waits for it; the words are searchable when it continues."""
    texts.gate.clear()
    memory = await asyncio.wait_for(rig.remember(), timeout=30)
    before = await _searched(rig, "heron")
    texts.gate.set()
    await rig.run_jobs()

    assert (before, await _searched(rig, "heron")) == ([], [memory.content])


async def test_words_that_come_after_a_deletion_are_taken_out_again(rig: MemoryRig, texts: _Texts) -> None:
    """Spec 3.4: another process may delete, and clean up, what ours is still putting there."""
    texts.gate.clear()
    remembering = asyncio.create_task(rig.remember())
    await eventually(lambda: rig.jobs.count_pending(EMBED_JOB, 1))
    (stored,) = [event for event in rig.events if isinstance(event, MemoryStored)]
    await rig.services.records.delete(make_caller(), stored.memory_id)
    await rig.run_jobs()
    texts.gate.set()
    await remembering

    assert await _indexed_words(rig, "heron") == 0


async def test_words_that_come_long_after_a_deletion_are_taken_out_by_themselves(rig: MemoryRig, texts: _Texts) -> None:
    """Spec 3.4: also after the caller has gone."""
    texts.gate.clear()
    memory = await rig.remember()
    await rig.services.records.delete(make_caller(), memory.id)
    await rig.run_jobs()
    texts.gate.set()

    await eventually(lambda: texts.offered)
    await eventually(partial(_holds_nothing, rig, "heron"))


async def test_words_of_who_gave_up_while_it_was_refused_are_taken_out(rig: MemoryRig, texts: _Texts) -> None:
    """D-46: the failed write was never acknowledged."""
    texts.gate.clear()
    remembering = asyncio.create_task(rig.remember("a heron that replaces nothing", supersedes_id="mem_unknown"))
    await eventually(lambda: texts.asked)
    remembering.cancel()
    with pytest.raises((asyncio.CancelledError, ValidationFailed)):
        await remembering
    texts.gate.set()

    await eventually(lambda: texts.offered)
    await eventually(partial(_holds_nothing, rig, "heron"))


async def test_words_of_a_change_that_come_late_replace_no_newer_ones(rig: MemoryRig, texts: _Texts) -> None:
    """D-45: the newer content stays, in any order of writing."""
    memory = await rig.remember()
    texts.gate.clear()
    first = asyncio.create_task(_changed(rig, memory, "A crane nests here."))
    await eventually(partial(_says, rig, memory, "A crane nests here."))
    held, texts.gate = texts.gate, asyncio.Event()
    texts.gate.set()
    await _changed(rig, memory, "A stork nests here.")
    await rig.run_jobs()
    held.set()
    await first

    assert (await _searched(rig, "stork"), await _searched(rig, "crane")) == (["A stork nests here."], [])
