from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound, PermissionDenied, ValidationFailed
from rookery.kernel.events import MemoryArchived, MemoryDeleted
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB
from rookery.memory.models import MemoryChange, MemoryFilter, MemoryScope, MemoryState, RecallRequest, get_state
from rookery.memory.store import records
from tests.memory.makers import MODEL, MemoryRig, make_agent, make_caller


def make_change(**fields: object) -> MemoryChange:
    """Make a change of exactly these fields."""
    return replace(MemoryChange(changed_fields=frozenset(fields)), **fields)


async def _recalled(rig: MemoryRig, query: str, caller: Caller | None = None, **filters: object) -> list[str]:
    question = RecallRequest(query=query, filters=replace(MemoryFilter(), **filters), mode="hybrid")
    return [hit.memory.content for hit in (await rig.services.recall.find(caller or make_caller(), question)).hits]


async def test_changing_the_content_moves_content_at_and_indexes_anew(rig: MemoryRig) -> None:
    """D-45: PATCH enqueues its own re-index; stale until then."""
    memory = await rig.remember("We deploy on Fridays.")
    await rig.run_jobs()
    rig.clock.advance(days=1)

    changed = await rig.services.records.change(make_caller(), memory.id, make_change(content="We deploy on Tuesdays."))
    state = get_state(await rig.reload(memory), model=MODEL)
    await rig.run_jobs()

    assert (changed.content_at, changed.updated_at, changed.created_at) == (rig.clock(), rig.clock(), memory.created_at)
    assert (state, get_state(await rig.reload(memory), model=MODEL)) == (MemoryState.STALE, MemoryState.INDEXED)
    assert await _recalled(rig, "Tuesdays") == ["We deploy on Tuesdays."]


async def test_changing_other_fields_leaves_content_at(rig: MemoryRig) -> None:
    """D-45: content_at moves only when content is changed."""
    memory = await rig.remember(tags=("a", "b"))
    await rig.run_jobs()
    rig.clock.advance(days=1)

    change = make_change(type="decision", tags=("B", "c"), confidence=0.3, source="chat", org="zoo", project=None, expires_in_h=2.0)
    changed = await rig.services.records.change(make_caller(), memory.id, change)
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
    assert changed.updated_at == rig.clock()
    assert [tag.name for tag in await rig.services.listing.count_tags(make_caller(), MemoryFilter())] == ["b", "c"]
    assert await _recalled(rig, "heron", type="decision", org="zoo") == [memory.content]


async def test_a_change_that_changes_nothing_writes_nothing(rig: MemoryRig) -> None:
    """D-45: then nothing is stale."""
    memory = await rig.remember()
    await rig.run_jobs()
    before = await rig.reload(memory)
    rig.clock.advance(days=1)

    assert await rig.services.records.change(make_caller(), memory.id, make_change(content=memory.content, type=memory.type)) == before
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 0


async def test_two_changes_in_the_same_microsecond_are_told_apart(rig: MemoryRig) -> None:
    """D-51: indexing marks a record only if it is still the one embedded."""
    memory = await rig.remember("one")

    second = await rig.services.records.change(make_caller(), memory.id, make_change(content="two"))
    third = await rig.services.records.change(make_caller(), memory.id, make_change(content="three"))

    assert memory.updated_at < second.updated_at < third.updated_at


async def test_a_change_must_leave_a_memory_that_could_be_stored(rig: MemoryRig) -> None:
    """D-40 and D-23: rules of remembering hold for changing."""
    memory = await rig.remember(memory_scope=MemoryScope.SHARED)
    with pytest.raises(ValidationFailed):
        await rig.services.records.change(make_caller(), memory.id, make_change(org=None))
    with pytest.raises(PermissionDenied):
        await rig.services.records.change(make_caller(orgs=frozenset({"acme"})), memory.id, make_change(org="zoo"))

    assert await rig.reload(memory) == memory


async def test_an_archived_memory_leaves_recall_and_is_kept(rig: MemoryRig) -> None:
    """Spec 3.4: removed from active recall but kept for audit."""
    memory = await rig.remember()
    await rig.run_jobs()
    rig.events.clear()

    archived = await rig.services.records.archive(make_caller(), memory.id)
    again = await rig.services.records.archive(make_caller(), memory.id)
    await rig.run_jobs()

    assert archived == again == await rig.reload(memory)
    assert (archived.archived_at, archived.updated_at) == (rig.clock(), memory.updated_at)
    assert (await _recalled(rig, "heron"), await rig.vectors.count(1)) == ([], 0)
    assert rig.events[0] == MemoryArchived(workspace_id=1, memory_id=memory.id, at=rig.clock())


