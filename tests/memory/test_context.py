from __future__ import annotations

import httpx2
import pytest
from dirty_equals import IsStr
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.errors import PermissionDenied
from rookery.kernel.pages import PageSlice
from rookery.memory.agent_context import share_budget
from rookery.memory.models import Memory, MemoryFilter, MemoryScope
from tests.conftest import FakeClock
from tests.memory.makers import MemoryRig, make_agent, make_caller

KIM = make_agent("kim")


async def remember_own(rig: MemoryRig, content: str, **fields: object) -> Memory:
    """Store a private memory of the agent kim."""
    return await rig.remember(content, KIM, memory_scope=MemoryScope.AGENT, **fields)


async def test_an_agents_own_memories_are_sorted_by_effective_confidence(rig: MemoryRig, clock: FakeClock) -> None:
    """An old observation comes after a new one with a lower original confidence."""
    old = await remember_own(rig, "old", confidence=0.9)
    lasting = await remember_own(rig, "lasting", confidence=0.6, type="convention")
    clock.advance(days=60)
    fresh = await remember_own(rig, "fresh", confidence=0.5)
    await rig.remember("everybody's", KIM)
    await rig.remember("lee's", make_agent("lee"), memory_scope=MemoryScope.AGENT)

    memories, total, *_ = await rig.services.context.list_agent_memories(KIM, MemoryFilter(agent_id="kim"), page=PageSlice(10))
    second, *_ = await rig.services.context.list_agent_memories(KIM, MemoryFilter(agent_id="kim"), page=PageSlice(1, 1))

    assert [memory.id for memory in memories] == [lasting.id, fresh.id, old.id]
    assert (total, [memory.id for memory in second]) == (3, [fresh.id])


async def test_the_own_memories_of_another_agent_need_a_permission(rig: MemoryRig) -> None:
    """The response is 403 unless the key has brain:admin."""
    await remember_own(rig, "mine")

    for call in (
        rig.services.context.list_agent_memories(make_agent("lee"), MemoryFilter(agent_id="kim"), page=PageSlice(1)),
        rig.services.context.boot(make_agent("lee"), MemoryFilter(agent_id="kim"), limit=5),
    ):
        with pytest.raises(PermissionDenied):
            await call
    admin = make_agent("lee", scopes=frozenset({"brain:read", "brain:admin"}))
    assert (await rig.services.context.list_agent_memories(admin, MemoryFilter(agent_id="kim"), page=PageSlice(1)))[1] == 1
    assert (await rig.services.context.list_agent_memories(make_caller(workspace_id=2), MemoryFilter(agent_id="kim"), page=PageSlice(1)))[
        1
    ] == 0


async def test_a_boot_returns_each_kind_of_memory_within_its_scope(rig: MemoryRig, clock: FakeClock) -> None:
    """A boot returns own, shared, recent project and resumed session memories, never archived or foreign ones."""
    own_memory = await remember_own(rig, "mine")
    shared = await rig.remember("shared", memory_scope=MemoryScope.SHARED)
    first = await rig.remember("first of the project")
    clock.advance(seconds=1)
    latest = await rig.remember("latest of the project")
    session_memory = await rig.remember("of the session", memory_scope=MemoryScope.SESSION, session_id="s1")
    await rig.remember("other project", project="other")
    await rig.remember("other org", org="zeta", memory_scope=MemoryScope.SHARED)
    archived = await rig.remember("archived")
    await rig.services.records.archive(make_caller(), archived.id)
    filters = MemoryFilter(agent_id="kim", org="acme", project="web")

    boot = await rig.services.context.boot(KIM, filters, limit=50)
    resumed = await rig.services.context.boot(KIM, MemoryFilter(agent_id="kim", org="acme", project="web", session_id="s1"), limit=50)

    assert [[memory.id for memory in part] for part in (boot.agent, boot.shared, boot.project, boot.session)] == [
        [own_memory.id],
        [shared.id],
        [latest.id, first.id],
        [],
    ]
    assert [memory.id for memory in resumed.session] == [session_memory.id]


@given(st.lists(st.lists(st.integers(), max_size=20), max_size=5), st.integers(min_value=0, max_value=60))
def test_a_budget_is_shared_equally_and_fully_used(lists: list[list[int]], budget: int) -> None:
    """Each list gets a prefix; one that gets less than another has no more elements."""
    parts = share_budget(lists, budget)

    assert sum(map(len, parts)) == min(budget, sum(map(len, lists)))
    assert all(whole[: len(part)] == part for part, whole in zip(parts, lists, strict=True))
    largest = max(map(len, parts), default=0)
    assert all(len(part) >= largest - 1 or part == whole for part, whole in zip(parts, lists, strict=True))


async def test_context_and_boot_over_http(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Context is paged and boot limited by max_memories; strangers get neither."""
    for number in range(3):
        await remember_own(rig, f"memory {number}", confidence=0.3 + number / 10)
    await rig.remember("shared", memory_scope=MemoryScope.SHARED)

    page = (await api.get("/agent/kim/context", params={"per_page": 2, "org": "acme"})).json()
    boot = (await api.get("/agent/kim/boot", params={"max_memories": 2, "org": "acme", "project": "web"})).json()
    denied = await api.get("/agent/kim/boot", headers={"X-Test-Caller": "lee"})
    stranger = (await api.get("/agent/kim/context", headers={"X-Test-Caller": "stranger"})).json()

    assert [memory["content"] for memory in page["data"]] == ["memory 2", "memory 1"]
    assert page["meta"] == {"current_page": 1, "per_page": 2, "total": 3, "next_cursor": IsStr()}
    assert {kind: len(memories) for kind, memories in boot.items()} == {"agent": 1, "shared": 1, "project": 0, "session": 0}
    assert (denied.status_code, denied.json()["error"]) == (403, "permission_denied")
    assert stranger["data"] == []
