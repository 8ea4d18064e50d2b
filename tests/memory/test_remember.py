from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rookery.kernel.db import Database
from rookery.kernel.errors import PermissionDenied, StorageFull, ValidationFailed
from rookery.memory.authorship import Author
from rookery.memory.capacity import StorageLimits
from rookery.memory.errors import AlreadySuperseded, BacklogFull, MemoriesFull
from rookery.memory.events import MemoryStored, MemorySuperseded
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB
from rookery.memory.models import Draft, MemoryScope, RememberResult, Tombstone
from rookery.memory.store.tables import MEMORIES, TOMBSTONES
from tests.conftest import FakeClock, eventually
from tests.deadlines import HANG_S
from tests.memory.makers import HERON, MemoryRig, build_rig, make_agent, make_caller, make_draft, make_memory


async def test_a_memory_has_default_values(rig: MemoryRig, clock: FakeClock) -> None:
    """The defaults are confidence 0.8, source manual, scope project and the key's agent."""
    result = await rig.services.remember.store(make_agent("kim"), Draft(content="c", type="fact"))

    expected = make_memory(clock, id=result.memory.id, org=None, project=None, agent_id="kim", type="fact", content="c")
    author = Author(kind="agent", key_id="key", name="key", agent_id="kim")
    assert result == RememberResult(memory=replace(expected, created_by=author, updated_by=author))
    assert rig.events == [MemoryStored(workspace_id=1, memory=result.memory, at=clock())]
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 1


async def test_tags_are_lower_cased_and_unique(rig: MemoryRig) -> None:
    """Tags are lower-cased and duplicates are dropped."""
    assert (await rig.remember(tags=("Deploy", "api", "DEPLOY"))).tags == ("deploy", "api")


@pytest.mark.parametrize(
    ("scope", "field", "fields"),
    [(MemoryScope.SESSION, "session_id", {}), (MemoryScope.SHARED, "org", {"org": None}), (MemoryScope.AGENT, "agent_id", {})],
)
async def test_a_scope_requires_its_owner(rig: MemoryRig, scope: MemoryScope, field: str, fields: dict[str, object]) -> None:
    """The scopes session, shared and agent require session_id, org and agent_id."""
    with pytest.raises(ValidationFailed) as error:
        await rig.remember(HERON, None, memory_scope=scope, **fields)

    assert error.value.detail["errors"] == {field: [f"is required for a memory of scope {scope}"]}
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 0


async def test_memories_expire_if_requested_and_session_memories_after_seven_days(rig: MemoryRig, clock: FakeClock) -> None:
    """`expires_in` sets the expiry; session memories default to seven days."""
    by_hours = await rig.remember(expires_in=1.5)
    by_scope = await rig.remember(memory_scope=MemoryScope.SESSION, session_id="s1")

    assert by_hours.expires_at == clock() + timedelta(minutes=90)
    assert by_scope.expires_at == clock() + timedelta(days=7)


async def test_the_shortest_expiry_is_accepted(rig: MemoryRig, clock: FakeClock) -> None:
    """expires_in may be any number above 0; the smallest expiry is a microsecond."""
    assert (await rig.remember(expires_in=5e-324)).expires_at == clock() + timedelta(microseconds=1)


async def test_identical_content_is_stored_with_a_list_of_duplicates(rig: MemoryRig) -> None:
    """Without `dedupe` the memory is stored, and the result lists its duplicates."""
    first = await rig.remember()
    rig.clock.advance(seconds=1)
    second = await rig.services.remember.store(make_caller(), make_draft())

    assert second == RememberResult(memory=second.memory, duplicates=(first.id,))
    assert second.memory.id != first.id


async def test_deduplication_returns_the_oldest_memory(rig: MemoryRig) -> None:
    """`dedupe` returns the oldest memory with the same content."""
    first = await rig.remember()
    rig.clock.advance(seconds=1)
    second = await rig.remember()
    rig.events.clear()

    third = await rig.services.remember.store(make_caller(), make_draft(dedupe=True))

    assert third == RememberResult(memory=first, duplicates=(second.id,), is_duplicate=True)
    assert rig.events == []


