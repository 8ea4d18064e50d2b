from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rookery.kernel.db import Database
from rookery.kernel.errors import PermissionDenied, StorageFull, ValidationFailed
from rookery.kernel.events import MemoryStored, MemorySuperseded
from rookery.memory.capacity import StorageLimits
from rookery.memory.errors import AlreadySuperseded, BacklogFull, MemoriesFull
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB
from rookery.memory.models import Draft, MemoryScope, RememberResult, Tombstone
from rookery.memory.store import records
from tests.conftest import FakeClock
from tests.memory.makers import HERON, MemoryRig, build_rig, make_agent, make_caller, make_draft, make_memory


async def test_a_memory_has_the_defaults_of_the_decision(rig: MemoryRig, clock: FakeClock) -> None:
    """D-40: confidence 0.8, source manual, scope project, agent_id the key's own."""
    done = await rig.services.remember.store(make_agent("kim"), Draft(content="c", type="fact"))

    expected = make_memory(clock, id=done.memory.id, org=None, project=None, agent_id="kim", type="fact", content="c")
    assert done == RememberResult(memory=expected)
    assert rig.events == [MemoryStored(workspace_id=1, memory=done.memory, at=clock())]
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 1


async def test_tags_are_lower_cased_and_repeats_dropped(rig: MemoryRig) -> None:
    """Tags are lower-cased and duplicates are dropped (D-40)."""
    assert (await rig.remember(tags=("Deploy", "api", "DEPLOY"))).tags == ("deploy", "api")


@pytest.mark.parametrize(
    ("scope", "field", "fields"),
    [(MemoryScope.SESSION, "session_id", {}), (MemoryScope.SHARED, "org", {"org": None}), (MemoryScope.AGENT, "agent_id", {})],
)
async def test_a_scope_asks_for_its_owner(rig: MemoryRig, scope: MemoryScope, field: str, fields: dict[str, object]) -> None:
    """D-40: session_id, org and agent_id are required by their scopes."""
    with pytest.raises(ValidationFailed) as refused:
        await rig.remember(HERON, None, memory_scope=scope, **fields)

    assert refused.value.detail["errors"] == {field: [f"is required for a memory of scope {scope}"]}
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 0


async def test_a_memory_may_expire_and_a_session_memory_does_after_seven_days(rig: MemoryRig, clock: FakeClock) -> None:
    """`expires_in` sets the expiry; session memories default to seven days (D-40, D-53)."""
    by_hours = await rig.remember(expires_in_h=1.5)
    by_scope = await rig.remember(memory_scope=MemoryScope.SESSION, session_id="s1")

    assert by_hours.expires_at == clock() + timedelta(minutes=90)
    assert by_scope.expires_at == clock() + timedelta(days=7)


async def test_the_shortest_life_is_a_life(rig: MemoryRig, clock: FakeClock) -> None:
    """D-40: expires_in is any number above 0; one under a microsecond is no reason for a refusal."""
    assert (await rig.remember(expires_in_h=5e-324)).expires_at == clock() + timedelta(microseconds=1)


async def test_identical_content_is_stored_and_named(rig: MemoryRig) -> None:
    """D-40: by default it is stored, and the answer lists duplicates."""
    first = await rig.remember()
    rig.clock.advance(seconds=1)
    second = await rig.services.remember.store(make_caller(), make_draft())

    assert second == RememberResult(memory=second.memory, duplicates=(first.id,))
    assert second.memory.id != first.id


async def test_deduplication_returns_the_oldest_one(rig: MemoryRig) -> None:
    """`dedupe` returns the oldest memory with the same content (D-40)."""
    first = await rig.remember()
    rig.clock.advance(seconds=1)
    second = await rig.remember()
    rig.events.clear()

    third = await rig.services.remember.store(make_caller(), make_draft(dedupe=True))

    assert third == RememberResult(memory=first, duplicates=(second.id,), is_duplicate=True)
    assert rig.events == []


