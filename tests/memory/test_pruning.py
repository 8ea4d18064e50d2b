"""brain:prune."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rookery.kernel.errors import NotFound
from rookery.memory.batch_runs import RunItem, RunObserver
from rookery.memory.events import MemoryArchived, MemoryDeleted
from rookery.memory.maintenance.pruning import PruneRequest
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.recall_models import RecallRequest
from tests.memory.makers import MemoryRig, make_caller

NO_CRITERIA = PruneRequest(workspace_id=1)


async def _prune(rig: MemoryRig, request: PruneRequest) -> tuple[dict[str, int], list[RunItem]]:
    items = list[RunItem]()
    report = await rig.services.maintenance.pruning.run(
        request, observer=RunObserver(on_item=items.append, on_progress=lambda done, total: None)
    )
    return dict(report.counts), items


async def _are_archived(rig: MemoryRig, *memories: Memory) -> list[bool]:
    return [(await rig.reload(memory)).archived_at is not None for memory in memories]


async def test_memories_that_match_any_criterion_are_archived_and_can_be_restored(rig: MemoryRig) -> None:
    """Criteria are combined with OR; archived memories are stored but not recalled."""
    low = await rig.remember("low heron", confidence=0.1)
    old = await rig.remember("old heron", type="observation")
    timeless = await rig.remember("timeless heron", type="convention")
    rig.clock.advance(days=90)
    recent = await rig.remember("young heron")
    await rig.run_jobs()

    counts, items = await _prune(rig, replace(NO_CRITERIA, min_confidence=0.2, min_effective_confidence=0.15))
    await rig.run_jobs()
    recall = await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode="hybrid"))

    assert counts == {"archived": 2, "candidates": 0}
    assert {item.id: item.why for item in items} == {
        low.id: "confidence 0.10 is under 0.20",
        old.id: "effective confidence 0.10 is under 0.15",
    }
    assert await _are_archived(rig, low, old, timeless, recent) == [True, True, False, False]
    assert {hit.memory.id for hit in recall.hits} == {timeless.id, recent.id}
    assert {event.memory_id for event in rig.events if isinstance(event, MemoryArchived)} == {low.id, old.id}
    await rig.services.records.restore(make_caller(), low.id)
    assert await _are_archived(rig, low) == [False]


async def test_a_memory_exactly_at_the_threshold_stays(rig: MemoryRig) -> None:
    """The minimum itself is high enough."""
    await rig.remember("heron", confidence=0.3)

    assert (await _prune(rig, replace(NO_CRITERIA, min_confidence=0.3)))[0]["archived"] == 0


async def test_prune_ignores_expired_and_archived_memories(rig: MemoryRig) -> None:
    """They are neither counted nor archived, and no duplicates of live memories."""
    await rig.remember("heron", confidence=0.1, expires_in=1)
    archived = await rig.remember("heron", confidence=0.2)
    await rig.services.records.archive(make_caller(), archived.id)
    remaining = await rig.remember("heron", confidence=0.15)
    rig.clock.advance(hours=2)

    report = await rig.services.maintenance.pruning.run(replace(NO_CRITERIA, min_confidence=0.12, deduplicate=True))
    assert (report.total, report.counts["archived"], await _are_archived(rig, remaining)) == (1, 0, [False])


async def test_the_duplicate_with_the_highest_confidence_stays(rig: MemoryRig) -> None:
    """Duplicates have the same content in the same space; of equal confidences the oldest stays."""
    first = await rig.remember("heron", confidence=0.5)
    best = await rig.remember("heron", confidence=0.9)
    tied = await rig.remember("heron", confidence=0.9)
    in_other_spaces = [
        await rig.remember("heron", project="api"),
        await rig.remember("heron", memory_scope=MemoryScope.SHARED),
        await rig.remember("Heron"),
        await rig.remember("heron", make_caller(workspace_id=2)),
    ]

    counts, items = await _prune(rig, replace(NO_CRITERIA, deduplicate=True))

    assert counts["archived"] == 2
    assert {item.id: item.why for item in items} == {first.id: f"a duplicate of {best.id}", tied.id: f"a duplicate of {best.id}"}
    assert await _are_archived(rig, first, best, tied, *in_other_spaces) == [True, False, True, False, False, False, False]


async def test_a_duplicate_stays_if_another_criterion_archives_the_better_one(rig: MemoryRig) -> None:
    """The best duplicate that no other criterion matches stays."""
    better = await rig.remember("heron", confidence=0.9, type="observation")
    rig.clock.advance(days=120)
    recent = await rig.remember("heron", confidence=0.8, type="observation")
    request = replace(NO_CRITERIA, deduplicate=True, min_effective_confidence=0.3)

    planned_items = (await _prune(rig, replace(request, dry_run=True)))[1]
    items = (await _prune(rig, request))[1]

    assert planned_items == items
    assert await _are_archived(rig, better, recent) == [True, False]


async def test_equal_texts_about_different_users_are_no_duplicates(rig: MemoryRig) -> None:
    """Metadata and tags such as `user:kim` say whom a memory is about; the id from another program does not."""
    of_kim = await rig.remember("dark mode", confidence=0.9, metadata={"user_id": "kim", "mem0_id": "a1"})
    copy = await rig.remember("dark mode", confidence=0.8, metadata={"user_id": "kim", "mem0_id": "b2"})
    of_ana = await rig.remember("dark mode", confidence=0.7, metadata={"user_id": "ana"})
    tagged = [await rig.remember("light mode", tags=(tag, "display")) for tag in ("user:kim", "user:ana")]
    request = replace(NO_CRITERIA, deduplicate=True)

    planned = await _prune(rig, replace(request, dry_run=True))
    counts, items = await _prune(rig, request)

    assert (counts["archived"], items) == (1, planned[1])
    assert await _are_archived(rig, of_kim, copy, of_ana, *tagged) == [False, True, False, False, False]


async def test_a_duplicate_stays_if_the_better_one_is_archived_during_the_run(rig: MemoryRig) -> None:
    """One memory of each text stays, also when a batch has several texts."""
    pairs = [(await rig.remember(text, confidence=0.9), await rig.remember(text, confidence=0.8)) for text in ("heron", "crane", "stork")]

    async def archive_the_better_one() -> None:
        rig.hooks.before_write = None
        await rig.services.records.archive(make_caller(), pairs[1][0].id)

    rig.hooks.before_write = archive_the_better_one
    counts, _ = await _prune(rig, replace(NO_CRITERIA, deduplicate=True))

    assert counts["archived"] == 2
    assert [await _are_archived(rig, *pair) for pair in pairs] == [[False, True], [True, False], [False, True]]


async def test_never_recalled_memories_are_listed_and_pruned_only_on_request(rig: MemoryRig) -> None:
    """A memory without a recall for 180 days and an effective confidence under 0.3 is a candidate."""
    never_recalled = await rig.remember("crane")
    recalled = await rig.remember("heron")
    trusted = await rig.remember("stork", type="convention")
    await rig.run_jobs()
    rig.clock.advance(days=100)
    await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode="keyword"))
    await rig.services.recall_buffer.flush()
    rig.clock.advance(days=90)

    counts, items = await _prune(rig, replace(NO_CRITERIA, min_confidence=0.0))
    assert (counts, [(item.id, item.action) for item in items]) == ({"archived": 0, "candidates": 1}, [(never_recalled.id, "candidate")])
    assert items[0].why == "not returned by any recall for 190 days, effective confidence 0.01"
    counts, items = await _prune(rig, replace(NO_CRITERIA, unused=True))
    assert counts == {"archived": 1, "candidates": 0}
    assert await _are_archived(rig, never_recalled, recalled, trusted) == [True, False, False]


async def test_delete_removes_memories_from_every_store(rig: MemoryRig) -> None:
    """--delete deletes instead of archiving."""
    memory = await rig.remember("heron", confidence=0.1)
    await rig.run_jobs()
    counts, items = await _prune(rig, replace(NO_CRITERIA, min_confidence=0.2, delete=True))
    await rig.run_jobs()

    assert (counts, items[0].action) == ({"deleted": 1, "candidates": 0}, "delete")
    with pytest.raises(NotFound):
        await rig.reload(memory)
    assert await rig.vectors.count(1) == 0
    assert [event.memory_id for event in rig.events if isinstance(event, MemoryDeleted)] == [memory.id]


async def test_a_dry_run_lists_what_a_run_then_does(rig: MemoryRig) -> None:
    """A dry run lists ids and reasons and changes nothing, also over several batches."""
    stored = [await rig.remember(f"heron {number % 100}", confidence=(number % 10) / 10) for number in range(200)]
    request = replace(NO_CRITERIA, min_confidence=0.35, deduplicate=True)

    planned = await _prune(rig, replace(request, dry_run=True))
    assert not any(await _are_archived(rig, *stored))
    assert await _prune(rig, request) == planned
    # 60 texts have confidence 0.4 or more. Each text is stored twice.
    assert planned[0]["archived"] == 200 - 60
    assert (await _prune(rig, request))[0]["archived"] == 0