async def test_concurrent_dedupe_stores_one_memory(rig: MemoryRig) -> None:
    """Eight concurrent calls with `dedupe` get the same memory."""
    results = await asyncio.gather(*(rig.services.remember.store(make_caller(), make_draft(dedupe=True)) for _ in range(8)))

    assert len({result.memory.id for result in results}) == 1
    assert sum(not result.is_duplicate for result in results) == 1


@pytest.mark.parametrize(
    "other_fields",
    [
        {"org": "zoo"},
        {"project": "api"},
        {"project": None},
        {"memory_scope": MemoryScope.SHARED},
        {"memory_scope": MemoryScope.AGENT, "agent_id": "kim"},
        {"memory_scope": MemoryScope.SESSION, "session_id": "s1"},
        {"content": "the heron nests on the roof."},
    ],
)
async def test_the_same_content_in_another_scope_is_no_duplicate(rig: MemoryRig, other_fields: dict[str, object]) -> None:
    """The same content of another org, project, agent or session is not a duplicate."""
    await rig.services.remember.store(make_caller(), make_draft(**{"content": HERON, **other_fields}))  # pyright: ignore[reportArgumentType] - content is a text

    result = await rig.services.remember.store(make_caller(), make_draft(dedupe=True))

    assert (result.is_duplicate, result.duplicates) == (False, ())


async def test_archived_expired_and_foreign_memories_are_no_duplicates(rig: MemoryRig) -> None:
    """Archived, expired and foreign memories never count."""
    archived = await rig.remember()
    await rig.services.records.archive(make_caller(), archived.id)
    await rig.remember(expires_in=1)
    await rig.remember(by=make_caller(workspace_id=2))
    rig.clock.advance(hours=1)

    result = await rig.services.remember.store(make_caller(), make_draft(dedupe=True))

    assert (result.is_duplicate, result.duplicates) == (False, ())


async def test_a_superseded_memory_leaves_only_a_tombstone(rig: MemoryRig, clock: FakeClock) -> None:
    """The tombstone has no content and keeps the lineage."""
    superseded = await rig.remember("We deploy on Fridays.")
    await rig.run_jobs()
    rig.events.clear()

    current = await rig.remember("We deploy on Tuesdays.", supersedes_id=superseded.id)
    backlog = await rig.jobs.count_pending(DELETE_JOB, 1)
    await rig.run_jobs()

    assert backlog == 1
    assert await rig.db.read(lambda tx: MEMORIES.find(tx, 1, id=superseded.id)) is None
    assert await rig.db.read(lambda tx: TOMBSTONES.find(tx, 1, id=superseded.id)) == Tombstone(
        id=superseded.id, workspace_id=1, supersedes_id=None, superseded_by=current.id, created_at=superseded.created_at, ended_at=clock()
    )
    assert (await rig.vectors.count(1), current.supersedes_id) == (1, superseded.id)
    assert MemorySuperseded(workspace_id=1, memory_id=superseded.id, superseded_by=current.id, at=clock()) in rig.events


async def test_superseding_a_superseded_memory_names_the_head(rig: MemoryRig) -> None:
    """The error is 409 already_superseded with the id of the current head."""
    first = await rig.remember("one")
    second = await rig.remember("two", supersedes_id=first.id)
    third = await rig.remember("three", supersedes_id=second.id)

    for superseded in (first, second):
        with pytest.raises(AlreadySuperseded) as error:
            await rig.remember("four", supersedes_id=superseded.id)
        assert (error.value.status, error.value.code, error.value.head_id) == (409, "already_superseded", third.id)


