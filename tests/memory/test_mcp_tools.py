from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import jsonschema_rs
import pytest

from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.memory.mcp_tools import BrainServer
from rookery.memory.mcp_tools.definitions import TOOLS
from rookery.memory.models import MemoryScope
from rookery.memory.schemas.requests import MemoriesQuery, RecallBody, RememberBody, SearchQuery
from tests.memory.makers import MemoryRig, make_agent, make_caller


def _server(rig: MemoryRig) -> BrainServer:
    brain = rig.services
    return BrainServer(
        remember=brain.remember,
        records=brain.records,
        recall=brain.recall,
        search=brain.search,
        listing=brain.listing,
        feedback=brain.feedback,
        context=brain.context,
        serializer=brain.serializer,
    )


async def test_an_agent_remembers_recalls_searches_and_forgets(rig: MemoryRig) -> None:
    """D-92: each tool is its REST twin, as its caller."""
    server, kim = _server(rig), make_agent("kim")

    stored = await server.call("remember", {"content": "We deploy on Tuesdays.", "type": "decision"}, kim)
    await rig.run_jobs()
    recalled = await server.call("recall", {"query": "deploy"}, kim)
    searched = await server.call("search", {"query": '"on tuesdays"', "limit": 3}, kim)
    forgotten = await server.call("forget", {"ids": [stored["id"], "nothing"]}, kim)

    assert (stored["agent_id"], stored["indexed"], stored["created_at"]) == ("kim", False, "2026-11-21T09:30:00.000000Z")
    assert [each["id"] for each in cast("list[dict[str, object]]", recalled["memories"])] == [stored["id"]]
    assert searched["total"] == 1
    assert forgotten == {"forgotten": [stored["id"]], "missing": ["nothing"]}
    assert (await server.call("search", {"query": "deploy"}, kim))["total"] == 0


async def test_an_agents_own_memories_count_without_being_named(rig: MemoryRig) -> None:
    """D-92 and D-43: an agent's search includes its own memories, and no other agent's."""
    server = _server(rig)
    await rig.remember("kim knows herons", make_agent("kim"), memory_scope=MemoryScope.AGENT)
    await rig.run_jobs()

    async def found(agent_id: str) -> tuple[int, object]:
        recalled = await server.call("recall", {"query": "herons"}, make_agent(agent_id))
        searched = await server.call("search", {"query": "herons"}, make_agent(agent_id))
        return len(cast("list[object]", recalled["memories"])), searched["total"]

    assert (await found("kim"), await found("lee")) == ((1, 1), (0, 0))


def test_the_schemas_are_valid_and_say_what_the_rest_twins_take() -> None:
    """D-92: real JSON Schemas; no field that the twin has not."""
    twins = {"remember": RememberBody, "recall": RecallBody, "search": SearchQuery, "list": MemoriesQuery}
    for tool in TOOLS:
        jsonschema_rs.meta.validate(dict(tool.input_schema))
        assert tool.input_schema["additionalProperties"] is False
        if tool.name in twins:
            names = {
                "q" if name == "query" and tool.name == "search" else name
                for name in cast("dict[str, object]", tool.input_schema["properties"])
            }
            assert names <= set(twins[tool.name].model_fields)


def test_the_hints_and_scopes_are_true() -> None:
    """D-92: what only reads says so, what destroys too; the scope is the REST twin's."""
    assert {
        tool.name: (tool.required_scope, tool.annotations["readOnlyHint"], tool.annotations.get("destructiveHint", False)) for tool in TOOLS
    } == {
        "remember": ("brain:write", False, False),
        "recall": ("brain:read", True, False),
        "search": ("brain:read", True, False),
        "forget": ("brain:delete", False, True),
        "feedback": ("brain:write", False, False),
        "context": ("brain:read", True, False),
        "get": ("brain:read", True, False),
        "list": ("brain:read", True, False),
        "change": ("brain:write", False, True),
        "archive": ("brain:delete", False, False),
        "restore": ("brain:delete", False, False),
        "history": ("brain:read", True, False),
        "tags": ("brain:read", True, False),
        "scopes": ("brain:read", True, False),
    }


