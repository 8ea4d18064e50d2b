"""brain:forget."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound
from rookery.memory import merging
from rookery.memory.batch_runs import RunItem, RunObserver
from rookery.memory.events import MemoryDeleted
from rookery.memory.maintenance import consolidation
from rookery.memory.maintenance.forgetting import ForgetRequest
from rookery.memory.models import Memory, MemoryChange, MemoryScope, Tombstone
from rookery.memory.recall_models import RecallRequest
from rookery.memory.store import records as store
from rookery.memory.store.tables import memories, memory_tags, merges, recall_feedback
from tests.memory.command_line import Platform
from tests.memory.makers import MemoryRig, make_caller

BASE = "Herons nest on tall trees near quiet lakes where many small fish swim all year between reeds and stones under willows"
MORE = f"{BASE}. Kim saw them in March."


async def _forget(rig: MemoryRig, *ids: str, dry_run: bool = False, **criteria: str) -> tuple[dict[str, int], list[RunItem]]:
    items = list[RunItem]()
    request = replace(ForgetRequest(workspace_id=1, ids=ids, dry_run=dry_run), **criteria)
    report = await rig.services.maintenance.forgetting.run(
        request, observer=RunObserver(on_item=items.append, on_progress=lambda done, total: None)
    )
    assert (report.failures, report.stopped) == (0, None)
    return dict(report.counts), items


async def _are_present(rig: MemoryRig, *remembered: Memory) -> list[bool]:
    are_present = list[bool]()
    for memory in remembered:
        try:
            await rig.reload(memory)
        except NotFound:
            are_present.append(False)
        else:
            are_present.append(True)
    return are_present


async def _count_rows(rig: MemoryRig, memory_id: str) -> int:
    """Return the number of rows with data of the memory, not counting its place in the lineage."""
    statements = [select(func.count().label("n")).select_from(memories).where(memories.c.id == memory_id)]
    statements += [
        select(func.count().label("n")).select_from(table).where(table.c.memory_id == memory_id) for table in (memory_tags, recall_feedback)
    ]
    statements.append(select(func.count().label("n")).select_from(merges).where(merges.c.memory_id == memory_id, merges.c.length > 0))
    rows = [await rig.db.read(lambda tx, query=statement: tx.fetch_one(query)) for statement in statements]
    return sum(row.integer("n") for row in rows if row is not None)


async def test_forget_by_agent_deletes_its_memories_in_every_state(rig: MemoryRig) -> None:
    """All scopes, archived and expired memories are deleted from all stores; other workspaces keep theirs."""
    private = await rig.remember("heron of kim", agent_id="kim", memory_scope=MemoryScope.AGENT)
    shared = await rig.remember("heron by kim", agent_id="kim")
    archived = await rig.remember("old heron of kim", agent_id="kim")
    expired = await rig.remember("brief heron of kim", agent_id="kim", expires_in=1)
    other_agent = await rig.remember("heron of lee", agent_id="lee")
    other_workspace = await rig.remember("heron of kim", make_caller(workspace_id=2), agent_id="kim")
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), archived.id)
    rig.clock.advance(hours=2)

    dry_counts, dry_items = await _forget(rig, agent_id="kim", dry_run=True)
    assert (dry_counts, len(dry_items), await _count_rows(rig, private.id)) == ({"deleted": 4}, 4, 1)
    counts, items = await _forget(rig, agent_id="kim")

    deleted_ids = {private.id, shared.id, archived.id, expired.id}
    assert (counts, {item.id for item in items}) == ({"deleted": 4}, deleted_ids)
    assert [await _count_rows(rig, memory_id) for memory_id in sorted(deleted_ids)] == [0, 0, 0, 0]
    assert await _are_present(rig, other_agent, other_workspace) == [True, True]
    # The indexes are empty before any job has run. The jobs then find nothing to do.
    assert (await rig.vectors.count(1), await rig.vectors.count(2)) == (1, 1)
    recall = await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode="hybrid"))
    assert [hit.memory.id for hit in recall.hits] == [other_agent.id]
    assert {event.memory_id for event in rig.events if isinstance(event, MemoryDeleted)} == deleted_ids
    assert (await _forget(rig, agent_id="kim"))[0] == {"deleted": 0}
    await rig.run_jobs()
    assert await rig.vectors.count(1) == 1


async def test_criteria_are_combined_with_and(rig: MemoryRig) -> None:
    """With a session and a project, only memories that match both are deleted."""
    both_criteria = await rig.remember("heron", session_id="s1", project="web", memory_scope=MemoryScope.SESSION)
    session_only = await rig.remember("heron two", session_id="s1", project="api", memory_scope=MemoryScope.SESSION)
    project_only = await rig.remember("heron three", project="web")

    assert (await _forget(rig, session_id="s1", project="web"))[0] == {"deleted": 1}
    assert await _are_present(rig, both_criteria, session_only, project_only) == [False, True, True]
    assert (await _forget(rig, org="acme"))[0] == {"deleted": 2}


async def test_forgetting_an_id_twice_equals_forgetting_it_once(rig: MemoryRig) -> None:
    """Missing ids are counted, not rejected; a tombstone without content keeps the lineage."""
    first = await rig.remember("The heron nests in May.", tags=("spring",))
    second = await rig.remember("The heron nests in April.", supersedes_id=first.id)
    await rig.run_jobs()

    counts, _ = await _forget(rig, second.id, second.id, first.id)
    second_counts, _ = await _forget(rig, second.id)

    assert (counts, second_counts) == ({"deleted": 1, "absent": 1}, {"deleted": 0, "absent": 1})
    history = await rig.services.records.history(make_caller(), second.id)
    assert [(type(entry), entry.id) for entry in history] == [(Tombstone, first.id), (Tombstone, second.id)]


async def test_forgetting_a_merged_memory_removes_its_text_from_the_primary(rig: MemoryRig) -> None:
    """Text that consolidation added to another memory is removed if it is unchanged."""
    primary = await rig.remember(BASE, confidence=0.9)
    merged = await rig.remember(MORE, confidence=0.5, agent_id=None, tags=("march",))
    await rig.run_jobs()
    await rig.services.maintenance.consolidation.run(consolidation.ConsolidationRequest(workspace_id=1, threshold=0.7))
    await rig.run_jobs()
    assert "Kim" in (await rig.reload(primary)).content

    _, items = await _forget(rig, merged.id)
    await rig.run_jobs()
    current = await rig.reload(primary)

    assert (current.content, current.tags) == (BASE, ())
    assert (await _count_rows(rig, merged.id), items[0].why) == (0, "selected by its id")


@pytest.mark.parametrize("method", ["forget", "delete"])
async def test_deleting_a_memory_removes_its_text_from_every_memory_it_was_merged_into(rig: MemoryRig, method: str) -> None:
    """A merged memory passes on text that was merged into it before; only the deleted text is removed."""
    top = await rig.remember(BASE, confidence=0.9)
    middle = await rig.remember(f"{BASE}. Lee saw them in May.", confidence=0.7)
    merged = await rig.remember(MORE, confidence=0.5, tags=("march",))

    def plan(tx: Tx) -> None:
        second, rows = merging.merge_memories(middle, [merged], run="1")
        store.update_memory(tx, middle, replace(second, archived_at=second.created_at))
        first, second_rows = merging.merge_memories(top, [second], run="2")
        store.update_memory(tx, top, first)
        store.add_merges(tx, [replace(merge, is_done=True) for merge in (*rows, *second_rows)])

    await rig.db.write(plan)
    assert {"Kim", "Lee"} <= set((await rig.reload(top)).content.split())

    if method == "forget":
        await _forget(rig, merged.id)
    else:
        await rig.services.records.delete(make_caller(), merged.id)
    current = [await rig.reload(memory) for memory in (top, middle)]
    await rig.services.records.restore(make_caller(), middle.id)

    assert [("Kim" in memory.content, "Lee" in memory.content, memory.tags) for memory in current] == [(False, True, ())] * 2
    assert (await rig.reload(top)).content == BASE


async def test_merged_text_that_was_changed_is_reported(rig: MemoryRig) -> None:
    """Ambiguous matches are not changed; the report names the memory to check."""
    primary = await rig.remember(BASE, confidence=0.9)
    merged = await rig.remember(MORE, confidence=0.5)
    await rig.run_jobs()
    await rig.services.maintenance.consolidation.run(consolidation.ConsolidationRequest(workspace_id=1, threshold=0.7))
    await rig.services.records.change(make_caller(), primary.id, MemoryChange.of(content=f"{BASE}. KIM SAW THEM."))

    _, items = await _forget(rig, merged.id)

    assert primary.id in items[0].why
    assert (await rig.reload(primary)).content.endswith("KIM SAW THEM.")


async def _remember_one(platform: Platform) -> None:
    async with platform.rig() as rig:
        await rig.remember("a heron", agent_id="kim")


def _run_command(platform: Platform, *words: str) -> tuple[int, str]:
    result = platform.run("brain", "forget", *words)
    return result.exit_code, result.stdout


def test_the_command_needs_a_criterion_and_a_confirmation(data_dir: Path) -> None:
    """Without a criterion, or without --yes off a terminal, it exits with 2; --json prints one document."""
    platform = Platform(data_dir)
    asyncio.run(_remember_one(platform))

    assert _run_command(platform)[0] == 2
    assert _run_command(platform, "--agent", "kim")[0] == 2
    code, output = _run_command(platform, "--agent", "kim", "--dry-run", "--json")
    dry_run = json.loads(output)
    assert (code, [item["why"] for item in dry_run["items"]], dry_run["deleted"], dry_run["dry_run"]) == (0, ["agent kim"], 1, True)
    code, output = _run_command(platform, "--agent", "kim", "--yes", "--json")
    assert (code, json.loads(output)["deleted"] >= 1) == (0, True)
