"""The map of memories: similar ones near each other, only what the key may see, and a stratified sample of many."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest

from rookery.access.models import KeyRestrictions
from rookery.engines.similarity.projection import project_vectors
from rookery.memory.build import MemoryServices
from rookery.memory.memory_map import MapLayouts
from rookery.memory.models import MemoryFilter
from rookery.memory.ports import MapProjection
from tests.conftest import Caller, Instance, eventually
from tests.deadlines import HANG_S
from tests.memory.makers import make_caller

TOPICS = {
    "harbor": "The crane on the pier lifts {} containers from the ship.",
    "kitchen": "The soup with onions and garlic simmers for {} minutes in the pan.",
}


class CountedLock(asyncio.Lock):
    """A lock that counts who asked for it."""

    acquire_count = 0

    async def acquire(self) -> Literal[True]:
        """Count, then wait."""
        self.acquire_count += 1
        return await super().acquire()


async def fill(caller: Caller, number: int = 20) -> None:
    """Store *number* memories of each topic."""
    memories = [
        {"content": text.format(position), "type": "fact", "project": project}
        for project, text in TOPICS.items()
        for position in range(number)
    ]
    response = await caller.post("/v1/brain/remember/batch", {"memories": memories, "wait_ms": 5000})
    assert {item["status"] for item in response.json()["results"]} == {201}


async def draw(caller: Caller, query: str = "") -> dict[str, Any]:
    """Return a map."""
    response = await caller.get(f"/v1/brain/map?{query}")
    assert response.status_code == 200, response.text
    return response.json()


def list_points(drawn: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the coordinates of each point."""
    return list(zip(drawn["coordinates"][::2], drawn["coordinates"][1::2], strict=True))


async def test_similar_memories_are_near_each_other(instance: Instance) -> None:
    """The nearest point of each memory is one of its own topic, and the clusters have the words of the topics."""
    await fill(instance.admin)
    drawn = await draw(instance.admin)
    points, groups = list_points(drawn), drawn["point_groups"]
    assert (drawn["total"], drawn["unplaced"], len(points), len(set(drawn["ids"]))) == (40, 0, 40, 40)
    assert drawn["groups"] == [{"name": "harbor", "count": 20}, {"name": "kitchen", "count": 20}]
    assert all(-32767 <= number <= 32767 for point in points for number in point)
    for index, (x, y) in enumerate(points):
        others = [other for other in range(len(points)) if other != index]
        nearest = min(others, key=lambda other: (points[other][0] - x) ** 2 + (points[other][1] - y) ** 2)
        assert groups[nearest] == groups[index]
    words = {word for cluster in drawn["clusters"] for word in cluster["words"]}
    assert words & {"crane", "pier", "containers", "ship", "lifts"}
    assert words & {"soup", "onions", "garlic", "simmers", "pan", "minutes"}
    assert sum(cluster["count"] for cluster in drawn["clusters"]) == 40
    assert await draw(instance.admin) == drawn, "the same memories have the same map"


async def test_no_two_clusters_have_the_same_name(instance: Instance) -> None:
    """A topic is one cluster, also if its points are spread; each point is in a cluster, and the largest cluster is first."""
    await fill(instance.admin, 60)
    drawn = await draw(instance.admin)
    names = [frozenset(cluster["words"][:3]) for cluster in drawn["clusters"] if cluster["words"]]
    assert names
    assert len(names) == len(set(names)), drawn["clusters"]
    counts = [cluster["count"] for cluster in drawn["clusters"]]
    assert counts == sorted(counts, reverse=True)
    assert Counter(drawn["point_clusters"]) == dict(enumerate(counts))


async def test_filters_and_colors(instance: Instance) -> None:
    """The filters are those of the list; *by* colours by type; a map of nothing is empty."""
    await fill(instance.admin, 3)
    assert (await draw(instance.admin, "project=harbor"))["total"] == 3
    assert (await draw(instance.admin, "by=type"))["groups"] == [{"name": "fact", "count": 6}]
    empty = await draw(instance.admin, "type=plan")
    assert (empty["total"], empty["ids"], empty["clusters"]) == (0, [], [])
    assert (await instance.admin.get("/v1/brain/map?by=color")).status_code == 422
    assert (await instance.admin.get("/v1/brain/map?limit=5001")).status_code == 422


async def test_a_sample_has_the_shares_of_the_groups(instance: Instance) -> None:
    """Place a sample, stratified by group, of more memories than the limit, and state the total."""
    await fill(instance.admin, 20)
    drawn = await draw(instance.admin, "limit=10")
    assert (drawn["total"], len(drawn["ids"])) == (40, 10)
    assert Counter(drawn["point_groups"]) == {0: 5, 1: 5}


