"""brain:clean on stored memories."""

from __future__ import annotations

from dataclasses import replace

from rookery.memory.batch_runs import RunItem, RunObserver
from rookery.memory.maintenance.reindexing import ReindexRequest as Reindex
from rookery.memory.maintenance.scrubbing import CleanRequest
from rookery.memory.models import MemoryChange, MemoryState, get_state
from rookery.memory.recall_models import RecallRequest
from tests.memory.makers import MODEL, MemoryRig, make_caller

PRIVATE = "Ask Kim at kim@example.org about the heron."
BOTH = CleanRequest(workspace_id=1, strip_pii=True, normalise=True)


def observe_items(items: list[RunItem]) -> RunObserver:
    """Return an observer that appends each item to *items*."""
    return RunObserver(on_item=items.append, on_progress=lambda done, total: None)


async def test_stored_texts_are_cleaned_and_a_stale_reindex_updates_the_indexes(rig: MemoryRig) -> None:
    """Cleaning does not change the age and the confidence of a memory."""
    memory = await rig.remember(PRIVATE, tags=("team", "kim@example.org"), source="mail:kim@example.org")
    clean_memory = await rig.remember("The heron nests.")
    await rig.run_jobs()
    rig.clock.advance(days=3)

    report = await rig.services.maintenance.scrubbing.run(BOTH)
    cleaned = await rig.reload(memory)
    rig.clock.advance(days=1)
    reindex_report = await rig.services.reindexer.reindex(Reindex(is_stale=True))
    recall = await rig.services.recall.find(make_caller(), RecallRequest(query="example", mode="keyword"))

    assert (report.total, report.successes, report.counts) == (2, 2, {"changed": 1, "email": 3})
    assert (cleaned.content, cleaned.tags) == ("Ask Kim at [email] about the heron.", ("team", "[email]"))
    assert cleaned.source == "mail:[email]"
    assert (cleaned.content_at, cleaned.confidence) == (memory.content_at, memory.confidence)
    assert get_state(cleaned, model=MODEL) is MemoryState.STALE
    assert await rig.reload(clean_memory) == replace(
        clean_memory, indexed_at=(await rig.reload(clean_memory)).indexed_at, indexed_model=MODEL
    )
    assert (reindex_report.total, recall.hits) == (1, ())
    assert get_state(await rig.reload(memory), model=MODEL) is MemoryState.INDEXED


async def test_a_second_run_changes_nothing(rig: MemoryRig) -> None:
    """A run can be repeated after a kill."""
    memory = await rig.remember(f"{PRIVATE}  \r\nTel. +49 30 901820")
    await rig.services.maintenance.scrubbing.run(BOTH)
    cleaned = await rig.reload(memory)
    second_report = await rig.services.maintenance.scrubbing.run(BOTH)

    assert (second_report.counts, await rig.reload(memory)) == ({"changed": 0}, cleaned)


async def test_archived_memories_are_cleaned_and_other_workspaces_are_not(rig: MemoryRig) -> None:
    """A run is limited to its workspace."""
    archived = await rig.remember(PRIVATE)
    await rig.services.records.archive(make_caller(), archived.id)
    foreign = await rig.remember(PRIVATE, make_caller(workspace_id=2))

    await rig.services.maintenance.scrubbing.run(BOTH)

    assert "[email]" in (await rig.reload(archived)).content
    assert (await rig.reload(foreign)).content == PRIVATE


async def test_a_dry_run_lists_what_a_run_then_does(rig: MemoryRig) -> None:
    """--dry-run lists ids and reasons and changes nothing."""
    stored = [await rig.remember(text) for text in (PRIVATE, "heron", "two  herons ", "203.0.113.7 and 203.0.113.8")]
    planned_items, items = list[RunItem](), list[RunItem]()

    dry_run = await rig.services.maintenance.scrubbing.run(replace(BOTH, dry_run=True), observer=observe_items(planned_items))
    contents_after_dry_run = [(await rig.reload(memory)).content for memory in stored]
    report = await rig.services.maintenance.scrubbing.run(BOTH, observer=observe_items(items))

    assert planned_items == items
    assert [(item.id, item.why) for item in planned_items] == [
        (stored[0].id, "email"),
        (stored[2].id, "white space"),
        (stored[3].id, "ip × 2"),
    ]
    assert (dry_run.counts, dry_run.total, contents_after_dry_run) == (report.counts, report.total, [memory.content for memory in stored])


async def test_a_change_during_the_run_is_not_undone(rig: MemoryRig) -> None:
    """The run cleans the current content, not the content that it read before."""
    memory = await rig.remember(PRIVATE)
    change = MemoryChange.of(content="Ask Lee at lee@example.org instead.")

    async def change_memory() -> None:
        rig.hooks.before_write = None
        await rig.services.records.change(make_caller(), memory.id, change)

    rig.hooks.before_write = change_memory
    await rig.services.maintenance.scrubbing.run(BOTH)

    assert (await rig.reload(memory)).content == "Ask Lee at [email] instead."


async def test_an_interrupted_run_can_be_resumed_with_the_same_options(rig: MemoryRig) -> None:
    """--resume continues at the stored cursor; with other options the run starts from the beginning."""
    for number in range(130):
        await rig.remember(f"{PRIVATE} {number}")
    progress = list[tuple[int, int]]()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    interrupting_observer = RunObserver(on_item=lambda item: None, on_progress=interrupt)
    try:
        await rig.services.maintenance.scrubbing.run(BOTH, observer=interrupting_observer)
    except KeyboardInterrupt:
        progress.append((0, 0))
    observer = RunObserver(on_item=lambda item: None, on_progress=lambda done, total: progress.append((done, total)))
    resumed = await rig.services.maintenance.scrubbing.run(replace(BOTH, resume=True), observer=observer)
    other_options = await rig.services.maintenance.scrubbing.run(replace(BOTH, resume=True, normalise=False))

    assert progress == [(0, 0), (128, 130), (130, 130)]
    assert (resumed.total, resumed.successes, resumed.counts["changed"]) == (130, 130, 130 - 64)
    assert (other_options.total, other_options.counts["changed"]) == (130, 0)
