"""brain:prune (spec 4.4, D-47, D-52)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.events import MemoryArchived, MemoryDeleted
from rookery.memory.batch_runs import RunItem, RunObserver
from rookery.memory.maintenance.pruning import PruneRequest
from rookery.memory.models import Memory, MemoryScope, RecallRequest
from tests.memory.makers import MemoryRig, make_caller

NOTHING = PruneRequest(workspace_id=1)


async def _prune(rig: MemoryRig, wanted: PruneRequest) -> tuple[dict[str, int], list[RunItem]]:
    items = list[RunItem]()
    report = await rig.services.maintenance.pruning.run(
        wanted, observer=RunObserver(on_item=items.append, on_progress=lambda done, total: None)
    )
    return dict(report.counts), items


async def _archived(rig: MemoryRig, *memories: Memory) -> list[bool]:
    return [(await rig.reload(memory)).archived_at is not None for memory in memories]


async def test_any_criterion_is_enough_and_a_restore_brings_back(rig: MemoryRig) -> None:
    """D-52: criteria are OR; archives; spec 3.4: archived memories are out of recall and kept."""
    low = await rig.remember("low heron", confidence=0.1)
    old = await rig.remember("old heron", type="observation")
    timeless = await rig.remember("timeless heron", type="convention")
    rig.clock.advance(days=90)
    young = await rig.remember("young heron")
    await rig.run_jobs()

    counts, items = await _prune(rig, replace(NOTHING, min_confidence=0.2, min_effective_confidence=0.15))
    await rig.run_jobs()
    found = await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode="hybrid"))

    assert counts == {"archived": 2, "candidates": 0}
    assert {item.id: item.why for item in items} == {
        low.id: "confidence 0.10 is under 0.20",
        old.id: "effective confidence 0.10 is under 0.15",
    }
    assert await _archived(rig, low, old, timeless, young) == [True, True, False, False]
    assert {hit.memory.id for hit in found.hits} == {timeless.id, young.id}
    assert {event.memory_id for event in rig.events if isinstance(event, MemoryArchived)} == {low.id, old.id}
    await rig.services.records.restore(make_caller(), low.id)
    assert await _archived(rig, low) == [False]


async def test_what_is_exactly_at_a_threshold_stays(rig: MemoryRig) -> None:
    """Spec 4.4: a minimum is what still is enough."""
    await rig.remember("heron", confidence=0.3)

    assert (await _prune(rig, replace(NOTHING, min_confidence=0.3)))[0]["archived"] == 0


async def test_what_has_expired_or_is_archived_is_no_business_of_prune(rig: MemoryRig) -> None:
    """D-43: archived and expired memories never count; they have their own end."""
    await rig.remember("heron", confidence=0.1, expires_in_h=1)
    archived = await rig.remember("heron", confidence=0.2)
    await rig.services.records.archive(make_caller(), archived.id)
    kept = await rig.remember("heron", confidence=0.15)
    rig.clock.advance(hours=2)

    report = await rig.services.maintenance.pruning.run(replace(NOTHING, min_confidence=0.12, deduplicate=True))
    assert (report.total, report.counts["archived"], await _archived(rig, kept)) == (1, 0, [False])


async def test_of_duplicates_the_most_trusted_stays(rig: MemoryRig) -> None:
    """Spec 4.4: --deduplicate keeps the highest confidence; D-40: the same content in the same space; ties: the oldest stays."""
    first = await rig.remember("heron", confidence=0.5)
    best = await rig.remember("heron", confidence=0.9)
    later = await rig.remember("heron", confidence=0.9)
    elsewhere = [
        await rig.remember("heron", project="api"),
        await rig.remember("heron", memory_scope=MemoryScope.SHARED),
        await rig.remember("Heron"),
        await rig.remember("heron", make_caller(workspace_id=2)),
    ]

    counts, items = await _prune(rig, replace(NOTHING, deduplicate=True))

    assert counts["archived"] == 2
    assert {item.id: item.why for item in items} == {first.id: f"a duplicate of {best.id}", later.id: f"a duplicate of {best.id}"}
    assert await _archived(rig, first, best, later, *elsewhere) == [True, False, True, False, False, False, False]


async def test_a_duplicate_stays_when_the_better_one_goes_by_another_criterion(rig: MemoryRig) -> None:
    """D-52: OR must not take all of a text: the best that no other criterion takes is kept."""
    better = await rig.remember("heron", confidence=0.9, type="observation")
    rig.clock.advance(days=120)
    fresh = await rig.remember("heron", confidence=0.8, type="observation")
    wanted = replace(NOTHING, deduplicate=True, min_effective_confidence=0.3)

    told = (await _prune(rig, replace(wanted, dry_run=True)))[1]
    done = (await _prune(rig, wanted))[1]

    assert told == done
    assert await _archived(rig, better, fresh) == [True, False]


async def test_duplicates_stay_of_which_the_better_one_leaves_meanwhile(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue: safe beside a server: of each text one stays, and texts that are judged together go each by its own."""
    pairs = [(await rig.remember(text, confidence=0.9), await rig.remember(text, confidence=0.8)) for text in ("heron", "crane", "stork")]
    write, first = rig.db.write, [True]

    async def archive_one_first(work: Callable[[Tx], object]) -> object:
        if first:
            first.clear()
            await rig.services.records.archive(make_caller(), pairs[1][0].id)
        return await write(work)

    monkeypatch.setattr(rig.db, "write", archive_one_first)
    counts, _ = await _prune(rig, replace(NOTHING, deduplicate=True))

    assert counts["archived"] == 2
    assert [await _archived(rig, *pair) for pair in pairs] == [[False, True], [True, False], [False, True]]


