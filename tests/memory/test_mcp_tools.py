from __future__ import annotations

from typing import cast

import jsonschema_rs
import pytest

from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.memory.mcp_tools import TOOLS, BrainServer
from rookery.memory.models import MemoryScope
from rookery.memory.schemas import RecallBody, RememberBody, SearchQuery
from tests.memory.makers import Rig, make_agent, make_caller


def _server(rig: Rig) -> BrainServer:
    brain = rig.brain
    return BrainServer(remember=brain.remember, records=brain.records, recall=brain.recall, search=brain.search, answers=brain.answers)


async def test_an_agent_remembers_recalls_searches_and_forgets(rig: Rig) -> None:
    """D-92: each tool is its REST twin, as its caller."""
    server, kim = _server(rig), make_agent("kim")

    stored = await server.call("remember", {"content": "We deploy on Tuesdays.", "type": "decision"}, kim)
    await rig.index()
    recalled = await server.call("recall", {"query": "deploy"}, kim)
    searched = await server.call("search", {"query": '"on tuesdays"', "limit": 3}, kim)
    forgotten = await server.call("forget", {"ids": [stored["id"], "nothing"]}, kim)

    assert (stored["agent_id"], stored["indexed"], stored["created_at"]) == ("kim", False, "2026-11-21T09:30:00.000000Z")
    assert [each["id"] for each in cast("list[dict[str, object]]", recalled["memories"])] == [stored["id"]]
    assert searched["total"] == 1
    assert forgotten == {"forgotten": [stored["id"]], "missing": ["nothing"]}
    assert (await server.call("search", {"query": "deploy"}, kim))["total"] == 0


async def test_an_agents_own_memories_count_without_being_named(rig: Rig) -> None:
    """D-92 and D-43: an agent that asks its memory means its own, too; nobody else's."""
    server = _server(rig)
    await rig.remember("kim knows herons", make_agent("kim"), memory_scope=MemoryScope.AGENT)
    await rig.index()

    async def found(agent_id: str) -> tuple[int, object]:
        recalled = await server.call("recall", {"query": "herons"}, make_agent(agent_id))
        searched = await server.call("search", {"query": "herons"}, make_agent(agent_id))
        return len(cast("list[object]", recalled["memories"])), searched["total"]

    assert (await found("kim"), await found("lee")) == ((1, 1), (0, 0))


def test_the_schemas_are_valid_and_say_what_the_rest_twins_take() -> None:
    """D-92: real JSON Schemas; no field that the twin has not."""
    twins = {"remember": RememberBody, "recall": RecallBody, "search": SearchQuery}
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
        tool.name: (tool.needs, tool.annotations["readOnlyHint"], tool.annotations.get("destructiveHint", False)) for tool in TOOLS
    } == {
        "remember": ("brain:write", False, False),
        "recall": ("brain:read", True, False),
        "search": ("brain:read", True, False),
        "forget": ("brain:delete", False, True),
    }


async def test_what_a_tool_refuses_it_says_in_words(rig: Rig) -> None:
    """D-10: the twin's errors."""
    with pytest.raises(ValidationFailed):
        await _server(rig).call("remember", {"content": "c", "type": "fact", "memory_scope": "session"}, make_caller())
    with pytest.raises(ValidationFailed):
        await _server(rig).call("remember", {"content": " ", "type": "fact"}, make_caller())
    with pytest.raises(NotFound):
        await _server(rig).call("nothing", {}, make_caller())