async def test_only_visible_memories_are_placed(instance: Instance) -> None:
    """No point for archived memories, those of others' agents and sessions, other projects than the key's, or other workspaces."""
    await fill(instance.admin, 2)
    archived = await instance.admin.remember("An archived crane.", project="harbor")
    await instance.admin.send("POST", f"/v1/brain/memories/{archived['id']}/archive")
    await instance.admin.remember("The crane of an agent.", memory_scope="agent", agent_id="other")
    await instance.admin.remember("The crane of a session.", memory_scope="session", session_id="private")
    assert (await draw(instance.admin))["total"] == 4
    assert (await draw(instance.admin, "agent_id=*"))["total"] == 5
    key = await instance.api_key("brain:read", restrictions=KeyRestrictions(projects=frozenset({"kitchen"})))
    assert [group["name"] for group in (await draw(key))["groups"]] == ["kitchen"]
    stranger = await instance.api_key("*", workspace_id=await instance.workspace("Second"))
    assert (await draw(stranger))["total"] == 0


async def test_a_deleted_memory_leaves_the_map(instance: Instance) -> None:
    """The next map has neither the point nor the words of a deleted memory."""
    await fill(instance.admin, 2)
    secret = await instance.admin.remember("xylophone", project="harbor")
    assert "xylophone" in str((await draw(instance.admin, "limit=5"))["clusters"]) or secret["id"] in (await draw(instance.admin))["ids"]
    await instance.admin.send("DELETE", f"/v1/brain/memories/{secret['id']}")
    drawn = await draw(instance.admin)
    assert secret["id"] not in drawn["ids"]
    assert "xylophone" not in str(drawn["clusters"])


async def test_a_stored_map_does_not_wait_for_another_map(instance: Instance) -> None:
    """A layout takes seconds. Meanwhile, maps whose layout is stored are drawn, and a cancelled request starts no second computation."""
    await fill(instance.admin, 3)
    may_end, calls = threading.Event(), list[int]()

    def project_slowly(items: Sequence[Sequence[bytes]]) -> MapProjection:
        calls.append(len(items))
        if len(items) > 3:
            may_end.wait(HANG_S)
        return project_vectors(items)

    memory_map = replace(instance.rookery.runtime.use(MemoryServices).map, project_vectors=project_slowly)
    caller = make_caller(workspace_id=instance.workspace_id)
    harbor, everything = MemoryFilter(project="harbor"), MemoryFilter()
    await memory_map.draw(caller, harbor, by="type")
    first = asyncio.create_task(memory_map.draw(caller, everything, by="type"))
    try:
        await eventually(lambda: len(calls) == 2)
        assert len((await memory_map.draw(caller, harbor, by="type")).ids) == 3
        first.cancel()
        second = asyncio.create_task(memory_map.draw(caller, everything, by="type"))
    finally:
        may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await first

    assert len((await second).ids) == 6
    assert calls == [3, 6]


async def test_workspaces_take_turns(instance: Instance) -> None:
    """The map of a workspace is drawn after the one that is computed, before further ones of another workspace."""
    await fill(instance.admin, 3)
    other_id = await instance.workspace("other")
    await fill(await instance.api_key("brain:read", "brain:write", workspace_id=other_id), 2)
    may_end, sizes = threading.Event(), list[int]()

    def project_slowly(items: Sequence[Sequence[bytes]]) -> MapProjection:
        sizes.append(len(items))
        may_end.wait(HANG_S)
        return project_vectors(items)

    lock = CountedLock()
    service = instance.rookery.runtime.use(MemoryServices).map
    memory_map = replace(service, project_vectors=project_slowly, layouts=MapLayouts(lock=lock))
    caller, other = make_caller(workspace_id=instance.workspace_id), make_caller(workspace_id=other_id)
    filters = [MemoryFilter(), *(MemoryFilter(project=project) for project in TOPICS)]
    async with asyncio.TaskGroup() as group:
        first, *rest = [group.create_task(memory_map.draw(caller, one, by="type")) for one in filters]
        await eventually(lambda: len(sizes) == 1)
        last = group.create_task(memory_map.draw(other, MemoryFilter(), by="type"))
        await eventually(lambda: lock.acquire_count == 2)  # the first holds it, and the last waits for it
        may_end.set()

    assert [len(task.result().ids) for task in (first, *rest, last)] == [6, 3, 3, 4]
    assert sizes[1] == 4, "the second map is that of the other workspace"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 13, 700])
@pytest.mark.parametrize("is_equal", [True, False])
def test_any_vectors_are_projected(count: int, *, is_equal: bool) -> None:
    """Few, many, and equal vectors have places within the range, and clusters numbered from 0 by size."""
    generator = random.Random(count)
    vectors = [np.array([1.0 if is_equal else generator.gauss(0, 1) for _ in range(8)], "<f4").tobytes() for _ in range(count)]
    projection = project_vectors([(vector, vector) for vector in vectors])
    assert len(projection.coordinates) == len(projection.clusters) == count
    assert all(-32767 <= number <= 32767 for pair in projection.coordinates for number in pair)
    sizes = [size for _, size in sorted(Counter(projection.clusters).items())]
    assert all(one >= other for one, other in pairwise(sizes))
