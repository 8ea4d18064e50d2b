from __future__ import annotations

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.errors import PermissionDenied
from rookery.memory.agent_context import share_budget
from rookery.memory.models import Memory, MemoryFilter, MemoryScope
from tests.conftest import FakeClock
from tests.memory.makers import MemoryRig, make_agent, make_caller

KIM = make_agent("kim")


async def own(rig: MemoryRig, content: str, **fields: object) -> Memory:
    """Store a memory that is kim's own."""
    return await rig.remember(content, KIM, memory_scope=MemoryScope.AGENT, **fields)


async def test_an_agent_s_own_memories_come_surest_first_as_age_leaves_them(rig: MemoryRig, clock: FakeClock) -> None:
    """Spec 4.3 and D-48: by effective confidence: an old observation stands behind a fresh one that was less sure."""
    old = await own(rig, "old", confidence=0.9)
    lasting = await own(rig, "lasting", confidence=0.6, type="convention")
    clock.advance(days=60)
    fresh = await own(rig, "fresh", confidence=0.5)
    await rig.remember("everybody's", KIM)
    await rig.remember("lee's", make_agent("lee"), memory_scope=MemoryScope.AGENT)

    memories, total = await rig.services.context.list_agent_memories(KIM, MemoryFilter(agent_id="kim"), limit=10, offset=0)
    second, _ = await rig.services.context.list_agent_memories(KIM, MemoryFilter(agent_id="kim"), limit=1, offset=1)

    assert [memory.id for memory in memories] == [lasting.id, fresh.id, old.id]
    assert (total, [memory.id for memory in second]) == (3, [fresh.id])


async def test_another_agent_s_own_need_a_permission(rig: MemoryRig) -> None:
    """D-43: 403, unless the key has brain:admin."""
    await own(rig, "mine")

    for ask in (
        rig.services.context.list_agent_memories(make_agent("lee"), MemoryFilter(agent_id="kim"), limit=1, offset=0),
        rig.services.context.boot(make_agent("lee"), MemoryFilter(agent_id="kim"), limit=5),
    ):
        with pytest.raises(PermissionDenied):
            await ask
    admin = make_agent("lee", scopes=frozenset({"brain:read", "brain:admin"}))
    assert (await rig.services.context.list_agent_memories(admin, MemoryFilter(agent_id="kim"), limit=1, offset=0))[1] == 1
    assert (await rig.services.context.list_agent_memories(make_caller(workspace_id=2), MemoryFilter(agent_id="kim"), limit=1, offset=0))[
        1
    ] == 0


async def test_a_boot_has_each_kind_within_its_space(rig: MemoryRig, clock: FakeClock) -> None:
    """Spec 4.3: own, the org's shared, the project's latest, and the session's when resuming; archived and foreign ones never."""
    mine = await own(rig, "mine")
    everybody = await rig.remember("shared", memory_scope=MemoryScope.SHARED)
    first = await rig.remember("first of the project")
    clock.advance(seconds=1)
    latest = await rig.remember("latest of the project")
    noted = await rig.remember("of the session", memory_scope=MemoryScope.SESSION, session_id="s1")
    await rig.remember("other project", project="other")
    await rig.remember("other org", org="zeta", memory_scope=MemoryScope.SHARED)
    archived = await rig.remember("archived")
    await rig.services.records.archive(make_caller(), archived.id)
    filters = MemoryFilter(agent_id="kim", org="acme", project="web")

    boot = await rig.services.context.boot(KIM, filters, limit=50)
    resumed = await rig.services.context.boot(KIM, MemoryFilter(agent_id="kim", org="acme", project="web", session_id="s1"), limit=50)

    assert [[memory.id for memory in part] for part in (boot.agent, boot.shared, boot.project, boot.session)] == [
        [mine.id],
        [everybody.id],
        [latest.id, first.id],
        [],
    ]
    assert [memory.id for memory in resumed.session] == [noted.id]


@given(st.lists(st.lists(st.integers(), max_size=20), max_size=5), st.integers(min_value=0, max_value=60))
def test_a_budget_is_shared_equally_and_nothing_of_it_is_wasted(lists: list[list[int]], budget: int) -> None:
    """D-48: beginnings, together as many as there are or the budget has; who got less than another had no more."""
    parts = share_budget(lists, budget)

    assert sum(map(len, parts)) == min(budget, sum(map(len, lists)))
    assert all(whole[: len(part)] == part for part, whole in zip(parts, lists, strict=True))
    most = max(map(len, parts), default=0)
    assert all(len(part) >= most - 1 or part == whole for part, whole in zip(parts, lists, strict=True))


async def test_over_http(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """D-48: a page of the agent's own; a boot within max_memories; for a stranger neither."""
    for number in range(3):
        await own(rig, f"memory {number}", confidence=0.3 + number / 10)
    await rig.remember("shared", memory_scope=MemoryScope.SHARED)

    page = (await api.get("/agent/kim/context", params={"per_page": 2, "org": "acme"})).json()
    boot = (await api.get("/agent/kim/boot", params={"max_memories": 2, "org": "acme", "project": "web"})).json()
    denied = await api.get("/agent/kim/boot", headers={"X-Test-Caller": "lee"})
    stranger = (await api.get("/agent/kim/context", headers={"X-Test-Caller": "stranger"})).json()

    assert [memory["content"] for memory in page["data"]] == ["memory 2", "memory 1"]
    assert page["meta"] == {"current_page": 1, "per_page": 2, "total": 3}
    assert {kind: len(memories) for kind, memories in boot.items()} == {"agent": 1, "shared": 1, "project": 0, "session": 0}
    assert (denied.status_code, denied.json()["error"]) == (403, "permission_denied")
    assert stranger["data"] == []