async def test_many_at_once_deduplicate_to_one(rig: MemoryRig) -> None:
    """D-40, dedupe, under concurrency."""
    done = await asyncio.gather(*(rig.services.remember.store(make_caller(), make_draft(dedupe=True)) for _ in range(8)))

    assert len({each.memory.id for each in done}) == 1
    assert sum(not each.is_duplicate for each in done) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"org": "zoo"},
        {"project": "api"},
        {"project": None},
        {"memory_scope": MemoryScope.SHARED},
        {"memory_scope": MemoryScope.AGENT, "agent_id": "kim"},
        {"content": "the heron nests on the roof."},
    ],
)
async def test_the_same_content_in_another_space_is_no_duplicate(rig: MemoryRig, other: dict[str, object]) -> None:
    """The same content in another org or project is not a duplicate (D-40; spec 2.7)."""
    await rig.services.remember.store(make_caller(), make_draft(**{"content": HERON, **other}))  # pyright: ignore[reportArgumentType] - content is a text

    done = await rig.services.remember.store(make_caller(), make_draft(dedupe=True))

    assert (done.is_duplicate, done.duplicates) == (False, ())


async def test_archived_expired_and_foreign_memories_are_no_duplicates(rig: MemoryRig) -> None:
    """D-43: they never count."""
    archived = await rig.remember()
    await rig.services.records.archive(make_caller(), archived.id)
    await rig.remember(expires_in_h=1)
    await rig.remember(by=make_caller(workspace_id=2))
    rig.clock.advance(hours=1)

    done = await rig.services.remember.store(make_caller(), make_draft(dedupe=True))

    assert (done.is_duplicate, done.duplicates) == (False, ())


async def test_a_superseded_memory_leaves_every_store_but_for_its_place(rig: MemoryRig, clock: FakeClock) -> None:
    """Spec 4.3 and D-41: a tombstone without content keeps the lineage."""
    old = await rig.remember("We deploy on Fridays.")
    await rig.run_jobs()
    rig.events.clear()

    new = await rig.remember("We deploy on Tuesdays.", supersedes_id=old.id)
    backlog = await rig.jobs.count_pending(DELETE_JOB, 1)
    await rig.run_jobs()

    assert backlog == 1
    assert await rig.db.read(lambda tx: records.get_memory(tx, 1, old.id)) is None
    assert await rig.db.read(lambda tx: records.get_tombstone(tx, 1, old.id)) == Tombstone(
        id=old.id, workspace_id=1, supersedes_id=None, superseded_by=new.id, created_at=old.created_at, ended_at=clock()
    )
    assert (await rig.vectors.count(1), new.supersedes_id) == (1, old.id)
    assert MemorySuperseded(workspace_id=1, memory_id=old.id, superseded_by=new.id, at=clock()) in rig.events


async def test_superseding_what_was_superseded_names_the_head(rig: MemoryRig) -> None:
    """D-41: 409 already_superseded with the head's id, however long the lineage."""
    first = await rig.remember("one")
    second = await rig.remember("two", supersedes_id=first.id)
    third = await rig.remember("three", supersedes_id=second.id)

    for superseded in (first, second):
        with pytest.raises(AlreadySuperseded) as refused:
            await rig.remember("four", supersedes_id=superseded.id)
        assert (refused.value.status, refused.value.code, refused.value.head_id) == (409, "already_superseded", third.id)


async def test_superseding_what_is_not_there_is_refused(rig: MemoryRig) -> None:
    """D-41: unknown or deleted is 422; another tenant's, another agent's and another org's are unknown."""
    deleted, foreign = await rig.remember("gone"), await rig.remember("theirs", make_caller(workspace_id=2))
    await rig.services.records.delete(make_caller(), deleted.id)
    private = await rig.remember("mine", make_agent("lee"), memory_scope=MemoryScope.AGENT)
    elsewhere = await rig.remember("zoo", org="zoo")
    kim = make_agent("kim", orgs=frozenset({"acme"}))

    for memory_id in ("00000000-0000-7000-8000-000000000000", deleted.id, foreign.id, private.id, elsewhere.id):
        with pytest.raises(ValidationFailed) as refused:
            await rig.remember("new", kim, supersedes_id=memory_id)
        assert refused.value.detail["errors"] == {
            "supersedes_id": [f"the memory {memory_id!r} was not found; send the id of an existing memory"]
        }


