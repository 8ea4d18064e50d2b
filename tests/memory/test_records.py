from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound, PermissionDenied, ValidationFailed
from rookery.kernel.pages import PageSlice
from rookery.memory.events import MemoryArchived, MemoryDeleted
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB
from rookery.memory.models import MemoryChange, MemoryFilter, MemoryScope, MemoryState, get_state
from rookery.memory.recall_models import RecallRequest
from rookery.memory.store.tables import MEMORIES, TOMBSTONES
from tests.memory.makers import MODEL, MemoryRig, make_agent, make_caller


async def _recall(rig: MemoryRig, query: str, caller: Caller | None = None, **filters: object) -> list[str]:
    request = RecallRequest(query=query, filters=replace(MemoryFilter(), **filters), mode="hybrid")
    return [hit.memory.content for hit in (await rig.services.recall.find(caller or make_caller(), request)).hits]


async def test_changing_the_content_updates_content_at_and_reindexes(rig: MemoryRig) -> None:
    """The memory is stale until the job of the change ran."""
    memory = await rig.remember("We deploy on Fridays.")
    await rig.run_jobs()
    rig.clock.advance(days=1)

    changed_memory = await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(content="We deploy on Tuesdays."))
    state = get_state(await rig.reload(memory), model=MODEL)
    await rig.run_jobs()

    assert (changed_memory.content_at, changed_memory.updated_at, changed_memory.created_at) == (
        rig.clock(),
        rig.clock(),
        memory.created_at,
    )
    assert (state, get_state(await rig.reload(memory), model=MODEL)) == (MemoryState.STALE, MemoryState.INDEXED)
    assert await _recall(rig, "Tuesdays") == ["We deploy on Tuesdays."]


async def test_changing_other_fields_leaves_content_at(rig: MemoryRig) -> None:
    """content_at changes only together with the content."""
    memory = await rig.remember(tags=("a", "b"))
    await rig.run_jobs()
    rig.clock.advance(days=1)

    change = MemoryChange.of(type="decision", tags=("B", "c"), confidence=0.3, source="chat", org="zoo", project=None, expires_in=2.0)
    changed_memory = await rig.services.records.change(make_caller(), memory.id, change)
    await rig.run_jobs()

    expected = replace(
        await rig.reload(memory),
        type="decision",
        tags=("b", "c"),
        confidence=0.3,
        base_confidence=0.3,
        source="chat",
        org="zoo",
        project=None,
        expires_at=rig.clock() + timedelta(hours=2),
        content_at=memory.content_at,
        updated_at=rig.clock(),
    )
    assert await rig.reload(memory) == expected
    assert changed_memory.updated_at == rig.clock()
    assert [tag.name for tag in await rig.services.listing.count_tags(make_caller(), MemoryFilter())] == ["b", "c"]
    assert await _recall(rig, "heron", type="decision", org="zoo") == [memory.content]


async def test_a_change_without_effect_writes_nothing(rig: MemoryRig) -> None:
    """The memory does not become stale."""
    memory = await rig.remember()
    await rig.run_jobs()
    unchanged = await rig.reload(memory)
    rig.clock.advance(days=1)

    assert (
        await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(content=memory.content, type=memory.type)) == unchanged
    )
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 0


async def test_two_changes_in_the_same_microsecond_have_different_times(rig: MemoryRig) -> None:
    """The indexer marks a record only if updated_at is that of the embedded one."""
    memory = await rig.remember("one")

    second = await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(content="two"))
    third = await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(content="three"))

    assert memory.updated_at < second.updated_at < third.updated_at


async def test_a_change_must_result_in_a_valid_memory(rig: MemoryRig) -> None:
    """The rules of `remember` apply to changes too."""
    memory = await rig.remember(memory_scope=MemoryScope.SHARED)
    with pytest.raises(ValidationFailed):
        await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(org=None))
    with pytest.raises(PermissionDenied):
        await rig.services.records.change(make_caller(orgs=frozenset({"acme"})), memory.id, MemoryChange.of(org="zoo"))

    assert await rig.reload(memory) == memory


async def test_an_archived_memory_is_stored_but_not_recalled(rig: MemoryRig) -> None:
    """Archived memories stay available for audits."""
    memory = await rig.remember()
    await rig.run_jobs()
    rig.events.clear()

    archived = await rig.services.records.archive(make_caller(), memory.id)
    archived_again = await rig.services.records.archive(make_caller(), memory.id)
    await rig.run_jobs()

    assert archived == archived_again == await rig.reload(memory)
    assert (archived.archived_at, archived.updated_at) == (rig.clock(), memory.updated_at)
    assert (await _recall(rig, "heron"), await rig.vectors.count(1)) == ([], 0)
    assert rig.events[0] == MemoryArchived(workspace_id=1, memory_id=memory.id, at=rig.clock())


