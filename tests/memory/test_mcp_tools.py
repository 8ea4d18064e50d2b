from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jsonschema_rs
import orjson
import pytest

from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.memory.models import MemoryScope
from rookery.memory.schemas.requests import MemoriesQuery, RecallBody, RememberBody, SearchQuery
from tests.conftest import Instance
from tests.memory.makers import MemoryRig, make_agent, make_caller, make_memory_api


async def test_an_agent_remembers_recalls_searches_and_forgets(rig: MemoryRig) -> None:
    """Each tool does the same as its REST route, as its caller."""
    server, kim = make_memory_api(rig).server(), make_agent("kim")

    stored = await server.call("remember", {"content": "We deploy on Tuesdays.", "type": "decision"}, kim)
    await rig.run_jobs()
    recalled = await server.call("recall", {"query": "deploy"}, kim)
    searched = await server.call("search", {"query": '"on tuesdays"', "limit": 3}, kim)
    forgotten = await server.call("forget", {"ids": [stored["id"], "nothing"]}, kim)

    assert (stored["agent_id"], stored["indexed"], stored["created_at"]) == ("kim", False, "2026-11-21T09:30:00.000000Z")
    assert [memory["id"] for memory in cast("list[dict[str, object]]", recalled["memories"])] == [stored["id"]]
    assert searched["total"] == 1
    assert forgotten == {"forgotten": [stored["id"]], "missing": ["nothing"]}
    assert (await server.call("search", {"query": "deploy"}, kim))["total"] == 0


async def test_an_agent_finds_its_own_memories_without_an_agent_id(rig: MemoryRig) -> None:
    """Recall and search include the caller's own memories, and no other agent's."""
    server = make_memory_api(rig).server()
    await rig.remember("kim knows herons", make_agent("kim"), memory_scope=MemoryScope.AGENT)
    await rig.run_jobs()

    async def count_found(agent_id: str) -> tuple[int, object]:
        recalled = await server.call("recall", {"query": "herons"}, make_agent(agent_id))
        searched = await server.call("search", {"query": "herons"}, make_agent(agent_id))
        return len(cast("list[object]", recalled["memories"])), searched["total"]

    assert (await count_found("kim"), await count_found("lee")) == ((1, 1), (0, 0))


async def test_the_schemas_are_valid_and_match_the_rest_routes(rig: MemoryRig) -> None:
    """The schemas are valid JSON Schemas without fields that the REST route lacks. Results have a schema too."""
    rest_models = {"remember": RememberBody, "recall": RecallBody, "search": SearchQuery, "list": MemoriesQuery}
    for tool in make_memory_api(rig).server().tools():
        jsonschema_rs.meta.validate(dict(tool.input_schema))
        jsonschema_rs.meta.validate(dict(tool.output_schema))
        assert tool.output_schema["properties"]
        if tool.name in rest_models:
            names = {
                "q" if name == "query" and tool.name == "search" else name
                for name in cast("dict[str, object]", tool.input_schema["properties"])
            }
            assert names - {"max_tokens"} <= set(rest_models[tool.name].model_fields)