async def test_what_nobody_ever_asked_for_is_named_and_pruned_only_on_request(rig: MemoryRig) -> None:
    """D-47: never returned by any recall for 180 days and effective under 0.3: a candidate that prune names."""
    forgotten = await rig.remember("crane")
    recalled = await rig.remember("heron")
    trusted = await rig.remember("stork", type="convention")
    await rig.run_jobs()
    rig.clock.advance(days=100)
    await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode="keyword"))
    await rig.services.recall_buffer.flush()
    rig.clock.advance(days=90)

    counts, items = await _prune(rig, replace(NOTHING, min_confidence=0.0))
    assert (counts, [(item.id, item.action) for item in items]) == ({"archived": 0, "candidates": 1}, [(forgotten.id, "candidate")])
    assert items[0].why == "not returned by any recall for 190 days, effective confidence 0.01"
    counts, items = await _prune(rig, replace(NOTHING, unused=True))
    assert counts == {"archived": 1, "candidates": 0}
    assert await _archived(rig, forgotten, recalled, trusted) == [True, False, False]


async def test_delete_leaves_nothing(rig: MemoryRig) -> None:
    """D-52: --delete deletes, from every store."""
    memory = await rig.remember("heron", confidence=0.1)
    await rig.run_jobs()
    counts, items = await _prune(rig, replace(NOTHING, min_confidence=0.2, delete=True))
    await rig.run_jobs()

    assert (counts, items[0].action) == ({"deleted": 1, "candidates": 0}, "delete")
    with pytest.raises(NotFound):
        await rig.reload(memory)
    assert await rig.vectors.count(1) == 0
    assert [event.memory_id for event in rig.events if isinstance(event, MemoryDeleted)] == [memory.id]


async def test_a_dry_run_tells_what_a_run_then_does(rig: MemoryRig) -> None:
    """Issue: ids and why; it changes nothing; more than one batch."""
    stored = [await rig.remember(f"heron {number % 100}", confidence=(number % 10) / 10) for number in range(200)]
    wanted = replace(NOTHING, min_confidence=0.35, deduplicate=True)

    told = await _prune(rig, replace(wanted, dry_run=True))
    assert not any(await _archived(rig, *stored))
    assert await _prune(rig, wanted) == told
    # 60 texts have confidence 0.4 and more, each is there twice.
    assert told[0]["archived"] == 200 - 60
    assert (await _prune(rig, wanted))[0]["archived"] == 0
