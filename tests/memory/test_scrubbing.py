"""brain:clean on stored memories (spec 4.4, D-45, D-52)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rookery.kernel.db import Tx
from rookery.memory.batch_runs import RunItem, RunObserver
from rookery.memory.maintenance.reindexing import ReindexRequest as Reindex
from rookery.memory.maintenance.scrubbing import CleanRequest
from rookery.memory.models import MemoryChange, MemoryState, RecallRequest, get_state
from tests.memory.makers import MODEL, MemoryRig, make_caller

PRIVATE = "Ask Kim at kim@example.org about the heron."
BOTH = CleanRequest(workspace_id=1, strip_pii=True, normalise=True)


def listening(into: list[RunItem]) -> RunObserver:
    """Return a watch that keeps what was done to which memory."""
    return RunObserver(on_item=into.append, on_progress=lambda done, total: None)


async def test_stored_texts_are_cleaned_and_a_stale_reindex_brings_it_to_the_indexes(rig: MemoryRig) -> None:
    """Spec 4.4: cleans stored text; a later stale re-index propagates it. D-45: its age and confidence stay."""
    memory = await rig.remember(PRIVATE, tags=("team", "kim@example.org"), source="mail:kim@example.org")
    clean = await rig.remember("The heron nests.")
    await rig.run_jobs()
    rig.clock.advance(days=3)

    report = await rig.services.maintenance.scrubbing.run(BOTH)
    cleaned = await rig.reload(memory)
    rig.clock.advance(days=1)
    reindexed = await rig.services.reindexer.reindex(Reindex(is_stale=True))
    found = await rig.services.recall.find(make_caller(), RecallRequest(query="example", mode="keyword"))

    assert (report.total, report.successes, report.counts) == (2, 2, {"changed": 1, "email": 3})
    assert (cleaned.content, cleaned.tags) == ("Ask Kim at [email] about the heron.", ("team", "[email]"))
    assert cleaned.source == "mail:[email]"
    assert (cleaned.content_at, cleaned.confidence) == (memory.content_at, memory.confidence)
    assert get_state(cleaned, model=MODEL) is MemoryState.STALE
    assert await rig.reload(clean) == replace(clean, indexed_at=(await rig.reload(clean)).indexed_at, indexed_model=MODEL)
    assert (reindexed.total, found.hits) == (1, ())
    assert get_state(await rig.reload(memory), model=MODEL) is MemoryState.INDEXED


async def test_nothing_is_cleaned_twice(rig: MemoryRig) -> None:
    """Issue: killed in the middle and run again, nothing is done twice."""
    memory = await rig.remember(f"{PRIVATE}  \r\nTel. +49 30 901820")
    await rig.services.maintenance.scrubbing.run(BOTH)
    once = await rig.reload(memory)
    again = await rig.services.maintenance.scrubbing.run(BOTH)

    assert (again.counts, await rig.reload(memory)) == ({"changed": 0}, once)


async def test_archived_memories_are_cleaned_and_other_workspaces_are_not(rig: MemoryRig) -> None:
    """Spec 4.4: stored text; D-52: --workspace."""
    archived = await rig.remember(PRIVATE)
    await rig.services.records.archive(make_caller(), archived.id)
    foreign = await rig.remember(PRIVATE, make_caller(workspace_id=2))

    await rig.services.maintenance.scrubbing.run(BOTH)

    assert "[email]" in (await rig.reload(archived)).content
    assert (await rig.reload(foreign)).content == PRIVATE


async def test_a_dry_run_tells_what_a_run_then_does(rig: MemoryRig) -> None:
    """Issue: --dry-run tells exactly what would happen, ids and why, and changes nothing."""
    stored = [await rig.remember(text) for text in (PRIVATE, "heron", "two  herons ", "203.0.113.7 and 203.0.113.8")]
    told, done = list[RunItem](), list[RunItem]()

    dry = await rig.services.maintenance.scrubbing.run(replace(BOTH, dry_run=True), observer=listening(told))
    untouched = [(await rig.reload(each)).content for each in stored]
    real = await rig.services.maintenance.scrubbing.run(BOTH, observer=listening(done))

    assert told == done
    assert [(item.id, item.why) for item in told] == [(stored[0].id, "email"), (stored[2].id, "white space"), (stored[3].id, "ip × 2")]
    assert (dry.counts, dry.total, untouched) == (real.counts, real.total, [each.content for each in stored])


async def test_what_somebody_wrote_meanwhile_is_not_undone(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue: safe beside a server: a memory is cleaned as it is at that moment, not as it was read."""
    memory = await rig.remember(PRIVATE)
    write = rig.db.write
    change = MemoryChange(changed_fields=frozenset({"content"}), content="Ask Lee at lee@example.org instead.")

    async def write_later(work: Callable[[Tx], object]) -> object:
        monkeypatch.setattr(rig.db, "write", write)
        await rig.services.records.change(make_caller(), memory.id, change)
        return await write(work)

    monkeypatch.setattr(rig.db, "write", write_later)
    await rig.services.maintenance.scrubbing.run(BOTH)

    assert (await rig.reload(memory)).content == "Ask Lee at [email] instead."


async def test_a_run_that_was_ended_goes_on_and_another_one_begins_anew(rig: MemoryRig) -> None:
    """Issue: a cursor is kept where it saves time; only --resume uses it, and only for the same options."""
    for number in range(130):
        await rig.remember(f"{PRIVATE} {number}")
    seen = list[tuple[int, int]]()

    def end(done: int, total: int) -> None:
        raise KeyboardInterrupt

    watch = RunObserver(on_item=lambda item: None, on_progress=end)
    try:
        await rig.services.maintenance.scrubbing.run(BOTH, observer=watch)
    except KeyboardInterrupt:
        seen.append((0, 0))
    watching = RunObserver(on_item=lambda item: None, on_progress=lambda done, total: seen.append((done, total)))
    rest = await rig.services.maintenance.scrubbing.run(replace(BOTH, resume=True), observer=watching)
    other = await rig.services.maintenance.scrubbing.run(replace(BOTH, resume=True, normalise=False))

    assert seen == [(0, 0), (128, 130), (130, 130)]
    assert (rest.total, rest.successes, rest.counts["changed"]) == (130, 130, 130 - 64)
    assert (other.total, other.counts["changed"]) == (130, 0)