async def test_the_hints_and_scopes_are_correct(rig: MemoryRig) -> None:
    """Read-only and destructive tools are marked; the scope is that of the REST route."""
    assert {
        tool.name: (tool.required_scope, tool.annotations["readOnlyHint"], tool.annotations.get("destructiveHint", False))
        for tool in make_memory_api(rig).server().tools()
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


async def test_the_tools_cover_the_life_cycle_of_a_memory(rig: MemoryRig) -> None:
    """There are tools for context, feedback, get, change, archive, restore, list, history, tags and scopes."""
    server, kim = make_memory_api(rig).server(), make_agent("kim")
    memory = await rig.remember("kim's own", kim, memory_scope=MemoryScope.AGENT, tags=("birds",))
    await rig.run_jobs()
    recall = await server.call("recall", {"query": "own"}, kim)

    feedback = await server.call("feedback", {"recall_id": recall["recall_id"], "used": [memory.id]}, kim)
    context = await server.call("context", {"org": "acme"}, kim)
    context_without_agent = await server.call("context", {}, make_caller())
    changed = await server.call("change", {"id": memory.id, "content": "kim's herons"}, kim)
    read = await server.call("get", {"id": memory.id.upper()}, kim)
    archived = await server.call("archive", {"id": memory.id}, kim)
    archived_list = await server.call("list", {"state": "archived"}, kim)
    await server.call("restore", {"id": memory.id}, kim)
    first_page = await server.call("list", {"per_page": 1}, kim)
    history = await server.call("history", {"id": memory.id}, kim)
    tags, scopes = await server.call("tags", {}, kim), await server.call("scopes", {}, kim)

    assert feedback["used"] == [memory.id]
    assert [memory["id"] for memory in cast("list[dict[str, object]]", context["agent"])] == [memory.id]
    assert context_without_agent == {"agent": [], "shared": [], "project": [], "session": []}
    assert changed["content"] == read["content"] == "kim's herons"
    assert (archived["state"], archived_list["total"], first_page["total"], history["count"]) == ("archived", 1, 1, 1)
    assert tags == {"tags": [{"name": "birds", "count": 1}]}
    assert scopes == {"scopes": [{"org": "acme", "count": 1, "projects": [{"name": "web", "count": 1}]}]}


async def test_tools_accept_times_and_null_to_clear_fields(rig: MemoryRig) -> None:
    """As in REST, since and until filter memories, and null clears org, project and expiry."""
    server = make_memory_api(rig).server()
    memory = await rig.remember("The heron nests.", org="acme", expires_in=1.0)
    schemas = {tool.name: dict(tool.input_schema) for tool in server.tools()}

    async def call(tool: str, **arguments: object) -> Mapping[str, object]:
        assert jsonschema_rs.is_valid(schemas[tool], arguments)
        return await server.call(tool, arguments, make_caller())

    matching, excluding = {"since": "2000-01-01"}, {"until": "2000-01-01T00:00:00Z"}
    counts = [
        len(cast("list[object]", (await call(tool, **arguments, **period))[name]))
        for tool, name, arguments in (
            ("recall", "memories", {"query": "heron", "mode": "keyword", "boost_keywords": 0.5, "keywords": ["nest"]}),
            ("search", "hits", {"query": "heron", "limit": 5}),
            ("list", "memories", {}),
        )
        for period in (matching, excluding)
    ]
    changed = await call("change", id=memory.id, org=None, project=None, expires_in=None)

    assert counts == [1, 0] * 3
    assert (changed["org"], changed["project"], changed["expires_at"]) == (None, None, None)


async def test_tools_do_not_give_access_to_another_agents_own_memories(rig: MemoryRig) -> None:
    """Lee cannot read, change, archive or delete kim's private memory; the tools respond as if it did not exist."""
    server = make_memory_api(rig).server()
    memory = await rig.remember("kim's own", make_agent("kim"), memory_scope=MemoryScope.AGENT)

    for tool in ("get", "archive", "restore", "history"):
        with pytest.raises(NotFound):
            await server.call(tool, {"id": memory.id}, make_agent("lee"))
    with pytest.raises(NotFound):
        await server.call("change", {"id": memory.id, "content": "lee's"}, make_agent("lee"))
    forgotten = await server.call("forget", {"ids": [memory.id]}, make_agent("lee"))

    assert forgotten == {"forgotten": [], "missing": [memory.id]}


async def test_tools_raise_the_errors_of_the_rest_routes(rig: MemoryRig) -> None:
    """Invalid arguments and unknown tools raise the same errors as in REST."""
    with pytest.raises(ValidationFailed):
        await make_memory_api(rig).server().call("remember", {"content": "c", "type": "fact", "memory_scope": "session"}, make_caller())
    with pytest.raises(ValidationFailed):
        await make_memory_api(rig).server().call("remember", {"content": " ", "type": "fact"}, make_caller())
    with pytest.raises(NotFound):
        await make_memory_api(rig).server().call("nothing", {}, make_caller())


@pytest.mark.parametrize(
    ("tool", "arguments", "items", "size"),
    [("list", {"per_page": 5}, "memories", "per_page"), ("search", {"query": "herons", "limit": 5}, "hits", "limit")],
)
async def test_a_list_continues_after_the_last_memory_that_fits(
    rig: MemoryRig, tool: str, arguments: dict[str, object], items: str, size: str
) -> None:
    """Memories that do not fit the budget are on the next page, also if the page is the last one."""
    server, kim = make_memory_api(rig).server(), make_agent("kim")
    stored = [await rig.remember(f"Note {number} about herons. " + "Text of 24 characters. " * 400) for number in range(8)]
    await rig.run_jobs()
    for form in ("text", "structured"):
        seen, counts, more = list[str](), list[int](), dict[str, object]()
        for _ in range(len(stored)):
            call = {**arguments, **more, "max_tokens": 400}
            rendered = server.render(tool, await server.call(tool, call, kim), call)
            shown = cast("dict[str, Any]", orjson.loads(rendered.text) if form == "text" else rendered.structured)
            assert len(orjson.dumps(shown)) <= 1600
            seen += [memory["id"] for memory in shown[items]]
            counts.append(len(shown[items]))
            if "next_cursor" not in shown:
                break
            more = {"cursor": shown["next_cursor"]}

        assert sorted(seen) == sorted(memory.id for memory in stored), form
        assert max(counts) < cast("int", arguments[size])
    whole = await server.call(tool, {**arguments, size: 8}, kim)
    assert (len(cast("list[object]", whole[items])), whole.get("next_cursor")) == (8, None)


async def test_a_number_without_a_fraction_is_an_integer(instance: Instance) -> None:
    """The schemas say integer, and for JSON Schema 3.0 is one (draft 6, section 4.2.1): in tools and over HTTP, alone and in a list."""
    admin = instance.admin
    await admin.remember("The crane lifts tons.")
    recalled = await admin.post("/v1/brain/recall", {"query": "crane", "top_k": 3.0, "max_tokens": 500.0})
    batch = await admin.post("/v1/brain/remember/batch", {"memories": [{"content": "One.", "expires_in": 3.0}], "wait_ms": 1.0})
    calls = [
        {"server": "brain", "tool": "recall", "arguments": {"query": "crane", "top_k": 3.0, "max_tokens": 500.0}},
        {"server": "brain", "tool": "list", "arguments": {"per_page": 2.0, "max_tokens": 500.0}},
    ]
    results = [(await admin.post("/api/v1/mcp/tools/call", call)).json()["result"] for call in calls]
    refused = await admin.post("/v1/brain/recall", {"query": "crane", "top_k": 3.5})

    assert (recalled.status_code, len(recalled.json()["memories"])) == (200, 1)
    assert [result["status"] for result in batch.json()["results"]] == [201]
    assert [result["isError"] for result in results] == [False, False], results
    assert (refused.status_code, "integer" in refused.text) == (422, True)


async def test_an_empty_text_means_not_set_where_no_text_may_be_empty(rig: MemoryRig) -> None:
    """Models send an empty text for an argument that they do not need. A required one stays an error."""
    server, kim = make_memory_api(rig).server(), make_agent("kim")
    empty = dict.fromkeys(("project", "org", "agent_id", "type", "source", "supersedes_id", "session_id", "memory_scope"), "")
    stored = await server.call("remember", {"content": "We deploy on Tuesdays.", **empty}, kim)
    await rig.run_jobs()
    found = await server.call("recall", {"query": "deploy", **dict.fromkeys(("project", "org", "type", "since", "agent_id"), "")}, kim)

    assert (stored["project"], stored["org"], stored["agent_id"], stored["memory_scope"]) == (None, None, "kim", "project")
    assert [memory["id"] for memory in cast("list[dict[str, object]]", found["memories"])] == [stored["id"]]
    with pytest.raises(ValidationFailed, match="content"):
        await server.call("remember", {"content": ""}, kim)