async def test_the_rest_of_a_memory_s_life_is_there_too(rig: MemoryRig) -> None:
    """D-92: all of memory: context, feedback, one memory read, changed, archived, brought back, its lineage, and what words are in use."""
    server, kim = _server(rig), make_agent("kim")
    mine = await rig.remember("kim's own", kim, memory_scope=MemoryScope.AGENT, tags=("birds",))
    await rig.run_jobs()
    recall = await server.call("recall", {"query": "own"}, kim)

    judged = await server.call("feedback", {"recall_id": recall["recall_id"], "used": [mine.id]}, kim)
    begun = await server.call("context", {"org": "acme"}, kim)
    nobody = await server.call("context", {}, make_caller())
    changed = await server.call("change", {"id": mine.id, "content": "kim's herons"}, kim)
    got = await server.call("get", {"id": mine.id.upper()}, kim)
    archived = await server.call("archive", {"id": mine.id}, kim)
    shelf = await server.call("list", {"state": "archived"}, kim)
    await server.call("restore", {"id": mine.id}, kim)
    listed = await server.call("list", {"per_page": 1}, kim)
    history = await server.call("history", {"id": mine.id}, kim)
    tags, scopes = await server.call("tags", {}, kim), await server.call("scopes", {}, kim)

    assert judged["used"] == [mine.id]
    assert [memory["id"] for memory in cast("list[dict[str, object]]", begun["agent"])] == [mine.id]
    assert nobody == {"agent": [], "shared": [], "project": [], "session": []}
    assert changed["content"] == got["content"] == "kim's herons"
    assert (archived["state"], shelf["total"], listed["total"], history["count"]) == ("archived", 1, 1, 1)
    assert tags == {"tags": [{"name": "birds", "count": 1}]}
    assert scopes == {"scopes": [{"org": "acme", "count": 1, "projects": [{"name": "web", "count": 1}]}]}


async def test_a_tool_takes_times_and_takes_away_what_may_be_none(rig: MemoryRig) -> None:
    """D-92: as the REST twins: since and until where memories are looked for; null for an org, a project, an expiry that go."""
    server = _server(rig)
    memory = await rig.remember("The heron nests.", org="acme", expires_in_h=1.0)
    schemas = {tool.name: dict(tool.input_schema) for tool in TOOLS}

    async def call(tool: str, **arguments: object) -> Mapping[str, object]:
        assert jsonschema_rs.is_valid(schemas[tool], arguments)
        return await server.call(tool, arguments, make_caller())

    late, early = {"since": "2000-01-01"}, {"until": "2000-01-01T00:00:00Z"}
    found = [
        len(cast("list[object]", (await call(tool, **asked, **when))[name]))
        for tool, name, asked in (
            ("recall", "memories", {"query": "heron", "mode": "keyword", "boost_keywords": 0.5, "keywords": ["nest"]}),
            ("search", "hits", {"query": "heron", "limit": 5}),
            ("list", "memories", {}),
        )
        for when in (late, early)
    ]
    changed = await call("change", id=memory.id, org=None, project=None, expires_in=None)

    assert found == [1, 0] * 3
    assert (changed["org"], changed["project"], changed["expires_at"]) == (None, None, None)


async def test_nobody_reaches_another_agent_s_own_by_these_tools(rig: MemoryRig) -> None:
    """D-43: lee neither reads, changes, archives nor deletes what is kim's; it is as if it were not there."""
    server = _server(rig)
    mine = await rig.remember("kim's own", make_agent("kim"), memory_scope=MemoryScope.AGENT)

    for tool in ("get", "archive", "restore", "history"):
        with pytest.raises(NotFound):
            await server.call(tool, {"id": mine.id}, make_agent("lee"))
    with pytest.raises(NotFound):
        await server.call("change", {"id": mine.id, "content": "lee's"}, make_agent("lee"))
    forgotten = await server.call("forget", {"ids": [mine.id]}, make_agent("lee"))

    assert forgotten == {"forgotten": [], "missing": [mine.id]}


async def test_what_a_tool_refuses_it_says_in_words(rig: MemoryRig) -> None:
    """D-10: the twin's errors."""
    with pytest.raises(ValidationFailed):
        await _server(rig).call("remember", {"content": "c", "type": "fact", "memory_scope": "session"}, make_caller())
    with pytest.raises(ValidationFailed):
        await _server(rig).call("remember", {"content": " ", "type": "fact"}, make_caller())
    with pytest.raises(NotFound):
        await _server(rig).call("nothing", {}, make_caller())
