"""Schemas and further fields of tool servers arrive as their authors wrote them, and arguments that are not set may be null."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import httpx2
import pytest
from openapi_spec_validator import validate

from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.tools.gateway.clients import LATER, Json, post_later
from tests.tools.servers import dialects

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", LATER)
LISTS = (
    ("tools/list", "tools", dialects.TOOLS),
    ("resources/list", "resources", dialects.RESOURCES),
    ("resources/templates/list", "resourceTemplates", dialects.TEMPLATES),
    ("prompts/list", "prompts", dialects.PROMPTS),
)
BASE = "/api/v1/mcp"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server with the tool server of unusual schemas."""
    folder = tmp_path_factory.mktemp("dialects")
    entry = {"command": sys.executable, "args": ["-I", "-S", "-u", dialects.__file__]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"dialects": entry}}))
    with run_server(folder) as server:
        give_up_at = time.monotonic() + HANG_S
        while time.monotonic() < give_up_at and not server.client.get(f"{BASE}/servers/dialects/tools").json()["tools"]:
            pass  # each request waits up to 5 s for the list
        yield server


async def send(gateway: Server, revision: str, path: str, method: str, params: Mapping[str, object]) -> Json:
    """Send one request in a revision of the protocol, in a session of its own if the revision has sessions; return the response."""
    if revision == LATER:
        return await post_later(gateway, method, params, path)
    headers = {"Authorization": f"Bearer {gateway.keys['agent_key']}", "Accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with httpx2.AsyncClient(timeout=HANG_S, headers=headers) as http:
        first = await http.post(gateway.url + path, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        session = {"Mcp-Session-Id": first.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
        await http.post(gateway.url + path, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
        response = await http.post(gateway.url + path, json=message, headers=session)
        await http.delete(gateway.url + path, headers=session)
    data = [line.removeprefix("data:") for line in response.text.splitlines() if line.startswith("data:") and line != "data:"]
    return cast("Json", json.loads([text for text in data if text.strip()][-1] if data else response.text))


async def send_for_result(gateway: Server, revision: str, path: str, method: str, params: Mapping[str, object]) -> Json:
    """Send a request that succeeds; return its result."""
    answer = await send(gateway, revision, path, method, params)
    assert "result" in answer, answer
    return cast("Json", answer["result"])


def by_name(tools: Sequence[Json]) -> dict[str, Json]:
    """Return tools by their own names, without the fields that Rookery adds or changes."""
    return {str(tool["name"]).removeprefix("dialects__"): {k: v for k, v in tool.items() if k not in {"name", "server"}} for tool in tools}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_list_has_all_fields_of_the_server(gateway: Server, revision: str) -> None:
    """At /mcp/{server} every item is what the server lists, in each revision: schemas of all drafts and fields of its vendor."""
    for method, field, items in LISTS:
        result = await send_for_result(gateway, revision, "/mcp/dialects", method, {})

        assert result[field] == items


@pytest.mark.parametrize("revision", ["2025-06-18", LATER])
async def test_the_list_of_all_servers_has_all_fields_of_a_tool(gateway: Server, revision: str) -> None:
    """At /mcp only names differ."""
    tools = cast("list[Json]", (await send_for_result(gateway, revision, "/mcp", "tools/list", {}))["tools"])

    assert by_name([tool for tool in tools if str(tool["name"]).startswith("dialects__")]) == by_name(dialects.TOOLS)


@pytest.mark.parametrize("revision", ["2025-06-18", LATER])
async def test_find_tool_returns_the_schema_of_the_server(gateway: Server, revision: str) -> None:
    """Search mode returns the definition of a tool, also with integers beyond 64 bits; nulls count as not set."""
    arguments = {"query": "draft7", "server": "dialects", "limit": 20}
    result = await send_for_result(gateway, revision, "/mcp?mode=search", "tools/call", {"name": "find_tool", "arguments": arguments})
    unset = {"query": "draft7", "server": None, "limit": None}
    other = await send_for_result(gateway, revision, "/mcp?mode=search", "tools/call", {"name": "find_tool", "arguments": unset})

    found, own = by_name(cast("list[Json]", cast("Json", result["structuredContent"])["tools"])), by_name(dialects.TOOLS)
    assert found == {name: own[name] for name in found}
    assert "draft7" in found
    texts = json.loads(str(cast("list[Json]", result["content"])[0]["text"]))["tools"]
    assert [tool["inputSchema"] for tool in texts] == [tool["inputSchema"] for tool in found.values()]
    assert "draft7" in by_name(cast("list[Json]", cast("Json", other["structuredContent"])["tools"]))


def test_the_http_api_has_all_fields_of_the_server(gateway: Server) -> None:
    """The routes of one server, too."""
    tools = gateway.client.get(f"{BASE}/servers/dialects/tools").json()["tools"]
    server = gateway.client.get(f"{BASE}/servers/dialects").json()
    prompts = gateway.client.get(f"{BASE}/servers/dialects/prompts").json()["prompts"]

    assert tools == server["tools"]
    assert by_name(tools) == {name: {"description": "", **tool} for name, tool in by_name(dialects.TOOLS).items()}
    assert prompts == dialects.PROMPTS


def test_the_openapi_document_of_a_server_with_old_drafts_is_valid(gateway: Server) -> None:
    """Its dialect is 2020-12, whatever the tools use."""
    document = gateway.client.get(f"{BASE}/servers/dialects/openapi.json").json()

    validate(document)
    assert len(document["paths"]) == len(dialects.TOOLS)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_result_has_all_fields_of_the_server(gateway: Server, revision: str) -> None:
    """The argument of a call, of a prompt and of a resource."""
    call = await send_for_result(gateway, revision, "/mcp/dialects", "tools/call", {"name": "none", "arguments": {"数": None}})
    prompt = await send_for_result(gateway, revision, "/mcp/dialects", "prompts/get", {"name": "greet", "arguments": {"who": "you"}})

    block = {"type": "text", **dialects.BLOCK_FIELDS}
    assert call["content"] == [{**block, "text": '{"\\u6570": null}'}]
    assert call["structuredContent"] == {"arguments": {"数": None}, "null": None}
    assert call["x-result"] == {"a": None}
    assert prompt["messages"] == [{"role": "user", "content": {**block, "text": '{"who": "you"}'}, "x-turn": 1}]
    assert ("resultType" in call) == (revision == LATER)


@pytest.mark.parametrize("name", list(dialects.DRAFTS))
def test_a_format_only_describes_a_value(gateway: Server, name: str) -> None:
    """The server of the tool decides, whichever draft its schema names."""
    arguments = {"start": "2026-11-22T10:00:00", "link": "docs/readme.md", "to": "", "payload": "{"}

    response = gateway.client.post(f"{BASE}/servers/dialects/tools/{name}", json=arguments)

    assert response.status_code == 200, response.text
    assert response.json()["result"]["structuredContent"]["arguments"] == arguments


@pytest.mark.parametrize("revision", ["2025-06-18", LATER])
async def test_unset_arguments_may_be_null_over_mcp(gateway: Server, revision: str) -> None:
    """A null that the schema forbids is left out, one that it allows is sent, and a required argument gets its default."""
    unset = {"path": "a", "glob": None, "limit": None, "after": None, "tone": None, "scale": None}
    call = await send_for_result(gateway, revision, "/mcp", "tools/call", {"name": "dialects__arguments", "arguments": unset})
    none = await send_for_result(gateway, revision, "/mcp", "tools/call", {"name": "dialects__none", "arguments": None})
    nested = {"name": "dialects__none", "arguments": None}
    found = await send_for_result(gateway, revision, "/mcp?mode=search", "tools/call", {"name": "call_tool", "arguments": nested})
    refused = await send_for_result(gateway, revision, "/mcp", "tools/call", {"name": "dialects__arguments", "arguments": {"path": None}})

    assert cast("Json", call["structuredContent"])["arguments"] == {"path": "a", "after": None, "tone": None, "scale": "css"}
    assert cast("Json", none["structuredContent"])["arguments"] == {}
    assert cast("Json", found["structuredContent"])["arguments"] == {}
    assert refused["isError"]
    assert '/path: null is not of type "string"' in str(refused["content"])


@pytest.mark.parametrize("revision", ["2025-06-18", LATER])
async def test_unset_arguments_of_a_prompt_may_be_null(gateway: Server, revision: str) -> None:
    """Over MCP and over HTTP; also while another argument is completed."""
    request = {"name": "greet", "arguments": {"who": "you", "tone": None}}
    over_mcp = await send_for_result(gateway, revision, "/mcp/dialects", "prompts/get", request)
    over_http = gateway.client.post(f"{BASE}/servers/dialects/prompts/greet", json={"arguments": request["arguments"]}).json()
    context = {"arguments": {"tone": None}}
    completion = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": ""}, "context": context}
    completed = await send_for_result(gateway, revision, "/mcp/dialects", "completion/complete", completion)

    assert over_mcp["messages"] == over_http["messages"]
    assert '{"who": "you"}' in json.dumps(over_mcp["messages"]).replace('\\"', '"')
    assert gateway.client.post(f"{BASE}/servers/dialects/prompts/greet", json={"arguments": None}).status_code == 200
    assert "completion" in completed


def _make_required_value(schema: Mapping[str, object]) -> object:
    """Return a value of the schema's type."""
    if "enum" in schema:
        return cast("list[object]", schema["enum"])[0]
    kinds: dict[object, object] = {"string": "none", "integer": 1, "number": 1, "boolean": False, "array": list[object](), "object": Json()}
    return kinds.get(schema.get("type"), "none")


@pytest.mark.parametrize("path", [f"{BASE}/servers", "/mcp"])
async def test_no_built_in_tool_refuses_null_for_an_argument_that_is_not_required(gateway: Server, path: str) -> None:
    """The built-in tools answer as if the argument was left out, over HTTP and over MCP."""
    servers = gateway.client.get(f"{BASE}/servers").json()["servers"]
    builtins = [server["id"] for server in servers if server["id"] != "dialects"]
    tools = [(server, tool) for server in builtins for tool in gateway.client.get(f"{BASE}/servers/{server}/tools").json()["tools"]]
    for server, tool in tools:
        schema = tool["inputSchema"]
        required = {name: _make_required_value(schema["properties"][name]) for name in schema.get("required", [])}
        arguments: Json = {name: required.get(name) for name in schema["properties"]}
        if path == "/mcp":
            call = {"name": f"{server}__{tool['name']}", "arguments": arguments}
            answer = json.dumps(await send_for_result(gateway, LATER, path, "tools/call", call))
        else:
            answer = gateway.client.post(f"{path}/{server}/tools/{tool['name']}", json=arguments).text

        assert "null is not" not in answer, (tool["name"], answer)
        assert "not null" not in answer, (tool["name"], answer)
    assert len(tools) > 40


def test_nested_fields_of_built_in_tools_may_be_null(gateway: Server) -> None:
    """At any depth where the model has a default; a null in place of a required field is refused."""
    task = {"name": "Write", "description": None, "priority": None, "notes": None, "key": None, "depends_on": None}
    phase = {"name": "First", "description": None, "acceptance_criteria": None, "tasks": [task]}
    plan = {"title": "Plan", "phases": [phase, {"name": "Second", "tasks": None}]}
    created = gateway.client.post(f"{BASE}/servers/agents/tools/plan_create", json=plan)
    refused = gateway.client.post(f"{BASE}/servers/agents/tools/plan_create", json={"title": "Plan", "phases": [{"name": None}]})

    assert created.status_code == 200, created.text
    assert refused.status_code == 400
    assert list(refused.json()["errors"]) == ["/phases/0/name"]


def test_a_field_that_a_built_in_tool_does_not_know_is_refused_even_if_it_is_null(gateway: Server) -> None:
    """As the routes refuse it, with the nearest known name."""
    response = gateway.client.post(f"{BASE}/servers/brain/tools/recall", json={"query": "deploy", "tagz": None})

    assert response.status_code == 500
    assert "tags" in response.json()["error"]
