"""brain:forget (D-04, D-41, spec 3.4)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import typer
from sqlalchemy import func, select
from typer.testing import CliRunner

from rookery.cli import add_commands
from rookery.kernel.db import Tx, open_database
from rookery.kernel.errors import NotFound
from rookery.kernel.events import MemoryDeleted
from rookery.memory import merging
from rookery.memory.batch_runs import RunItem, RunObserver
from rookery.memory.maintenance import consolidation
from rookery.memory.maintenance.forgetting import ForgetRequest
from rookery.memory.maintenance.operations import MaintenanceServices
from rookery.memory.models import Memory, MemoryChange, MemoryScope, RecallRequest, Tombstone
from rookery.memory.store import merges as merge_store
from rookery.memory.store import records as store
from rookery.memory.store.tables import memories, memory_tags, merges, recall_feedback
from tests.conftest import FakeClock
from tests.memory.makers import MemoryRig, StemEmbedder, build_rig, make_caller

BASE = "Herons nest on tall trees near quiet lakes where many small fish swim all year between reeds and stones under willows"
MORE = f"{BASE}. Kim saw them in March."


async def _forget(rig: MemoryRig, *ids: str, dry_run: bool = False, **criteria: str) -> tuple[dict[str, int], list[RunItem]]:
    items = list[RunItem]()
    wanted = replace(ForgetRequest(workspace_id=1, ids=ids, dry_run=dry_run), **criteria)
    report = await rig.services.maintenance.forgetting.run(
        wanted, observer=RunObserver(on_item=items.append, on_progress=lambda done, total: None)
    )
    assert (report.failures, report.stopped) == (0, None)
    return dict(report.counts), items


async def _there(rig: MemoryRig, *found: Memory) -> list[bool]:
    there = list[bool]()
    for each in found:
        try:
            await rig.reload(each)
        except NotFound:
            there.append(False)
        else:
            there.append(True)
    return there


async def _rows(rig: MemoryRig, memory_id: str) -> int:
    """Return how many rows have anything of the memory but its place in the lineage."""
    statements = [select(func.count().label("n")).select_from(memories).where(memories.c.id == memory_id)]
    statements += [
        select(func.count().label("n")).select_from(each).where(each.c.memory_id == memory_id) for each in (memory_tags, recall_feedback)
    ]
    statements.append(select(func.count().label("n")).select_from(merges).where(merges.c.memory_id == memory_id, merges.c.length > 0))
    rows = [await rig.db.read(lambda tx, asked=statement: tx.fetch_one(asked)) for statement in statements]
    return sum(row.integer("n") for row in rows if row is not None)


async def test_all_of_an_agent_is_forgotten_in_whatever_state(rig: MemoryRig) -> None:
    """D-04: --agent takes every scope; spec 3.4: from all stores, archived and expired ones too; another workspace's stay."""
    own = await rig.remember("heron of kim", agent_id="kim", memory_scope=MemoryScope.AGENT)
    written = await rig.remember("heron by kim", agent_id="kim")
    archived = await rig.remember("old heron of kim", agent_id="kim")
    expired = await rig.remember("brief heron of kim", agent_id="kim", expires_in_h=1)
    kept = await rig.remember("heron of lee", agent_id="lee")
    foreign = await rig.remember("heron of kim", make_caller(workspace_id=2), agent_id="kim")
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), archived.id)
    rig.clock.advance(hours=2)

    dry, would = await _forget(rig, agent_id="kim", dry_run=True)
    assert (dry, len(would), await _rows(rig, own.id)) == ({"deleted": 4}, 4, 1)
    counts, items = await _forget(rig, agent_id="kim")

    gone = {own.id, written.id, archived.id, expired.id}
    assert (counts, {item.id for item in items}) == ({"deleted": 4}, gone)
    assert [await _rows(rig, each) for each in sorted(gone)] == [0, 0, 0, 0]
    assert await _there(rig, kept, foreign) == [True, True]
    # At once, before any job has run; the jobs then find nothing to do.
    assert (await rig.vectors.count(1), await rig.vectors.count(2)) == (1, 1)
    found = await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode="hybrid"))
    assert [hit.memory.id for hit in found.hits] == [kept.id]
    assert {event.memory_id for event in rig.events if isinstance(event, MemoryDeleted)} == gone
    assert (await _forget(rig, agent_id="kim"))[0] == {"deleted": 0}
    await rig.run_jobs()
    assert await rig.vectors.count(1) == 1


async def test_criteria_narrow_each_other(rig: MemoryRig) -> None:
    """D-04: what is given must all be true: a session of one project is not all of that project."""
    both = await rig.remember("heron", session_id="s1", project="web", memory_scope=MemoryScope.SESSION)
    one = await rig.remember("heron two", session_id="s1", project="api", memory_scope=MemoryScope.SESSION)
    other = await rig.remember("heron three", project="web")

    assert (await _forget(rig, session_id="s1", project="web"))[0] == {"deleted": 1}
    assert await _there(rig, both, one, other) == [False, True, True]
    assert (await _forget(rig, org="acme"))[0] == {"deleted": 2}