async def test_a_restored_memory_is_recalled_again(rig: MemoryRig) -> None:
    """A restore undoes an archiving, also when repeated."""
    memory = await rig.remember()
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), memory.id)
    await rig.run_jobs()

    restored = await rig.services.records.restore(make_caller(), memory.id)
    assert await rig.services.records.restore(make_caller(), memory.id) == restored
    await rig.run_jobs()

    assert await _recall(rig, "heron") == [memory.content]


async def test_a_memory_restored_before_its_deletion_job_ran_stays_indexed(rig: MemoryRig) -> None:
    """Both jobs may run in either order."""
    memory = await rig.remember()
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), memory.id)
    await rig.services.records.restore(make_caller(), memory.id)
    await rig.worker.run_ready(EMBED_JOB)
    await rig.worker.run_ready(DELETE_JOB)

    assert await _recall(rig, "heron") == [memory.content]


async def test_a_changed_archived_memory_stays_archived(rig: MemoryRig) -> None:
    """Recall does not return it."""
    memory = await rig.remember()
    await rig.services.records.archive(make_caller(), memory.id)
    await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(content="A crane nests here."))
    await rig.run_jobs()

    assert await _recall(rig, "crane") == []


async def test_a_deleted_memory_is_removed_from_every_store(rig: MemoryRig) -> None:
    """A memory without a lineage leaves no tombstone."""
    memory = await rig.remember(tags=("a",))
    await rig.run_jobs()

    await rig.services.records.delete(make_caller(), memory.id)
    await rig.run_jobs()

    with pytest.raises(NotFound):
        await rig.services.records.get(make_caller(), memory.id)
    with pytest.raises(NotFound):
        await rig.services.records.delete(make_caller(), memory.id)
    assert (await rig.vectors.count(1), await rig.services.listing.count_tags(make_caller(), MemoryFilter())) == (0, [])
    assert (await rig.services.search.find(make_caller(), "heron", MemoryFilter(), page=PageSlice(5))).total == 0
    assert await rig.db.read(lambda tx: TOMBSTONES.find(tx, 1, id=memory.id)) is None
    assert MemoryDeleted(workspace_id=1, memory_id=memory.id, at=rig.clock()) in rig.events


async def test_deleting_many_returns_the_deleted_ids(rig: MemoryRig) -> None:
    """Each existing id is returned once, sorted; unknown and foreign ids are ignored."""
    first, second = await rig.remember("a"), await rig.remember("b")
    foreign = await rig.remember("c", make_caller(workspace_id=2))

    deleted_ids = await rig.services.records.delete_many(make_caller(), [second.id, first.id, first.id, foreign.id, "nothing"])

    assert deleted_ids == sorted([first.id, second.id])
    assert await rig.reload(foreign) == foreign


async def test_an_expired_memory_is_not_found(rig: MemoryRig) -> None:
    """The sweep removes expired memories from every store."""
    memory = await rig.remember(expires_in=1)
    await rig.run_jobs()
    rig.clock.advance(hours=1)

    with pytest.raises(NotFound):
        await rig.reload(memory)
    assert await _recall(rig, "heron") == []
    assert await rig.services.retention.sweep() == (1, 0)
    await rig.run_jobs()
    assert (await rig.vectors.count(1), await rig.db.read(lambda tx: MEMORIES.count(tx, 1))) == (0, 0)


async def test_a_memory_without_access_is_not_found(rig: MemoryRig) -> None:
    """Memories of other tenants, agents, orgs and projects are not found."""
    private = await rig.remember("mine", make_agent("lee"), memory_scope=MemoryScope.AGENT)
    zoo_memory = await rig.remember("zoo", org="zoo")
    records_service = rig.services.records
    inaccessible = [
        (private, make_agent("kim")),
        (private, make_caller(workspace_id=2)),
        (zoo_memory, make_caller(orgs=frozenset({"acme"}))),
        (zoo_memory, make_caller(projects=frozenset({"api"}))),
    ]

    for memory, caller in inaccessible:
        for action in (records_service.get, records_service.archive, records_service.restore, records_service.delete):
            with pytest.raises(NotFound):
                await action(caller, memory.id)
        with pytest.raises(NotFound):
            await records_service.change(caller, memory.id, MemoryChange.of(content="stolen"))
        assert await rig.reload(memory) == memory
    assert await records_service.get(make_agent("lee"), private.id) == private
    assert await records_service.get(make_agent("kim", scopes=frozenset({"brain:admin"})), private.id) == private