async def test_of_many_who_supersede_one_memory_one_wins(rig: MemoryRig) -> None:
    """D-41, under concurrency: the others hear of the winner."""
    old = await rig.remember("old")

    outcomes = await asyncio.gather(*(rig.remember(f"new {n}", supersedes_id=old.id) for n in range(8)), return_exceptions=True)

    losers = [each for each in outcomes if isinstance(each, AlreadySuperseded)]
    winners = [each for each in outcomes if not isinstance(each, BaseException)]
    assert (len(winners), len(losers)) == (1, 7)
    assert {each.head_id for each in losers} == {winners[0].id}


async def test_a_duplicate_takes_the_place_of_what_is_superseded(rig: MemoryRig) -> None:
    """D-40 and D-41 together: nothing is stored twice, and the old one goes all the same."""
    kept, old = await rig.remember("new"), await rig.remember("old")

    done = await rig.services.remember.store(make_caller(), make_draft("new", supersedes_id=old.id, dedupe=True))

    assert (done.memory.id, done.is_duplicate) == (kept.id, True)
    with pytest.raises(AlreadySuperseded):
        await rig.remember("newer", supersedes_id=old.id)


async def test_only_an_admin_or_a_key_of_no_agent_names_another_agent(rig: MemoryRig) -> None:
    """D-43: 403 unless brain:admin; API keys may name any."""
    with pytest.raises(PermissionDenied) as refused:
        await rig.remember("c", make_agent("kim"), agent_id="lee")
    admin = make_agent("kim", scopes=frozenset({"brain:*"}))

    assert refused.value.detail == {"required_permission": "brain:admin"}
    assert [(await rig.remember("c", caller, agent_id="lee")).agent_id for caller in (admin, make_caller())] == ["lee", "lee"]


@pytest.mark.parametrize(
    "fields", [{"org": "zoo"}, {"org": None}, {"project": "api"}, {"project": None}, {"memory_scope": MemoryScope.SHARED, "org": "zoo"}]
)
async def test_a_key_of_one_org_and_project_writes_only_there(rig: MemoryRig, fields: dict[str, object]) -> None:
    """D-23: allow-lists hold for writing as for reading."""
    caller = make_caller(orgs=frozenset({"acme"}), projects=frozenset({"web"}))

    with pytest.raises(PermissionDenied):
        await rig.remember("c", caller, **fields)

    assert (await rig.remember("c", caller)).org == "acme"
    assert (await rig.remember("c", caller, org=None, project=None, memory_scope=MemoryScope.AGENT, agent_id="kim")).org is None


async def test_a_batch_judges_each_memory_by_itself(rig: MemoryRig) -> None:
    """D-50: a status for each."""
    drafts = [
        make_draft("a"),
        make_draft("b", memory_scope=MemoryScope.SESSION),
        make_draft("a", dedupe=True),
        make_draft("c", supersedes_id="x"),
    ]

    outcomes = await rig.services.remember.store_many(make_caller(), drafts)

    assert [type(each).__name__ for each in outcomes] == ["RememberResult", "ValidationFailed", "RememberResult", "ValidationFailed"]
    assert [each.is_duplicate for each in outcomes if isinstance(each, RememberResult)] == [False, True]
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 1


async def test_waiting_answers_when_the_memory_is_indexed(rig: MemoryRig) -> None:
    """With `wait_ms`, `remember` responds when the memory is indexed (D-40)."""
    waiting = asyncio.create_task(rig.services.remember.store(make_caller(), make_draft(), wait_s=5))
    for _ in range(500):
        if await rig.run_jobs():
            break
        await asyncio.sleep(0.005)
    done = await waiting

    assert done.memory.indexed_at is not None