async def test_superseding_an_unknown_memory_is_rejected(rig: MemoryRig) -> None:
    """Deleted memories and those of other tenants, agents and orgs count as unknown."""
    deleted, foreign = await rig.remember("gone"), await rig.remember("theirs", make_caller(workspace_id=2))
    await rig.services.records.delete(make_caller(), deleted.id)
    private = await rig.remember("mine", make_agent("lee"), memory_scope=MemoryScope.AGENT)
    zoo_memory = await rig.remember("zoo", org="zoo")
    kim = make_agent("kim", orgs=frozenset({"acme"}))

    for memory_id in ("00000000-0000-7000-8000-000000000000", deleted.id, foreign.id, private.id, zoo_memory.id):
        with pytest.raises(ValidationFailed) as error:
            await rig.remember("new", kim, supersedes_id=memory_id)
        assert error.value.detail["errors"] == {
            "supersedes_id": [f"the memory {memory_id!r} was not found; send the id of an existing memory"]
        }


async def test_of_many_concurrent_supersedes_one_wins(rig: MemoryRig) -> None:
    """The errors of the others have the id of the winner."""
    superseded = await rig.remember("old")

    outcomes = await asyncio.gather(*(rig.remember(f"new {n}", supersedes_id=superseded.id) for n in range(8)), return_exceptions=True)

    losers = [outcome for outcome in outcomes if isinstance(outcome, AlreadySuperseded)]
    winners = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert (len(winners), len(losers)) == (1, 7)
    assert {error.head_id for error in losers} == {winners[0].id}


async def test_a_duplicate_can_supersede_a_memory(rig: MemoryRig) -> None:
    """With `dedupe` no second memory is stored, and the old one is superseded."""
    existing, superseded = await rig.remember("new"), await rig.remember("old")

    result = await rig.services.remember.store(make_caller(), make_draft("new", supersedes_id=superseded.id, dedupe=True))

    assert (result.memory.id, result.is_duplicate) == (existing.id, True)
    with pytest.raises(AlreadySuperseded):
        await rig.remember("newer", supersedes_id=superseded.id)


async def test_only_an_admin_or_a_key_without_an_agent_may_set_another_agent(rig: MemoryRig) -> None:
    """Other agents' keys need brain:admin; API keys may set any agent."""
    with pytest.raises(PermissionDenied) as error:
        await rig.remember("c", make_agent("kim"), agent_id="lee")
    admin = make_agent("kim", scopes=frozenset({"brain:*"}))

    assert error.value.detail == {"required_permission": "brain:admin"}
    assert [(await rig.remember("c", caller, agent_id="lee")).agent_id for caller in (admin, make_caller())] == ["lee", "lee"]


@pytest.mark.parametrize(
    "fields", [{"org": "zoo"}, {"org": None}, {"project": "api"}, {"project": None}, {"memory_scope": MemoryScope.SHARED, "org": "zoo"}]
)
async def test_a_key_limited_to_an_org_and_project_writes_only_there(rig: MemoryRig, fields: dict[str, object]) -> None:
    """Allow-lists apply to writes too."""
    caller = make_caller(orgs=frozenset({"acme"}), projects=frozenset({"web"}))

    with pytest.raises(PermissionDenied):
        await rig.remember("c", caller, **fields)

    assert (await rig.remember("c", caller)).org == "acme"
    assert (await rig.remember("c", caller, org=None, project=None, memory_scope=MemoryScope.AGENT, agent_id="kim")).org is None


async def test_a_batch_has_a_result_for_each_memory(rig: MemoryRig) -> None:
    """An invalid memory does not stop the others."""
    drafts = [
        make_draft("a"),
        make_draft("b", memory_scope=MemoryScope.SESSION),
        make_draft("a", dedupe=True),
        make_draft("c", supersedes_id="x"),
    ]

    outcomes = await rig.services.remember.store_many(make_caller(), drafts)

    assert [type(outcome).__name__ for outcome in outcomes] == ["RememberResult", "ValidationFailed", "RememberResult", "ValidationFailed"]
    assert [outcome.is_duplicate for outcome in outcomes if isinstance(outcome, RememberResult)] == [False, True]
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 1


async def test_wait_ms_waits_until_the_memory_is_indexed(rig: MemoryRig) -> None:
    """With `wait_ms`, `remember` responds when the memory is indexed."""
    task = asyncio.create_task(rig.services.remember.store(make_caller(), make_draft(), wait_s=HANG_S))
    await eventually(rig.run_jobs)
    result = await task

    assert result.memory.indexed_at is not None