async def test_by_id_and_twice_is_as_once(rig: MemoryRig) -> None:
    """D-04: ids that are not there are counted, not refused; a tombstone without content keeps the line of descent (D-41)."""
    first = await rig.remember("The heron nests in May.", tags=("spring",))
    second = await rig.remember("The heron nests in April.", supersedes_id=first.id)
    await rig.run_jobs()

    counts, _ = await _forget(rig, second.id, second.id, first.id)
    again, _ = await _forget(rig, second.id)

    assert (counts, again) == ({"deleted": 1, "absent": 1}, {"deleted": 0, "absent": 1})
    chain = await rig.services.records.history(make_caller(), second.id)
    assert [(type(each), each.id) for each in chain] == [(Tombstone, first.id), (Tombstone, second.id)]


async def test_what_was_merged_is_taken_out_of_where_it_went(rig: MemoryRig) -> None:
    """D-52, spec 3.4: the words of a memory that consolidation merged into another go with it, where they still are as they came."""
    primary = await rig.remember(BASE, confidence=0.9)
    merged = await rig.remember(MORE, confidence=0.5, agent_id=None, tags=("march",))
    await rig.run_jobs()
    await rig.services.maintenance.consolidation.run(consolidation.ConsolidationRequest(workspace_id=1, threshold=0.7))
    await rig.run_jobs()
    assert "Kim" in (await rig.reload(primary)).content

    _, items = await _forget(rig, merged.id)
    await rig.run_jobs()
    after = await rig.reload(primary)

    assert (after.content, after.tags) == (BASE, ())
    assert (await _rows(rig, merged.id), items[0].why) == (0, "selected by its id")


@pytest.mark.parametrize("how", ["forget", "delete"])
async def test_what_was_merged_twice_is_taken_out_of_both(rig: MemoryRig, how: str) -> None:
    """D-41: a memory that took words in and was merged itself brought them along; what else it brought stays."""
    top = await rig.remember(BASE, confidence=0.9)
    middle = await rig.remember(f"{BASE}. Lee saw them in May.", confidence=0.7)
    merged = await rig.remember(MORE, confidence=0.5, tags=("march",))

    def plan(tx: Tx) -> None:
        second, rows = merging.merge_memories(middle, [merged], run="1")
        store.update_memory(tx, middle, replace(second, archived_at=second.created_at))
        first, later = merging.merge_memories(top, [second], run="2")
        store.update_memory(tx, top, first)
        merge_store.add(tx, [replace(each, is_done=True) for each in (*rows, *later)])

    await rig.db.write(plan)
    assert {"Kim", "Lee"} <= set((await rig.reload(top)).content.split())

    if how == "forget":
        await _forget(rig, merged.id)
    else:
        await rig.services.records.delete(make_caller(), merged.id)
    left = [await rig.reload(each) for each in (top, middle)]
    await rig.services.records.restore(make_caller(), middle.id)

    assert [("Kim" in each.content, "Lee" in each.content, each.tags) for each in left] == [(False, True, ())] * 2
    assert (await rig.reload(top)).content == BASE


async def test_words_that_were_changed_after_a_merge_are_pointed_at(rig: MemoryRig) -> None:
    """D-52: ambiguous matches are not changed; the report names the memory to check."""
    primary = await rig.remember(BASE, confidence=0.9)
    merged = await rig.remember(MORE, confidence=0.5)
    await rig.run_jobs()
    await rig.services.maintenance.consolidation.run(consolidation.ConsolidationRequest(workspace_id=1, threshold=0.7))
    await rig.services.records.change(
        make_caller(), primary.id, MemoryChange(changed_fields=frozenset({"content"}), content=f"{BASE}. KIM SAW THEM.")
    )

    _, items = await _forget(rig, merged.id)

    assert primary.id in items[0].why
    assert (await rig.reload(primary)).content.endswith("KIM SAW THEM.")


@dataclass
class _OpenPlatform:
    maintenance: MaintenanceServices

    async def workspaces(self) -> dict[int, str]:
        """Return the only one."""
        return {1: "main"}


@dataclass
class _Platform:
    folder: Path

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[_OpenPlatform]:
        """Open memory on the folder, as another process than the server would."""
        db = open_database("embedded:", data_dir=self.folder)
        rig = build_rig(db, self.folder, FakeClock(), embedder=StemEmbedder())
        if await rig.vectors.count(1) == 0:
            await rig.remember("a heron", agent_id="kim")
        try:
            yield _OpenPlatform(rig.services.maintenance)
        finally:
            await rig.close()
            await db.close()


def _type(opens: _Platform, *words: str) -> tuple[int, str]:
    app = typer.Typer()
    add_commands(app, "brain", "export")
    done = CliRunner().invoke(app, ["brain", "forget", *words], obj=opens)
    return done.exit_code, done.stdout


def test_the_command_asks_and_tells(data_dir: Path) -> None:
    """D-04: without a criterion, and off a terminal without --yes, it ends with 2; --dry-run names each memory, --json is one document."""
    opens = _Platform(data_dir)

    assert _type(opens)[0] == 2
    assert _type(opens, "--agent", "kim")[0] == 2
    code, said = _type(opens, "--agent", "kim", "--dry-run", "--json")
    dry = json.loads(said)
    assert (code, [item["why"] for item in dry["items"]], dry["deleted"], dry["dry_run"]) == (0, ["agent kim"], 1, True)
    code, said = _type(opens, "--agent", "kim", "--yes", "--json")
    assert (code, json.loads(said)["deleted"] >= 1) == (0, True)