async def test_waiting_ends_when_its_time_is_over(rig: MemoryRig) -> None:
    """D-40, wait_ms: the record is there all the same."""
    done = await rig.services.remember.store(make_caller(), make_draft(), wait_s=0.02)

    assert done.memory.indexed_at is None
    assert await rig.reload(done.memory) == done.memory


async def test_synchronous_indexing_comes_before_the_answer(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """With `async_embedding` false the memory is indexed before the response (D-51)."""
    rig = build_rig(database, data_dir, clock, index_first=True)
    done = await rig.services.remember.store(make_caller(), make_draft())
    batch = await rig.services.remember.store_many(
        make_caller(), [make_draft("other"), make_draft("bad", memory_scope=MemoryScope.SESSION)]
    )
    embedded = list(rig.embedder.embedded_contents)
    clock.advance(seconds=11)
    await rig.run_jobs()
    await rig.close()

    assert done.memory.indexed_at == clock.at - timedelta(seconds=11)
    assert [each.memory.indexed_at is not None for each in batch if isinstance(each, RememberResult)] == [True]
    assert rig.embedder.embedded_contents == embedded


async def test_when_synchronous_indexing_fails_the_record_is_kept_and_retried(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """If synchronous indexing fails, the record stays and a job retries (D-51)."""
    rig = build_rig(database, data_dir, clock, index_first=True)
    rig.embedder.is_down = True
    done = await rig.services.remember.store(make_caller(), make_draft())
    rig.embedder.is_down = False
    clock.advance(seconds=11)
    await rig.run_jobs()
    fresh = await rig.reload(done.memory)
    await rig.close()

    assert done.memory.indexed_at is None
    assert fresh.indexed_at == clock()


async def test_a_full_backlog_refuses(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """D-17: 429 backlog_full, per workspace."""
    rig = build_rig(database, data_dir, clock, limits=StorageLimits(max_backlog=2))
    await rig.remember("a")
    await rig.remember("b")
    with pytest.raises(BacklogFull) as refused:
        await rig.remember("c")
    await rig.remember("d", make_caller(workspace_id=2))
    await rig.run_jobs()
    clock.advance(seconds=1)
    await rig.remember("e")
    await rig.close()

    assert (refused.value.status, refused.value.code) == (429, "backlog_full")
    assert "Retry-After" in refused.value.headers


async def test_a_full_workspace_refuses(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """D-17: max_memories, per workspace; a batch is stored whole or not at all."""
    rig = build_rig(database, data_dir, clock, limits=StorageLimits(max_memories=3))
    await rig.remember("a")
    with pytest.raises(MemoriesFull):
        await rig.services.remember.store_many(make_caller(), [make_draft(str(n)) for n in range(3)])
    await rig.services.remember.store_many(make_caller(), [make_draft(str(n)) for n in range(2)])
    with pytest.raises(MemoriesFull):
        await rig.remember("b")
    await rig.remember("c", make_caller(workspace_id=2))
    counted = await rig.db.read(lambda tx: records.count_memories(tx, 1))
    await rig.close()

    assert counted == 3


async def test_a_full_disk_refuses_writing_and_nothing_else(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """D-17: 507 storage_full; reads go on."""
    rig = build_rig(database, data_dir, clock)
    memory = await rig.remember()
    await rig.close()
    full = build_rig(database, data_dir, clock, limits=StorageLimits(folder=data_dir, min_free_bytes=1 << 62))
    with pytest.raises(StorageFull):
        await full.remember("b")

    assert await full.reload(memory) == memory
    await full.close()


async def test_what_is_remembered_is_kept_as_it_was_said(rig: MemoryRig) -> None:
    """D-55: what is stored and returned is never enriched."""
    memory = await rig.remember("  Ünïcode,\nspaces  ", tags=("a",))
    await rig.run_jobs()

    assert (await rig.reload(memory)).content == "  Ünïcode,\nspaces  "
    assert replace(await rig.reload(memory), indexed_at=None, indexed_model=None) == memory