async def test_a_restored_memory_is_recalled_again(rig: MemoryRig) -> None:
    """D-50, restore; D-52: restore undoes."""
    memory = await rig.remember()
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), memory.id)
    await rig.run_jobs()

    restored = await rig.services.records.restore(make_caller(), memory.id)
    assert await rig.services.records.restore(make_caller(), memory.id) == restored
    await rig.run_jobs()

    assert await _recalled(rig, "heron") == [memory.content]


async def test_restored_before_the_indexes_heard_of_it_a_memory_stays_in_them(rig: MemoryRig) -> None:
    """Spec 3.4: both jobs in one queue, whichever runs first."""
    memory = await rig.remember()
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), memory.id)
    await rig.services.records.restore(make_caller(), memory.id)
    await rig.worker.run_ready(EMBED_JOB)
    await rig.worker.run_ready(DELETE_JOB)

    assert await _recalled(rig, "heron") == [memory.content]


async def test_changing_an_archived_memory_does_not_bring_it_back(rig: MemoryRig) -> None:
    """Spec 3.4: archived stays archived."""
    memory = await rig.remember()
    await rig.services.records.archive(make_caller(), memory.id)
    await rig.services.records.change(make_caller(), memory.id, make_change(content="A crane nests here."))
    await rig.run_jobs()

    assert await _recalled(rig, "crane") == []


async def test_a_deleted_memory_leaves_every_store(rig: MemoryRig) -> None:
    """Spec 3.4: removed from all stores; no tombstone without a lineage."""
    memory = await rig.remember(tags=("a",))
    await rig.run_jobs()

    await rig.services.records.delete(make_caller(), memory.id)
    await rig.run_jobs()

    with pytest.raises(NotFound):
        await rig.services.records.get(make_caller(), memory.id)
    with pytest.raises(NotFound):
        await rig.services.records.delete(make_caller(), memory.id)
    assert (await rig.vectors.count(1), await rig.services.listing.count_tags(make_caller(), MemoryFilter())) == (0, [])
    assert (await rig.services.search.find(make_caller(), "heron", MemoryFilter(), limit=5)).total == 0
    assert await rig.db.read(lambda tx: records.get_tombstone(tx, 1, memory.id)) is None
    assert MemoryDeleted(workspace_id=1, memory_id=memory.id, at=rig.clock()) in rig.events


async def test_forgetting_names_what_was_there(rig: MemoryRig) -> None:
    """D-92, forget: several at once, each once."""
    first, second = await rig.remember("a"), await rig.remember("b")
    foreign = await rig.remember("c", make_caller(workspace_id=2))

    forgotten = await rig.services.records.delete_many(make_caller(), [second.id, first.id, first.id, foreign.id, "nothing"])

    assert forgotten == sorted([first.id, second.id])
    assert await rig.reload(foreign) == foreign


async def test_an_expired_memory_is_not_there(rig: MemoryRig) -> None:
    """D-43: expired never counts; it is swept from every store."""
    memory = await rig.remember(expires_in_h=1)
    await rig.run_jobs()
    rig.clock.advance(hours=1)

    with pytest.raises(NotFound):
        await rig.reload(memory)
    assert await _recalled(rig, "heron") == []
    assert await rig.services.retention.sweep() == (1, 0)
    await rig.run_jobs()
    assert (await rig.vectors.count(1), await rig.db.read(lambda tx: records.count_memories(tx, 1))) == (0, 0)


async def test_what_a_key_may_not_see_is_not_there(rig: MemoryRig) -> None:
    """D-10, D-23 and D-43: another tenant's, another agent's own, another org's."""
    private = await rig.remember("mine", make_agent("lee"), memory_scope=MemoryScope.AGENT)
    elsewhere = await rig.remember("zoo", org="zoo")
    verbs = rig.services.records
    blind = [
        (private, make_agent("kim")),
        (private, make_caller(workspace_id=2)),
        (elsewhere, make_caller(orgs=frozenset({"acme"}))),
        (elsewhere, make_caller(projects=frozenset({"api"}))),
    ]

    for memory, caller in blind:
        for act in (verbs.get, verbs.archive, verbs.restore, verbs.delete):
            with pytest.raises(NotFound):
                await act(caller, memory.id)
        with pytest.raises(NotFound):
            await verbs.change(caller, memory.id, make_change(content="stolen"))
        assert await rig.reload(memory) == memory
    assert await verbs.get(make_agent("lee"), private.id) == private
    assert await verbs.get(make_agent("kim", scopes=frozenset({"brain:admin"})), private.id) == private