async def test_wait_ms_ends_after_its_time(rig: MemoryRig) -> None:
    """The record is stored although it is not indexed yet."""
    result = await rig.services.remember.store(make_caller(), make_draft(), wait_s=0.02)

    assert result.memory.indexed_at is None
    assert await rig.reload(result.memory) == result.memory


async def test_synchronous_indexing_comes_before_the_response(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """With `async_embedding` false the memory is indexed before the response."""
    rig = build_rig(database, data_dir, clock, index_first=True)
    result = await rig.services.remember.store(make_caller(), make_draft())
    batch_results = await rig.services.remember.store_many(
        make_caller(), [make_draft("other"), make_draft("bad", memory_scope=MemoryScope.SESSION)]
    )
    embedded_before = list(rig.embedder.embedded_contents)
    clock.advance(seconds=11)
    await rig.run_jobs()
    await rig.close()

    assert result.memory.indexed_at == clock.at - timedelta(seconds=11)
    assert [result.memory.indexed_at is not None for result in batch_results if isinstance(result, RememberResult)] == [True]
    assert rig.embedder.embedded_contents == embedded_before


async def test_a_record_is_stored_and_retried_if_synchronous_indexing_fails(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """If synchronous indexing fails, the record stays and a job retries."""
    rig = build_rig(database, data_dir, clock, index_first=True)
    rig.embedder.is_down = True
    result = await rig.services.remember.store(make_caller(), make_draft())
    rig.embedder.is_down = False
    clock.advance(seconds=11)
    await rig.run_jobs()
    retried = await rig.reload(result.memory)
    await rig.close()

    assert result.memory.indexed_at is None
    assert retried.indexed_at == clock()


async def test_a_full_backlog_rejects_memories(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """The error is 429 backlog_full, for this workspace only."""
    rig = build_rig(database, data_dir, clock, limits=StorageLimits(max_backlog=2))
    await rig.remember("a")
    await rig.remember("b")
    with pytest.raises(BacklogFull) as error:
        await rig.remember("c")
    await rig.remember("d", make_caller(workspace_id=2))
    await rig.run_jobs()
    clock.advance(seconds=1)
    await rig.remember("e")
    await rig.close()

    assert (error.value.status, error.value.code) == (429, "backlog_full")
    assert "Retry-After" in error.value.headers


async def test_a_full_workspace_rejects_memories(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """max_memories is a limit per workspace; a batch is stored completely or not at all."""
    rig = build_rig(database, data_dir, clock, limits=StorageLimits(max_memories=3))
    await rig.remember("a")
    with pytest.raises(MemoriesFull):
        await rig.services.remember.store_many(make_caller(), [make_draft(str(n)) for n in range(3)])
    await rig.services.remember.store_many(make_caller(), [make_draft(str(n)) for n in range(2)])
    with pytest.raises(MemoriesFull):
        await rig.remember("b")
    await rig.remember("c", make_caller(workspace_id=2))
    count = await rig.db.read(lambda tx: MEMORIES.count(tx, 1))
    await rig.close()

    assert count == 3


async def test_a_full_disk_rejects_only_writes(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """Writes fail with storage_full, and reads still work."""
    rig = build_rig(database, data_dir, clock)
    memory = await rig.remember()
    await rig.close()
    full_rig = build_rig(database, data_dir, clock, limits=StorageLimits(folder=data_dir, min_free_bytes=1 << 62))
    with pytest.raises(StorageFull):
        await full_rig.remember("b")

    assert await full_rig.reload(memory) == memory
    await full_rig.close()


async def test_content_is_stored_unchanged(rig: MemoryRig) -> None:
    """Stored and returned content has no added context."""
    memory = await rig.remember("  Ünïcode,\nspaces  ", tags=("a",))
    await rig.run_jobs()

    assert (await rig.reload(memory)).content == "  Ünïcode,\nspaces  "
    assert replace(await rig.reload(memory), indexed_at=None, indexed_model=None) == memory
